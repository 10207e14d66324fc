"""Tables of a report for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.reports.results import (
    AT_ONCE,
    BOUND,
    Report,
    Row,
    StartupResult,
    Verdict,
    WorkloadResult,
)
from benchmarks.systems.runners import GymnasiumSync, SB3Dummy, SB3Subproc

# Systems with which every system is compared.
AGAINST = (GymnasiumSync.name, BOUND, AT_ONCE)

# The reader is warned if other programs use more cores than this.
BUSY_CORES = 0.1


def show(report: Report) -> RenderableType:
    """Return all tables of a report."""
    parts: list[RenderableType] = []
    if report.workloads:
        parts.append(throughput_table(report))
    if report.startup is not None:
        parts.append(startup_table(report.startup))
    return Group(*parts)


def throughput_table(report: Report) -> Table:
    """Return steps per second of every system on every workload, with ratios."""
    settings = report.settings
    table = Table(
        title=f"Throughput, {settings.workers} workers: steps of environments per second,"
        f" median of {settings.repeats} × {settings.seconds:g} s in turns",
        caption="\n".join([machine_line(report.machine), *notes(report)]),
        caption_justify="left",
    )
    table.add_column("work", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for name in ("steps/s", "spread", *(f"÷ {other}" for other in AGAINST)):
        table.add_column(name, justify="right")
    for work in report.workloads:
        _add_work(table, work)
    return table


def _add_work(table: Table, work: WorkloadResult) -> None:
    if not work.rows:
        table.add_row(work.work, "not measured")
    for i, row in enumerate(work.rows):
        table.add_row(
            work.work if i == 0 else "",
            row.system,
            f"{row.rate:,.0f}",
            f"{row.spread:.0%}",
            *(ratio_cell(work.ratio(row.system, other)) for other in AGAINST),
            style="bold" if row.system.startswith("agym") else None,
        )
    table.add_section()


def ratio_cell(ratio: float | None) -> str:
    """Return a ratio as text, or a dash."""
    return "–" if ratio is None else f"{ratio:.2f}"


def columns_table(
    report: Report, title: str, systems: Sequence[str], cell: Callable[[WorkloadResult, Row], str]
) -> Table:
    """Return a table with a line per workload and a column per system; notes are below."""
    settings = report.settings
    left_out = dict.fromkeys(f"{note}." for work in report.workloads for note in work.notes)
    table = Table(
        title=f"{title}: median of {settings.repeats} × {settings.seconds:g} s in turns",
        caption="\n".join([machine_line(report.machine), *left_out, *disturbance(report)]),
        caption_justify="left",
    )
    table.add_column("work", no_wrap=True)
    for system in systems:
        table.add_column(system, justify="right")
    env_id = ""
    for work in report.workloads:
        if env_id not in ("", work.env_id):
            table.add_section()
        env_id = work.env_id
        rows = (work.row(system) for system in systems)
        table.add_row(work.work, *("–" if row is None else cell(work, row) for row in rows))
    return table


def startup_table(startup: StartupResult) -> Table:
    """Return the time until environments are ready, and their memory."""
    table = Table(title="Start-up, each time from a fresh process, until ready to step")
    table.add_column("work")
    for name in ("workers", "seconds", "slowest", "total memory"):
        table.add_column(name, justify="right")
    table.add_row(
        startup.work,
        str(startup.workers),
        f"{median(startup.seconds):.2f}",
        f"{max(startup.seconds):.2f}",
        f"{median(startup.memory) / 1e6:.0f} MB",
    )
    return table


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return the targets with the measured values and the verdicts."""
    table = Table(title="Targets")
    table.add_column("target")
    for name in ("wanted", "measured", "met"):
        table.add_column(name, justify="right")
    for each in verdicts:
        bound = "at most" if each.at_most or each.unit != "×" else "at least"
        measured = "–" if each.measured is None else f"{each.measured:,.3g} {each.unit}"
        met = {True: "yes", False: "NO", None: "–"}[each.met]
        table.add_row(each.target, f"{bound} {each.wanted:g} {each.unit}", measured, met)
    return table


def machine_line(described: Mapping[str, str]) -> str:
    """Return the machine in one line."""
    machine = dict(described)
    parts = [machine.pop("cpu", ""), f"{machine.pop('cores', '?')} cores"]
    parts += [machine.pop("system", ""), machine.pop("python", "")]
    return ", ".join([*parts, *(f"{name} {version}" for name, version in machine.items())])


def notes(report: Report) -> Iterator[str]:
    """Yield notes for the reader about the rows."""
    systems = {row.system for work in report.workloads for row in work.rows}
    if systems & {SB3Dummy.name, SB3Subproc.name}:
        yield "SB3 resets within the last step of an episode, all others in a separate step."
    for work in report.workloads:
        for note in work.notes:
            yield f"{work.work}: {note}."
    idle = max((work.idle_cores for work in report.workloads), default=0.0)
    yield f"Systems waiting for their turn used at most {idle:.0%} of a core."
    for work in report.workloads:
        if work.other_cores > BUSY_CORES:
            yield (
                f"{work.work}: other programs kept {work.other_cores:.1f} cores busy, which slows"
                " worker processes most."
            )


def disturbance(report: Report) -> Iterator[str]:
    """Yield warnings about CPU use by other programs and by systems waiting for their turn."""
    other = max((work.other_cores for work in report.workloads), default=0.0)
    idle = max((work.idle_cores for work in report.workloads), default=0.0)
    if idle > BUSY_CORES:
        yield f"Systems waiting for their turn used up to {idle:.0%} of a core."
    if other > BUSY_CORES:
        yield (
            f"Other programs kept up to {other:.1f} cores busy, which slows worker processes most."
        )
