"""``pool``: a pool of workers against a process per environment, by number of environments.

An experiment from the literature: throughput and efficiency for fewer environments than cores, and
for many times as many, through Stable-Baselines3's API::

    SB3 Dummy          a loop
    SB3 Subproc        a process per environment
    agym sb3 process   a process per core, each with its share of the environments
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from agym.core._system.cpus import available_cores
from benchmarks.measuring.options import CoreWorkers, Repeats, Seconds
from benchmarks.overhead.efficiency import cores_of, efficiency_of, formula
from benchmarks.reports.count_plot import Chart, save_count_plot
from benchmarks.reports.output import JsonFile, PlotFolder, check_plot, check_writable, deliver
from benchmarks.reports.results import BARE, BOUND, Report, Row, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import columns_table
from benchmarks.systems.base import System
from benchmarks.systems.baseline import Bare
from benchmarks.systems.runners import AgymSB3, AgymSB3OneProcess, SB3Dummy, SB3Subproc
from benchmarks.throughput.grid import grid_workloads, parse_counts, run_workloads
from benchmarks.throughput.scale import NOISE, rise

EXAMPLES = """Examples:

python -m benchmarks pool --json result.json --plot charts

python -m benchmarks pool CartPole-v1 --num-envs 1,8,64 --workers 4
"""

ENVS = ("CartPole-v1", "Acrobot-v1", "HumanoidStandup-v5")
COUNTS = "1,2,4,16,64,256"

SYSTEMS: tuple[type[System], ...] = (Bare, SB3Dummy, SB3Subproc, AgymSB3OneProcess, AgymSB3)
POOL, ONE, SUBPROC = AgymSB3.name, AgymSB3OneProcess.name, SB3Subproc.name

# The share of perfect scaling from one worker that counts as linear.
LINEAR = 0.9


def pool(
    envs: Annotated[
        list[str] | None, typer.Argument(metavar="ENV", help="Environments; by default three.")
    ] = None,
    num_envs: Annotated[
        str, typer.Option(help="Numbers of environments, separated by commas.")
    ] = COUNTS,
    seconds: Seconds = 0.2,
    repeats: Repeats = 7,
    workers: CoreWorkers = None,
    json: JsonFile = None,
    plot: PlotFolder = None,
) -> None:
    """Measure steps per second of SB3's and agym's vector environments, far beyond the cores.

    Efficiency is relative to bare environments, one per core that has any.
    """
    check_plot(plot)
    check_writable(json, plot)
    workloads = grid_workloads(envs or ENVS, parse_counts(num_envs))
    settings = Settings(seconds, repeats, workers or available_cores())
    report = run_workloads(workloads, settings, SYSTEMS, judge_pool)
    deliver(show_pool(report), report.to_json(), json)
    if plot is not None:
        save_pool_plots(report, plot)


def judge_pool(workloads: Sequence[WorkloadResult], settings: Settings) -> Iterator[Verdict]:
    """Compare the pool with the targets, for each environment."""
    for env_id in dict.fromkeys(work.env_id for work in workloads):
        mine = [work for work in workloads if work.env_id == env_id]
        yield _against_subproc(env_id, mine)
        yield _decline(env_id, mine, settings.workers)
        yield _linearity(env_id, mine, settings.workers)


def _against_subproc(env_id: str, workloads: Sequence[WorkloadResult]) -> Verdict:
    """Judge whether the pool is at least as fast for every number."""
    ratios = [(work.ratio(POOL, SUBPROC), work.num_envs) for work in workloads]
    worst, n = min(((r, n) for r, n in ratios if r is not None), default=(None, 0))
    where = "" if worst is None else f", worst at ×{n}"
    return Verdict.on_ratio(f"{env_id}: {POOL} against {SUBPROC}{where}", 1.0, worst)


def _decline(env_id: str, workloads: Sequence[WorkloadResult], workers: int) -> Verdict:
    """Judge whether the cost per step stays flat, once every worker has an environment.

    The cost is relative to steps of the bare environment, which was measured in turns with it.
    """
    costs = []
    for work in workloads:
        row, bare = work.row(POOL), work.row(BARE)
        if row is not None and bare is not None and work.num_envs >= workers:
            rates = tuple(a / b for a, b in zip(row.rates, bare.rates, strict=True))
            costs.append(WorkloadResult(work.work, (Row(POOL, rates),)))
    worst = rise(costs, POOL)
    where = "" if worst is None else ", {1} against {0}".format(*map(_number, worst[1:]))
    target = f"{env_id}: cost per step with more environments{where}"
    return Verdict.on_ratio(target, NOISE, None if worst is None else worst[0], at_most=True)


def _number(work: str) -> str:
    return work.rpartition(" ")[2]


def _linearity(env_id: str, workloads: Sequence[WorkloadResult], workers: int) -> Verdict:
    """Judge whether the speed scales with the workers, at the largest number."""
    most = max(workloads, key=lambda work: work.num_envs)
    target = f"{most.work}: {workers} workers against one"
    return Verdict.on_ratio(target, LINEAR * workers, most.ratio(POOL, ONE))


def show_pool(report: Report) -> RenderableType:
    """Return a table of steps per second with efficiency in brackets."""
    workers = report.settings.workers

    def cell(work: WorkloadResult, row: Row) -> str:
        part = "" if row.system == BARE else f" ({efficiency_of(work, row.system, workers):.0%})"
        return f"{row.rate:,.0f}{part}"

    title = f"{workers} workers: steps/s (efficiency)"
    return columns_table(report, title, [kind.name for kind in SYSTEMS], cell)


def save_pool_plots(report: Report, folder: Path) -> None:
    """Draw throughput and efficiency into a folder, which is created if needed."""
    folder.mkdir(exist_ok=True)
    workers = report.settings.workers

    def rate(work: WorkloadResult, row: Row) -> float:
        return row.rate * (cores_of(POOL, work.num_envs, workers) if row.system == BARE else 1)

    def part(work: WorkloadResult, row: Row) -> float:
        return 1.0 if row.system == BARE else efficiency_of(work, row.system, workers) or 0.0

    throughput = Chart(f"Steps of environments per second, {workers} workers", rate, BOUND, POOL)
    efficiency = Chart(
        f"Efficiency, {workers} workers (dashed: N·t / (N·t + t_os))", part, BOUND, POOL,
        log=False, formula=partial(formula, workers=workers),
    )  # fmt: skip
    save_count_plot(report.workloads, folder / "throughput.png", throughput)
    save_count_plot(report.workloads, folder / "efficiency.png", efficiency)
