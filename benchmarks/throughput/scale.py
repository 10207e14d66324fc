"""``scale``: cost of a step by number of environments, from one to thousands.

All numbers of environments take turns, so that a higher cost is due to the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import combinations
from statistics import median
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import alternate
from benchmarks.measuring.progress import Announce, progress_bar
from benchmarks.measuring.workloads import Workload, check_work, sample_actions
from benchmarks.reports.count_plot import save_count_plot
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import BARE, LOOP, Report, Row, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import disturbance, machine_line
from benchmarks.systems.base import System
from benchmarks.systems.baseline import Bare, BareLoop
from benchmarks.systems.runners import AgymAuto
from benchmarks.throughput.grid import parse_counts

EXAMPLES = """Examples:

python -m benchmarks scale

python -m benchmarks scale Acrobot-v1 --num-envs 1,10,100 --plot result.png
"""

ENV = "CartPole-v1"
COUNTS = tuple(2**k for k in range(13))

# Factor by which a step may cost more than with fewer environments and still count as equal:
# medians of equal systems differ that much on a quiet machine.
NOISE = 1.05


def scale(
    env: Annotated[str, typer.Argument(metavar="ENV", help="The environment.")] = ENV,
    num_envs: Annotated[str, typer.Option(help="Numbers of environments, with commas.")] = ",".join(
        map(str, COUNTS)
    ),
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each number.")
    ] = 0.2,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each number.")] = 9,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure the cost of an environment step under backend="auto", by number of environments."""
    check_plot(plot)
    check_writable(json, plot)
    report = run_scale(env, parse_counts(num_envs), Settings(seconds, repeats))
    deliver(show_scale(report), report.to_json(), json)
    if plot is not None:
        save_count_plot(report.workloads, plot)


def run_scale(env_id: str, counts: Sequence[int], settings: Settings) -> Report:
    """Measure all numbers, with progress on stderr that is redrawn only between slices."""
    workloads = [check_work(Workload(env_id, count)) for count in counts]
    results: tuple[WorkloadResult, ...]
    with progress_bar(1) as bar, bar.part(f"scale of {env_id}") as announce:
        missing = workloads[0].missing()
        if missing is None:
            results = _measure(workloads, settings, announce)
        else:
            results = tuple(WorkloadResult(work.name, notes=(missing,)) for work in workloads)
    return Report(describe_machine(), settings, results, targets=judge_scale(results))


def _measure(
    workloads: Sequence[Workload], settings: Settings, announce: Announce
) -> tuple[WorkloadResult, ...]:
    with ExitStack() as stack:

        def make(kind: type[System], work: Workload) -> System:
            announce(f"making {kind.name}, {work.num_envs:,}")
            system = stack.enter_context(closing(kind(work, sample_actions(work), 1)))
            system.reset()
            return system

        systems = {BARE: make(Bare, workloads[0])}
        for work in workloads:
            for kind in (BareLoop, AgymAuto):
                systems[f"{kind.name} {work.name}"] = make(kind, work)
        turns = alternate(systems, settings, announce)
        announce("closing")
    rates = {name: tuple(slices) for name, slices in turns.rates.items()}
    return tuple(
        WorkloadResult(
            work.name,
            (
                Row(BARE, rates[BARE]),
                Row(LOOP, rates[f"{LOOP} {work.name}"]),
                Row(AgymAuto.name, rates[f"{AgymAuto.name} {work.name}"]),
            ),
            (), turns.idle_cores, turns.other_cores,
        )
        for work in workloads
    )  # fmt: skip


def rise(workloads: Sequence[WorkloadResult], system: str) -> tuple[float, str, str] | None:
    """Return the worst ratio of the cost of a step with more environments to that with fewer.

    Returns:
        The ratio, which is the median over the repetitions; the smaller and the larger workload.
    """
    found = []
    for fewer, more in combinations(sorted(workloads, key=lambda work: work.num_envs), 2):
        first, second = fewer.row(system), more.row(system)
        if first is not None and second is not None:
            pairs = zip(first.rates, second.rates, strict=True)
            found.append((median(a / b for a, b in pairs), fewer.work, more.work))
    return max(found, default=None)


def judge_scale(workloads: Sequence[WorkloadResult]) -> tuple[Verdict, ...]:
    """Compare the worst rise with the noise."""
    worst = rise(workloads, AgymAuto.name)
    where = "" if worst is None else f", {worst[2]} against {worst[1]}"
    target = f"{AgymAuto.name}: cost per step with more environments{where}"
    return (Verdict.on_ratio(target, NOISE, None if worst is None else worst[0], at_most=True),)


def show_scale(report: Report) -> RenderableType:
    """Return a table of the cost of a step by number of environments."""
    settings = report.settings
    notes = dict.fromkeys(f"{note}." for work in report.workloads for note in work.notes)
    table = Table(
        title=f"Cost by number of environments: median of {settings.repeats} ×"
        f" {settings.seconds:g} s in turns",
        caption="\n".join([machine_line(report.machine), *notes, *disturbance(report)]),
        caption_justify="left",
    )
    table.add_column("work", no_wrap=True)
    for name in (LOOP, AgymAuto.name):
        table.add_column(f"{name}, µs/step", justify="right")
    table.add_column("spread", justify="right")
    for work in report.workloads:
        loop, auto = work.row(LOOP), work.row(AgymAuto.name)
        if loop is None or auto is None:
            table.add_row(work.work, "not measured")
        else:
            costs = (f"{1e6 / row.rate:.2f}" for row in (loop, auto))
            table.add_row(work.work, *costs, f"{auto.spread:.0%}")
    return table
