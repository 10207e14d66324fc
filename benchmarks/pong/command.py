"""``pong``: cost of a step of Pong by engine and by number of games.

All engines take turns, for one number of games after the other. A cost linear in the number of
games gives a flat line; a constant cost gives a falling one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from agym.errors import UsageError
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import measure
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.workloads import Workload
from benchmarks.pong.plot import save_pong_plot
from benchmarks.pong.systems import PLAYERS, AlePong, Compiled, Numpy, Scalar
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import Report, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import disturbance, machine_line
from benchmarks.systems.base import System
from benchmarks.throughput.grid import parse_counts

EXAMPLES = """Examples:

python -m benchmarks pong --plot pong.png

python -m benchmarks pong agym/Pong-v0 --num-envs 1,64,4096 --json pong.json
"""

GAMES = ("agym/PongRally-v0", "agym/Pong-v0")
COUNTS = tuple(4**k for k in range(8))


@dataclass(frozen=True)
class Limit:
    """A step of a game must take less than a limit, for one engine and number of games."""

    num_envs: int
    system: type[System]
    microseconds: float


@dataclass(frozen=True)
class Factor:
    """One engine must be ``factor`` times as fast as another, at a number of games."""

    num_envs: int
    system: type[System]
    against: type[System]
    factor: float


TARGETS = (
    Factor(COUNTS[-1], Numpy, Scalar, 200.0),
    Limit(COUNTS[-1], Numpy, 0.2),
    Factor(COUNTS[-1], Compiled, AlePong, 8000.0),
    Limit(COUNTS[-1], Compiled, 0.03),
    Factor(1, Compiled, Scalar, 1.0),
)


def pong(
    game: Annotated[str, typer.Argument(metavar="GAME", help=f"{' or '.join(GAMES)}.")] = GAMES[0],
    num_envs: Annotated[
        str, typer.Option(help="Numbers of games, separated by commas.")
    ] = ",".join(map(str, COUNTS)),
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each engine.")
    ] = 0.2,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each engine.")] = 7,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure Pong in plain Python, NumPy, numba and CUDA, and in ALE.

    agym's games update their grids in place. ALE's single environment returns colour pictures of
    210 × 160, its batches four grey ones of 84 × 84; both skip 4 frames.
    """
    check_plot(plot)
    check_writable(json, plot)
    if game not in GAMES:
        raise UsageError(f"{game!r} is not a game of agym's: take {' or '.join(GAMES)}")
    report = run_pong(game, parse_counts(num_envs), Settings(seconds, repeats))
    deliver(show_pong(report), report.to_json(), json)
    if plot is not None:
        save_pong_plot(report, plot)


def run_pong(game: str, counts: Sequence[int], settings: Settings) -> Report:
    """Measure all engines, with progress on stderr that is redrawn only between slices."""
    results = []
    with progress_bar(len(counts)) as bar:
        for count in counts:
            with bar.part(f"{count:,} games") as announce:
                results.append(measure(Workload(game, count), settings, announce, PLAYERS))
    return Report(describe_machine(), settings, tuple(results), targets=judge_pong(results))


def judge_pong(workloads: Sequence[WorkloadResult]) -> tuple[Verdict, ...]:
    """Compare results with the targets for their number of games."""
    verdicts = []
    for work in workloads:
        for target in TARGETS:
            if target.num_envs != work.num_envs:
                continue
            text = f"{work.work}: {target.system.name}"
            if isinstance(target, Factor):
                ratio = work.ratio(target.system.name, target.against.name)
                text = f"{text} against {target.against.name}"
                verdicts.append(Verdict.on_ratio(text, target.factor, ratio))
            else:
                row = work.row(target.system.name)
                cost = None if row is None else 1e6 / row.rate
                text = f"{text}, per step and game"
                verdicts.append(Verdict.on_limit(text, target.microseconds, cost, "µs"))
    return tuple(verdicts)


def show_pong(report: Report) -> RenderableType:
    """Return a table with a line per number of games and a column per engine."""
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
        table.add_row(f"{work.num_envs:,}", *cells)
    return table
