"""``busy``: which systems keep their speed next to other programs on the same cores.

Each cell is measured next to each kind of other programs ("neighbours"). All systems are made while
the neighbours run, as on a busy machine, and take turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from agym import make
from agym.core._system.extras import require
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import measure
from benchmarks.measuring.neighbours import (
    ONE_LOOP,
    QUIET,
    TORCH_LEARNER,
    TWO_LOOPS,
    Neighbours,
)
from benchmarks.measuring.options import Repeats, Seconds
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.waiting_envs import WaitingEnv
from benchmarks.measuring.workloads import Workload, parse_work
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.plot import OTHERS as GREY
from benchmarks.reports.plot import OURS as BLUE
from benchmarks.reports.results import Row, Settings, Verdict, WorkloadResult, to_json
from benchmarks.reports.tables import machine_line, verdict_table
from benchmarks.systems.base import Contest, System
from benchmarks.systems.baseline import BareAtOnce
from benchmarks.systems.runners import (
    AgymAuto,
    AgymProcess,
    AgymSerial,
    AgymThread,
    GymnasiumAsync,
    GymnasiumSync,
    SB3Subproc,
)
from benchmarks.waiting.plain import PlainWaits
from benchmarks.waiting.render_systems import (
    DrawingAgym,
    DrawingAsync,
    DrawingLoop,
    RenderWorkload,
)

EXAMPLES = """Examples:

python -m benchmarks busy

python -m benchmarks busy CartPole-v1:64 --beside 0,1

python -m benchmarks busy CartPole-v1:64 HalfCheetah-v5:64 --json result.json --plot result.png
"""

# The best of these systems is the reference for the others.
PEERS: tuple[type[System], ...] = (GymnasiumSync, GymnasiumAsync, SB3Subproc, AgymSerial)
SYSTEMS: tuple[type[System], ...] = (BareAtOnce, *PEERS, AgymThread, AgymProcess, AgymAuto)

# Targets against the best peer: of worker processes, by the seconds that SyncVectorEnv takes for a
# batch while nothing else runs (shorter batches have none), and of agym's own choice.
LONG_SECONDS, LONG_FACTOR = 1e-3, 0.95
SHORT_SECONDS, SHORT_FACTOR = 0.3e-3, 0.85
AUTO_FACTOR = 0.95

# A cell whose best peer varies by more than this between its quartiles is not judged.
STEADY = 0.2

WAIT_SECONDS = 0.01

BESIDE = {"0": QUIET, "1": ONE_LOOP, "2": TWO_LOOPS, "learner": TORCH_LEARNER}


class PlainCoroutines(System):
    """As many plain ``asyncio.sleep`` in as many processes: the bound for waiting environments."""

    name = "plain coroutines"

    def make(self, work: Workload, workers: int) -> Any:
        self._waits = PlainWaits(workers, math.ceil(work.num_envs / workers), WAIT_SECONDS)
        return self._waits.__enter__()

    def reset(self) -> None:
        self._waits.milliseconds()

    def step(self, actions: Any) -> None:
        self._waits.milliseconds()

    def close(self) -> None:
        self._waits.__exit__(None, None, None)


class AgymCoroutines(AgymProcess):
    """Coroutine environments over worker processes."""

    def make(self, work: Workload, workers: int) -> Any:
        return make(
            partial(WaitingEnv, WAIT_SECONDS), work.num_envs,
            backend="process", workers=workers, output="array",
        )  # fmt: skip


class Coroutines(Contest):
    """Environments that wait and compute nothing."""

    @property
    def name(self) -> str:
        return f"coroutines, {1000 * WAIT_SECONDS:g} ms ×{self.num_envs}"

    @property
    def systems(self) -> Sequence[type[System]]:
        return PlainCoroutines, AgymCoroutines


WORKLOADS: tuple[Workload, ...] = (
    Workload("CartPole-v1", 8),
    Workload("CartPole-v1", 64),
    Workload("CartPole-v1", 1024),
    Workload("Acrobot-v1", 64),
    Workload("HalfCheetah-v5", 64),
    Workload("ALE/Pong-v5", 16),
    Workload("HumanoidStandup-v5", 16),
    Coroutines("CartPole-v1", 1000),
    RenderWorkload("CartPole-v1", 200, "rendered", (DrawingLoop, DrawingAsync, DrawingAgym)),
)


@dataclass(frozen=True)
class Beside:
    """All cells next to one kind of neighbours."""

    neighbours: str
    workloads: tuple[WorkloadResult, ...] = ()


@dataclass(frozen=True)
class BusyReport:
    """A run of the command; the first part is without neighbours, if that was measured."""

    machine: dict[str, str]
    settings: Settings
    parts: tuple[Beside, ...] = ()

    def cell(self, neighbours: str, work: str) -> WorkloadResult | None:
        return next(
            (
                result
                for part in self.parts
                if part.neighbours == neighbours
                for result in part.workloads
                if result.work == work
            ),
            None,
        )

    @property
    def targets(self) -> tuple[Verdict, ...]:
        return tuple(
            verdict
            for part in self.parts
            if part.neighbours != QUIET.name
            for work in part.workloads
            for verdict in judge(work, part.neighbours, self.cell(QUIET.name, work.work))
        )

    def to_json(self) -> str:
        return to_json({**asdict(self), "targets": [asdict(target) for target in self.targets]})


def busy(
    work: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV:N", help="Cells; the default nine take 20 minutes."),
    ] = None,
    beside: Annotated[
        str, typer.Option(help='Neighbours: numbers of busy loops up to 2, and "learner".')
    ] = ",".join(BESIDE),
    seconds: Seconds = 0.2,
    repeats: Repeats = 15,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure runners next to busy loops, and next to a learner that computes half of the time.

    The targets compare agym's worker processes, and its own choice, with the best of
    SyncVectorEnv, AsyncVectorEnv, SubprocVecEnv and agym's serial backend.
    """
    check_plot(plot)
    check_writable(json, plot)
    neighbours = [parse_neighbours(name) for name in beside.split(",")]
    workloads = [parse_work(text) for text in work] if work else WORKLOADS
    report = run_busy(workloads, neighbours, Settings(seconds, repeats, workers), json)
    deliver(show_busy(report), report.to_json(), json)
    if plot is not None:
        save_busy_plot(report, plot)


