"""``all``: all performance figures in one report and a folder of charts.

It combines the runs of the other commands::

    throughput   steps per second against bounds and other runners; infos and copies
    grid         backend="auto" against every fixed choice and every peer
    scale        cost of a step by number of environments
    overhead     agym's own cost per step, and efficiency against step time
    startup, memory
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.workloads import WORKLOADS, Workload
from benchmarks.overhead import startup as starting
from benchmarks.overhead.command import (
    STEP_TIMES,
    efficiency_workloads,
    parse_times,
    run_overhead,
    show_overhead,
)
from benchmarks.overhead.efficiency_plot import save_efficiency_plot
from benchmarks.reports.comparison import Comparison, show_comparison
from benchmarks.reports.count_plot import save_count_plot
from benchmarks.reports.output import JsonFile, PlotFolder, check_plot, check_writable, deliver
from benchmarks.reports.plot import save_plot
from benchmarks.reports.results import Report, Settings, Verdict, to_json
from benchmarks.reports.tables import show
from benchmarks.systems.variants import VARIANTS, CopiesWorkload, InfosWorkload
from benchmarks.throughput import grid, scale
from benchmarks.throughput.command import run as run_throughput

EXAMPLES = """Examples:

python -m benchmarks all --json result.json --plot charts

python -m benchmarks all --quick
"""


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Attributes:
        workloads: Workloads of throughput.
        envs: Environments of the grid.
        counts: Numbers of environments of the grid.
        scale: Numbers of environments of the scale.
        step_times: Step times of the overhead, in microseconds.
        num_envs: Number of environments of the overhead.
        start: Workload of start-up and memory.
        long: Settings of throughput.
        short: Settings of the others, which have many slices.
        starts: Number of starts.
    """

    workloads: Sequence[Workload] = (*WORKLOADS, *VARIANTS)
    envs: Sequence[str] = grid.ENVS
    counts: Sequence[int] = grid.COUNTS
    scale: Sequence[int] = scale.COUNTS
    step_times: Sequence[float] = parse_times(STEP_TIMES)
    num_envs: int = 8
    start: Workload = starting.WORKLOAD
    long: Settings = Settings()  # noqa: RUF009
    short: Settings = Settings(0.2)  # noqa: RUF009
    starts: int = 5


# A little of everything, to test the command.
QUICK = Plan(
    workloads=(
        Workload("CartPole-v1", 2),
        InfosWorkload("Informing-v0", 2),
        CopiesWorkload("CartPole-v1", 2),
    ),
    envs=("CartPole-v1",),
    counts=(1, 2),
    scale=(1, 2),
    step_times=(10.0,),
    num_envs=2,
    start=Workload("CartPole-v1", 2),
    long=Settings(0.01, 1),
    short=Settings(0.01, 1),
    starts=1,
)


def everything(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Measure a little of each; the figures mean nothing.",
            show_default="off",
        ),
    ] = False,
    json: JsonFile = None,
    plot: PlotFolder = None,
) -> None:
    """Measure all performance figures (about an hour) and write one report."""
    check_plot(plot)
    check_writable(json, plot)
    full = measure_all(QUICK if quick else Plan())
    deliver(full.show(), full.to_json(), json)
    if plot is not None:
        full.save_plots(plot)


@dataclass(frozen=True)
class FullReport:
    """All runs, by the names of their commands; ``comparisons`` are start-up and memory."""

    machine: Mapping[str, str]
    reports: Mapping[str, Report]
    comparisons: Mapping[str, Comparison]

    @property
    def targets(self) -> tuple[Verdict, ...]:
        return tuple(target for part in self._parts.values() for target in part.targets)

    @property
    def _parts(self) -> dict[str, Report | Comparison]:
        return {**self.reports, **self.comparisons}

    def to_json(self) -> str:
        """Return everything, with all slices, as JSON; machine and targets occur only once."""
        parts = {
            name: _without(asdict(part), "machine", "targets") for name, part in self._parts.items()
        }
        targets = [asdict(target) for target in self.targets]
        return to_json({"machine": dict(self.machine), "parts": parts, "targets": targets})

    def show(self) -> RenderableType:
        """Return all tables."""
        reports = self.reports
        return Group(
            show(reports["throughput"]),
            grid.show_grid(reports["grid"]),
            scale.show_scale(reports["scale"]),
            show_overhead(reports["overhead"]),
            *(show_comparison(comparison) for comparison in self.comparisons.values()),
        )

    def save_plots(self, folder: Path) -> None:
        """Draw a chart of each run into a folder, which is created if needed."""
        folder.mkdir(exist_ok=True)
        overhead = self.reports["overhead"]
        save_plot(self.reports["throughput"], folder / "throughput.png")
        save_count_plot(self.reports["grid"].workloads, folder / "grid.png")
        save_count_plot(self.reports["scale"].workloads, folder / "scale.png")
        save_efficiency_plot(overhead, efficiency_workloads(overhead), folder / "overhead.png")


def measure_all(plan: Plan) -> FullReport:
    """Run all measurements, one after the other."""
    workers = plan.long.workers
    reports = {
        "throughput": run_throughput(plan.workloads, plan.long, wants_startup=False),
        "grid": grid.run_grid(grid.grid_workloads(plan.envs, plan.counts), plan.short),
        "scale": scale.run_scale(scale.ENV, plan.scale, plan.short),
        "overhead": run_overhead(plan.num_envs, plan.step_times, plan.short),
    }
    comparisons = {
        "startup": starting.run_startup(plan.start, workers, plan.starts),
        "memory": starting.run_memory(plan.start, workers, plan.starts),
    }
    return FullReport(describe_machine(), reports, comparisons)


def _without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}
