"""``overhead``: agym's cost, besides the environments.

::

    inside a worker     [ env.step, env.step, ... ][ everything else ]   per environment step
    empty round trip    [ caller ][ transport ][ no work ][ transport ][ caller ]   one worker
    efficiency          environments' share of the time, against the time of a step
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from agym.errors import UsageError
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import measure
from benchmarks.measuring.options import Repeats, Seconds
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.workloads import BusyWorkload, Workload
from benchmarks.overhead.efficiency import efficiency, overhead_of, points, share_of
from benchmarks.overhead.efficiency_plot import save_efficiency_plot
from benchmarks.overhead.systems import HostAlone, RoundTrip, StepsAlone
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import BARE, Report, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import disturbance, machine_line
from benchmarks.systems.base import System
from benchmarks.systems.baseline import Bare
from benchmarks.systems.runners import AgymProcess, AgymSerial, GymnasiumAsync, GymnasiumSync

EXAMPLES = """Examples:

python -m benchmarks overhead

python -m benchmarks overhead --num-envs 64 --step-times 1,10,100

python -m benchmarks overhead --json result.json --plot result.png
"""

INSIDE, EMPTY = Workload("Null-v0", 64), Workload("Null-v0", 1)

# Limits in microseconds: of a worker's own cost per environment step, and of a round trip.
INSIDE_LIMIT, ROUND_TRIP_LIMIT = 0.6, 12.0

# Step times in microseconds, besides steps that do nothing.
STEP_TIMES = "1,3,10,30,100,300,1000"

# Titles must fit over their tables.
TITLE_WIDTH = 64

COMPARED: tuple[type[System], ...] = (
    Bare, AgymSerial, AgymProcess, GymnasiumSync, GymnasiumAsync,
)  # fmt: skip


def overhead(
    num_envs: Annotated[
        int, typer.Option(min=1, help="Number of environments, for efficiency by step time.")
    ] = 8,
    step_times: Annotated[
        str, typer.Option(help="Microseconds per step, separated by commas.")
    ] = STEP_TIMES,
    seconds: Seconds = 0.2,
    repeats: Repeats = 9,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure agym's cost, with steps that do nothing or take a given time."""
    check_plot(plot)
    check_writable(json, plot)
    report = run_overhead(num_envs, parse_times(step_times), Settings(seconds, repeats, workers))
    deliver(show_overhead(report), report.to_json(), json)
    if plot is not None:
        save_efficiency_plot(report, efficiency_workloads(report), plot)


def run_overhead(num_envs: int, step_times: Sequence[float], settings: Settings) -> Report:
    """Measure all workloads, with progress on stderr that is redrawn only between slices."""
    plan: list[tuple[Workload, tuple[type[System], ...]]] = [
        (INSIDE, (StepsAlone, HostAlone)),
        (EMPTY, (RoundTrip, AgymSerial)),
        *((BusyWorkload.of(time, num_envs), COMPARED) for time in (0.0, *step_times)),
    ]
    results = []
    with progress_bar(len(plan)) as bar:
        for work, systems in plan:
            with bar.part(work.name) as announce:
                results.append(measure(work, settings, announce, systems))
    return Report(describe_machine(), settings, tuple(results), targets=judge_overhead(results))


def parse_times(text: str) -> tuple[float, ...]:
    """Parse numbers such as ``"1,10,0.5"``.

    Raises:
        UsageError: The text is not a list of positive numbers.
    """
    try:
        times = {float(word) for word in text.split(",")}
    except ValueError:
        times = {0.0}
    if not all(0 < time < math.inf for time in times):
        raise UsageError(f"--step-times {text!r} is not a list of microseconds: write 1,10,100")
    return tuple(sorted(times))


def efficiency_workloads(report: Report) -> list[WorkloadResult]:
    """Return the results by step time, the shortest first."""
    return [work for work in report.workloads if not work.work.startswith("Null")]


# ---------------------------------------------------------------- both figures


def inside_microseconds(work: WorkloadResult) -> float | None:
    """Return a worker's cost per environment step besides ``env.step``."""
    host, alone = work.row(HostAlone.name), work.row(StepsAlone.name)
    if host is None or alone is None:
        return None
    return 1e6 * median(1 / a - 1 / b for a, b in zip(host.rates, alone.rates, strict=True))


def round_trip_microseconds(work: WorkloadResult) -> float | None:
    """Return the time of an empty round trip of one worker."""
    row = work.row(RoundTrip.name)
    return None if row is None else 1e6 * work.num_envs / row.rate


def judge_overhead(workloads: Sequence[WorkloadResult]) -> tuple[Verdict, ...]:
    """Compare both figures with their limits."""
    verdicts = []
    for work in workloads:
        if work.work == INSIDE.name:
            target = f"{work.work}: a worker besides env.step, per step of an environment"
            verdicts.append(Verdict.on_limit(target, INSIDE_LIMIT, inside_microseconds(work), "µs"))
        if work.work == EMPTY.name:
            target = f"{work.work}: {RoundTrip.name}, sync API"
            limit = ROUND_TRIP_LIMIT
            verdicts.append(Verdict.on_limit(target, limit, round_trip_microseconds(work), "µs"))
    return tuple(verdicts)


# ---------------------------------------------------------------- tables


def show_overhead(report: Report) -> RenderableType:
    """Return the costs on environments that do nothing, then efficiency."""
    workloads = efficiency_workloads(report)
    costs = [_cost_table(work) for work in report.workloads if work not in workloads]
    return Group(*costs, _efficiency_table(report, workloads))


def _cost_table(work: WorkloadResult) -> Table:
    table = Table(title=f"{work.work}, an environment that does nothing", min_width=TITLE_WIDTH)
    table.add_column("measured", no_wrap=True)
    for name in ("µs per batch", "µs per environment", "spread"):
        table.add_column(name, justify="right")
    for row in work.rows:
        each = 1e6 / row.rate
        table.add_row(row.system, f"{work.num_envs * each:.2f}", f"{each:.3f}", f"{row.spread:.0%}")
    return table


def _efficiency_table(report: Report, workloads: Sequence[WorkloadResult]) -> Table:
    """Return efficiency as measured and as predicted by the formula."""
    settings = report.settings
    table = Table(
        title=f"Efficiency, {settings.workers} workers: median of {settings.repeats} ×"
        f" {settings.seconds:g} s in turns (in brackets: N·t / (N·t + t_os))",
        caption="\n".join([machine_line(report.machine), *_notes(workloads), *disturbance(report)]),
        caption_justify="left",
    )
    table.add_column("system", no_wrap=True)
    table.add_column("t_os µs", justify="right")
    bares = [row for work in workloads if (row := work.row(BARE)) is not None]
    for bare in bares:
        table.add_column(f"{1e6 / bare.rate:.3g} µs", justify="right")
    for system in (kind.name for kind in COMPARED if kind is not Bare):
        measured = points(workloads, system, settings.workers)
        cost = overhead_of(workloads[0], system, settings.workers)
        if cost is None or len(measured) < len(bares):
            continue
        share = share_of(system, workloads[0].num_envs, settings.workers)
        cells = (
            f"{point.efficiency:.0%} ({efficiency(share, point.step_seconds, cost):.0%})"
            for point in measured
        )
        table.add_row(system, f"{1e6 * cost:.1f}", *cells)
    return table


def _notes(workloads: Sequence[WorkloadResult]) -> list[str]:
    return list(dict.fromkeys(f"{note}." for work in workloads for note in work.notes))