def parse_neighbours(name: str) -> Neighbours:
    """Parse ``"0"``, ``"1"``, ``"2"`` or ``"learner"``.

    Raises:
        typer.BadParameter: It is something else, or the package that it needs is not installed.
    """
    found = BESIDE.get(name.strip())
    if found is None:
        raise typer.BadParameter(f"--beside {name!r} must be one of {', '.join(BESIDE)}")
    if not found.installed:
        raise typer.BadParameter(f"{found.name} needs {found.module}: leave it out of --beside")
    return found


def run_busy(
    workloads: Sequence[Workload],
    neighbours: Sequence[Neighbours],
    settings: Settings,
    json: Path | None = None,
) -> BusyReport:
    """Measure all cells next to all neighbours; write the report to ``json`` after each cell."""
    report = BusyReport(dict(describe_machine()), settings)
    with progress_bar(len(neighbours) * len(workloads)) as bar:
        for each in neighbours:
            part = Beside(each.name)
            before = report
            for work in workloads:
                with bar.part(f"{work.name} beside {each.name}") as announce, each.running():
                    systems = None if isinstance(work, Contest) else SYSTEMS
                    result = measure(work, settings, announce, systems)
                part = replace(part, workloads=(*part.workloads, result))
                report = replace(before, parts=(*before.parts, part))
                if json is not None:
                    json.write_text(report.to_json(), encoding="utf-8")
    return report


# ---------------------------------------------------------------- targets


def best_peer(work: WorkloadResult) -> Row | None:
    """Return the fastest of the runners that agym is compared with."""
    rows = [row for kind in PEERS if (row := work.row(kind.name)) is not None]
    return max(rows, key=lambda row: row.rate, default=None)


def is_steady(row: Row) -> bool:
    """Return whether a system's quartiles are close enough to compare with."""
    if len(row.rates) < 2:
        return True
    low, middle, high = quantiles(row.rates, method="inclusive")
    return high - low <= STEADY * middle


