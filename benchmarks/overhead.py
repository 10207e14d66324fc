"""``overhead``: what agym costs besides the environments.

::

    inside a worker     [ env.step, env.step, ... ][ everything else ]   per step of an environment
    empty round trip    [ caller ][ way ][ nothing to do ][ way ][ caller ]     one worker
    efficiency          environments' part of the time, against how long a step takes
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
from agym.planning.model import efficiency
from benchmarks.bare import Bare
from benchmarks.efficiency import overhead_of, points, share_of
from benchmarks.efficiency_plot import save_efficiency_plot
from benchmarks.machine import describe_machine
from benchmarks.measure import measure
from benchmarks.options import Repeats, Seconds
from benchmarks.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.overhead_systems import HostAlone, RoundTrip, StepsAlone
from benchmarks.progress import progress_bar
from benchmarks.report import aims_table, disturbance, machine_line
from benchmarks.results import BARE, Report, Settings, Verdict, WorkResult
from benchmarks.system import System
from benchmarks.systems import AgymProcess, AgymSerial, GymnasiumAsync, GymnasiumSync
from benchmarks.works import BusyWork, Work

EXAMPLES = """Examples:

python -m benchmarks overhead

python -m benchmarks overhead --num-envs 64 --step-times 1,10,100

python -m benchmarks overhead --json result.json --plot result.png
"""

INSIDE, EMPTY = Work("Null-v0", 64), Work("Null-v0", 1)

# In microseconds: what a worker may cost per step of an environment, and a round trip.
INSIDE_LIMIT, ROUND_TRIP_LIMIT = 0.6, 12.0

# Steps of so many microseconds, beside those that do nothing.
STEP_TIMES = "1,3,10,30,100,300,1000"

# So that a title fits over its table.
TITLE_WIDTH = 64

COMPARED: tuple[type[System], ...] = (
    Bare, AgymSerial, AgymProcess, GymnasiumSync, GymnasiumAsync,
)  # fmt: skip


def overhead(
    num_envs: Annotated[
        int, typer.Option(min=1, help="Environments, for efficiency against step time.")
    ] = 8,
    step_times: Annotated[
        str, typer.Option(help="Microseconds that a step takes, with commas between.")
    ] = STEP_TIMES,
    seconds: Seconds = 0.2,
    repeats: Repeats = 9,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure what agym costs besides the environments, which do nothing, or for a given time."""
    check_plot(plot)
    check_writable(json, plot)
    report = run_overhead(num_envs, parse_times(step_times), Settings(seconds, repeats, workers))
    deliver(show_overhead(report), report.to_json(), json)
    if plot is not None:
        save_efficiency_plot(report, efficiency_works(report), plot)


def run_overhead(num_envs: int, step_times: Sequence[float], settings: Settings) -> Report:
    """Measure, with progress on stderr that is drawn only between two slices."""
    plan: list[tuple[Work, tuple[type[System], ...]]] = [
        (INSIDE, (StepsAlone, HostAlone)),
        (EMPTY, (RoundTrip, AgymSerial)),
        *((BusyWork.of(time, num_envs), COMPARED) for time in (0.0, *step_times)),
    ]
    results = []
    with progress_bar(len(plan)) as bar:
        for work, systems in plan:
            with bar.part(work.name) as tell:
                results.append(measure(work, settings, tell, systems))
    return Report(describe_machine(), settings, tuple(results), aims=judge_overhead(results))


def parse_times(text: str) -> tuple[float, ...]:
    """Read ``"1,10,0.5"``.

    Raises:
        UsageError: It is something else.
    """
    try:
        times = {float(word) for word in text.split(",")}
    except ValueError:
        times = {0.0}
    if not all(0 < time < math.inf for time in times):
        raise UsageError(f"--step-times {text!r} is no list of microseconds: write 1,10,100")
    return tuple(sorted(times))


def efficiency_works(report: Report) -> list[WorkResult]:
    """The part of a run that is about step times, the shortest first."""
    return [work for work in report.works if not work.work.startswith("Null")]


# ---------------------------------------------------------------- the two figures


def inside_microseconds(work: WorkResult) -> float | None:
    """What a worker costs per step of an environment besides ``env.step``."""
    host, alone = work.row(HostAlone.name), work.row(StepsAlone.name)
    if host is None or alone is None:
        return None
    return 1e6 * median(1 / a - 1 / b for a, b in zip(host.rates, alone.rates, strict=True))


def round_trip_microseconds(work: WorkResult) -> float | None:
    """What an empty round trip of one worker takes."""
    row = work.row(RoundTrip.name)
    return None if row is None else 1e6 * work.num_envs / row.rate


def judge_overhead(works: Sequence[WorkResult]) -> tuple[Verdict, ...]:
    """Hold both against their limits."""
    verdicts = []
    for work in works:
        if work.work == INSIDE.name:
            aim = f"{work.work}: a worker besides env.step, per step of an environment"
            verdicts.append(Verdict.on_limit(aim, INSIDE_LIMIT, inside_microseconds(work), "µs"))
        if work.work == EMPTY.name:
            aim = f"{work.work}: {RoundTrip.name}, sync face"
            limit = ROUND_TRIP_LIMIT
            verdicts.append(Verdict.on_limit(aim, limit, round_trip_microseconds(work), "µs"))
    return tuple(verdicts)


# ---------------------------------------------------------------- the tables


def show_overhead(report: Report) -> RenderableType:
    """Costs on environments that do nothing, then efficiency, then the aims."""
    works = efficiency_works(report)
    costs = [_cost_table(work) for work in report.works if work not in works]
    return Group(*costs, _efficiency_table(report, works), aims_table(report.aims))


def _cost_table(work: WorkResult) -> Table:
    table = Table(title=f"{work.work}, an environment that does nothing", min_width=TITLE_WIDTH)
    table.add_column("measured", no_wrap=True)
    for name in ("µs per batch", "µs per environment", "spread"):
        table.add_column(name, justify="right")
    for row in work.rows:
        each = 1e6 / row.rate
        table.add_row(row.system, f"{work.num_envs * each:.2f}", f"{each:.3f}", f"{row.spread:.0%}")
    return table


def _efficiency_table(report: Report, works: Sequence[WorkResult]) -> Table:
    """Efficiency as measured, and as the formula has it."""
    settings = report.settings
    table = Table(
        title=f"Efficiency, {settings.workers} workers: median of {settings.repeats} ×"
        f" {settings.seconds:g} s in turns (in brackets: N·t / (N·t + t_os))",
        caption="\n".join([machine_line(report.machine), *_notes(works), *disturbance(report)]),
        caption_justify="left",
    )
    table.add_column("system", no_wrap=True)
    table.add_column("t_os µs", justify="right")
    bares = [row for work in works if (row := work.row(BARE)) is not None]
    for bare in bares:
        table.add_column(f"{1e6 / bare.rate:.3g} µs", justify="right")
    for system in (kind.name for kind in COMPARED if kind is not Bare):
        measured = points(works, system, settings.workers)
        cost = overhead_of(works[0], system, settings.workers)
        if cost is None or len(measured) < len(bares):
            continue
        share = share_of(system, works[0].num_envs, settings.workers)
        cells = (
            f"{point.efficiency:.0%} ({efficiency(share, point.step_seconds, cost):.0%})"
            for point in measured
        )
        table.add_row(system, f"{1e6 * cost:.1f}", *cells)
    return table


def _notes(works: Sequence[WorkResult]) -> list[str]:
    return list(dict.fromkeys(f"{note}." for work in works for note in work.notes))
