"""``ray``: agym's actors against hand-written loops, agym's own processes, and more nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from agym.core._system.extras import require
from benchmarks.measuring.options import Repeats, Seconds
from benchmarks.ray.scale import Message, Scale, measure_messages, measure_scale, nodes_here
from benchmarks.ray.systems import AgymRay, LocalWorkload, LoopsWorkload, RayActorEach, RayLoop
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Report, Settings, Verdict, WorkloadResult, to_json
from benchmarks.reports.tables import columns_table
from benchmarks.systems.runners import AgymProcess
from benchmarks.throughput.grid import run_workloads

EXAMPLES = """Examples:

python -m benchmarks ray

python -m benchmarks ray --seconds 0.2 --repeats 3 --json result.json
"""

WORKLOADS = LoopsWorkload("CartPole-v1", 1024), LocalWorkload("HumanoidStandup-v5", 32)
NODES = 1, 2, 4
SYSTEMS = RayActorEach, RayLoop, AgymProcess, AgymRay


def ray(
    seconds: Seconds = 0.5,
    repeats: Repeats = 5,
    workers: Annotated[int, typer.Option(min=1, help="Number of actors or processes.")] = 2,
    envs: Annotated[int, typer.Option(min=2, help="Waiting environments per node.")] = 256,
    delay: Annotated[float, typer.Option(min=0.001, help="Seconds that a step waits.")] = 0.25,
    json: JsonFile = None,
) -> None:
    """Measure actors on a simulated cluster of four nodes on this machine.

    An actor per environment is measured with only 32, because a machine cannot hold a thousand.
    """
    require("ray", "ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    check_writable(json)
    settings = Settings(seconds, repeats, workers)
    with nodes_here(max(NODES)):
        report = run_workloads(WORKLOADS, settings)
        messages = [
            measure_messages(work, workers, seconds * repeats)
            for work in WORKLOADS
            if work.missing() is None
        ]
        scales = measure_scale(NODES, envs, delay, max(seconds * repeats, 8 * delay))
    targets = (*judge_workloads(report.workloads), *judge_scale(scales))
    text = to_json({
        "report": asdict(report),
        "messages": [asdict(message) for message in messages],
        "scale": [asdict(scale) for scale in scales],
        "targets": [asdict(target) for target in targets],
    })  # fmt: skip
    deliver(show_ray(report, messages, scales), text, json)


def judge_workloads(workloads: Sequence[WorkloadResult]) -> Iterator[Verdict]:
    """Compare throughput with its targets."""
    loops, local = workloads
    for work, against, factor in (
        (loops, RayLoop, 1.0), (loops, RayActorEach, 20.0), (local, AgymProcess, 0.85),
    ):  # fmt: skip
        ratio = work.ratio(AgymRay.name, against.name)
        target = f"{work.work}: {AgymRay.name} against {against.name}"
        yield Verdict.on_ratio(target, factor, ratio)


def judge_scale(scales: Sequence[Scale]) -> Iterator[Verdict]:
    """Compare throughput with perfect scaling from the smallest number of nodes."""
    first = scales[0]
    for scale in scales[1:]:
        ratio = scale.rate / first.rate * first.nodes / scale.nodes
        yield Verdict.on_ratio(f"{scale.nodes} nodes against as many times one", 0.9, ratio)


def show_ray(
    report: Report,
    messages: Sequence[Message],
    scales: Sequence[Scale],
) -> RenderableType:
    """Return all tables."""
    workers = report.settings.workers
    names = [system.name for system in SYSTEMS]
    title = f"{workers} actors or processes: steps/s"
    rates = columns_table(report, title, names, lambda _, row: f"{row.rate:,.0f}")
    costs = Table(title="Cost of a message")
    for name in ("work", "batch", "message, per actor", "of the batch"):
        costs.add_column(name, justify="left" if name == "work" else "right")
    for one in messages:
        costs.add_row(
            one.work, f"{one.batch * 1e3:.2f} ms", f"{one.cost * 1e6:.0f} µs", f"{one.share:.0%}"
        )
    nodes = Table(title="Environments that wait, received as soon as half are there")
    for name in ("nodes", "environments", "steps/s", "driver, of a core"):
        nodes.add_column(name, justify="right")
    for scale in scales:
        row = scale.nodes, scale.num_envs, f"{scale.rate:,.0f}", f"{scale.driver:.0%}"
        nodes.add_row(*map(str, row))
    return Group(rates, costs, nodes)
