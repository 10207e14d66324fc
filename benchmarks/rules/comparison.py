"""Measures systems on games, and compares the results with targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import measure
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.workloads import Workload
from benchmarks.reports.results import Report, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import disturbance, machine_line
from benchmarks.systems.base import System


@dataclass(frozen=True)
class Limit:
    """A step of a game must take less than some microseconds."""

    work: str
    system: type[System]
    microseconds: float


@dataclass(frozen=True)
class Factor:
    """One system must be ``factor`` times as fast as another on a workload."""

    work: str
    system: type[System]
    against: type[System]
    factor: float


@dataclass(frozen=True)
class Extra:
    """A batch of one system may take some microseconds more than another's on a workload."""

    work: str
    system: type[System]
    against: type[System]
    microseconds: float


Target = Limit | Factor | Extra


def run_games(
    works: Sequence[Workload],
    settings: Settings,
    systems: Sequence[type[System]],
    targets: Sequence[Target],
) -> Report:
    """Measure all systems, with progress on stderr that is redrawn only between slices."""
    results = []
    with progress_bar(len(works)) as bar:
        for work in works:
            with bar.part(work.name) as announce:
                results.append(measure(work, settings, announce, systems))
    return Report(describe_machine(), settings, tuple(results), targets=judge(results, targets))


def judge(results: Sequence[WorkloadResult], targets: Sequence[Target]) -> tuple[Verdict, ...]:
    """Compare results with the targets for their workload."""
    verdicts = []
    for result in results:
        for target in targets:
            if target.work != result.work:
                continue
            text = f"{result.work}: {target.system.name}"
            if isinstance(target, Factor):
                ratio = result.ratio(target.system.name, target.against.name)
                text = f"{text} against {target.against.name}"
                verdicts.append(Verdict.on_ratio(text, target.factor, ratio))
            elif isinstance(target, Extra):
                text = f"{text} beyond {target.against.name}, per batch"
                verdicts.append(
                    Verdict.on_limit(text, target.microseconds, _extra(result, target), "µs")
                )
            else:
                row = result.row(target.system.name)
                cost = None if row is None else 1e6 / row.rate
                text = f"{text}, per step and game"
                verdicts.append(Verdict.on_limit(text, target.microseconds, cost, "µs"))
    return tuple(verdicts)


def _extra(result: WorkloadResult, target: Extra) -> float | None:
    """Return the median over the turns of the microseconds that a batch takes more."""
    row, other = result.row(target.system.name), result.row(target.against.name)
    if row is None or other is None:
        return None
    pairs = zip(row.rates, other.rates, strict=True)
    count = int(result.work.rpartition("×")[2])
    return median(1e6 * count * (1 / rate - 1 / base) for rate, base in pairs)


def show_games(report: Report) -> RenderableType:
    """Return a table with a line per workload and a column per system, and one of the targets."""
    settings = report.settings
    names = list(dict.fromkeys(row.system for work in report.workloads for row in work.rows))
    notes = dict.fromkeys(f"{note}." for work in report.workloads for note in work.notes)
    table = Table(
        title=f"µs per step of a game: median of {settings.repeats} × {settings.seconds:g} s in"
        " turns",
        caption="\n".join([machine_line(report.machine), *notes, *disturbance(report)]),
        caption_justify="left",
    )
    table.add_column("games", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for work in report.workloads:
        rows = [work.row(name) for name in names]
        cells = ("–" if row is None else f"{median(1e6 / rate for rate in row.rates):.3g}"
                 for row in rows)  # fmt: skip
        table.add_row(work.work, *cells)
    return Group(table, *(_verdict(target) for target in report.targets))


def _verdict(target: Verdict) -> str:
    if target.measured is None:
        return f"{target.target}: not measured"
    wanted = f"at {'least' if target.unit == '×' else 'most'} {target.wanted:g} {target.unit}"
    verdict = "met" if target.met else "missed"
    return f"{target.target}: {target.measured:.3g} {target.unit} ({wanted}: {verdict})"