def judge(work: WorkloadResult, beside: str, quiet: WorkloadResult | None) -> Iterator[Verdict]:
    """Yield the targets of one cell.

    Args:
        work: The cell.
        beside: The programs that ran next to it.
        quiet: The same cell without other programs, for the duration of a batch.
    """
    best = best_peer(work)
    sync = None if quiet is None else quiet.row(GymnasiumSync.name)
    if best is None or sync is None or not is_steady(best):
        return
    seconds = work.num_envs / sync.rate
    if seconds >= SHORT_SECONDS:
        factor = LONG_FACTOR if seconds >= LONG_SECONDS else SHORT_FACTOR
        yield _verdict(work, beside, AgymProcess.name, best, factor)
    yield _verdict(work, beside, AgymAuto.name, best, AUTO_FACTOR)


def _verdict(work: WorkloadResult, beside: str, ours: str, best: Row, factor: float) -> Verdict:
    target = f"{work.work} next to {beside}: {ours} against {best.system}"
    return Verdict.on_ratio(target, factor, work.ratio(ours, best.system))


# ---------------------------------------------------------------- table and chart


def show_busy(report: BusyReport) -> RenderableType:
    """Return a table per kind of neighbours, with the steps per second of all systems."""
    tables: list[RenderableType] = []
    for part in report.parts:
        table = Table(
            title=f"Next to {part.neighbours}: thousands of steps per second,"
            f" median of {report.settings.repeats} × {report.settings.seconds:g} s in turns"
        )
        table.add_column("cell", no_wrap=True)
        for kind in SYSTEMS:
            table.add_column(kind.name, justify="right")
        table.add_column("auto chose")
        for work in part.workloads:
            if any(work.row(kind.name) for kind in PEERS):
                auto = work.row(AgymAuto.name)
                rates = (_thousands(work.row(kind.name)) for kind in SYSTEMS)
                table.add_row(work.work, *rates, "–" if auto is None else auto.choice)
        tables.append(table)
        tables += _contests(part)
    if report.targets:
        tables.append(verdict_table(report.targets))
    return Group(*tables, machine_line(report.machine))


def _contests(part: Beside) -> Iterator[RenderableType]:
    """Yield a line for each cell in which other systems take part."""
    for work in part.workloads:
        if not any(work.row(kind.name) for kind in PEERS):
            rates = (f"{row.system} {_thousands(row)}" for row in work.rows)
            yield f"{work.work}: {', '.join(rates) or ' '.join(work.notes)}"


def _thousands(row: Row | None) -> str:
    return "–" if row is None else f"{row.rate / 1000:,.1f}"


def save_busy_plot(report: BusyReport, path: Path) -> None:
    """Draw a panel per cell, with the steps per second next to each kind of neighbours.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "plot")
    names = [part.neighbours for part in report.parts]
    works = [
        work.work
        for work in report.parts[0].workloads
        if any(work.row(kind.name) for kind in PEERS)
    ]
    shown = (GymnasiumSync, GymnasiumAsync, SB3Subproc, AgymSerial, AgymProcess, AgymAuto)
    colors = (GREY, "#6b7280", "#4b5563", "#93c5fd", BLUE, "#ea580c")
    columns = max(1, min(2, len(works)))
    rows = max(1, math.ceil(len(works) / columns))
    figure = figure_module.Figure(figsize=(6.4 * columns, 2.9 * rows + 0.6), layout="constrained")
    panels = [*figure.subplots(rows, columns, squeeze=False).flat]
    width = 0.8 / len(shown)
    for panel, work in zip(panels, works, strict=False):
        cells = [report.cell(name, work) for name in names]
        for k, (kind, color) in enumerate(zip(shown, colors, strict=True)):
            found = [None if cell is None else cell.row(kind.name) for cell in cells]
            rates = [0.0 if row is None else row.rate for row in found]
            places = [i + (k - len(shown) / 2 + 0.5) * width for i in range(len(names))]
            panel.bar(places, rates, width, color=color, label=kind.name)
        panel.set_title(work, fontsize=10)
        panel.set_xticks(range(len(names)), names, fontsize=8)
        panel.tick_params(labelsize=8)
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[len(works) :]:
        panel.set_axis_off()
    bars, labels = panels[0].get_legend_handles_labels()
    figure.legend(bars, labels, loc="outside lower center", ncols=len(shown), frameon=False)
    title = "Steps of environments per second, next to other programs"
    figure.suptitle(f"{title}\n{machine_line(report.machine)}", fontsize=7, wrap=True)
    figure.savefig(path, format="png", dpi=150)
