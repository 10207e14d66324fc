"""``grid``: agym's own choice against every fixed choice and every peer, cell by cell.

A cell is an environment and a number of it. In each cell, all systems take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from agym.errors import UsageError
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import Undecided, measure
from benchmarks.measuring.neighbours import ONE_LOOP, QUIET
from benchmarks.measuring.options import Repeats, Seconds
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.workloads import Workload, check_work
from benchmarks.reports.count_plot import save_count_plot
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import Report, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import disturbance, machine_line
from benchmarks.systems.base import System
from benchmarks.systems.runners import AgymOther
from benchmarks.throughput.cells import SYSTEMS, Best, Cell, judge_cells, undecided

EXAMPLES = """Examples:

python -m benchmarks grid

python -m benchmarks grid CartPole-v1 ALE/Pong-v5 --num-envs 1,8

python -m benchmarks grid Waiting1ms-v0 --num-envs 64 --json result.json --plot result.png

python -m benchmarks grid Acrobot-v1 --busy

python -m benchmarks grid --against ../another-checkout
"""

# From a microsecond to a millisecond per step; with small and large observations; with infos
# (Informing, HumanoidStandup); one that waits instead of computing.
ENVS = (
    "CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1", "Blackjack-v1", "FrozenLake-v1",
    "ALE/Pong-v5", "ALE/Breakout-v5", "HalfCheetah-v5", "HumanoidStandup-v5",
    "Informing-v0", "Waiting1ms-v0",
)  # fmt: skip
COUNTS = (1, 8, 64, 512)

# Slices are short because there are many.
SECONDS = 0.2

# Minutes per environment, of which each cell gets an equal part.
MINUTES = 2.0


def grid(
    envs: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV", help="Environments; the default twelve take half an hour."),
    ] = None,
    num_envs: Annotated[
        str, typer.Option(help="Numbers of environments, separated by commas.")
    ] = ",".join(map(str, COUNTS)),
    seconds: Seconds = SECONDS,
    repeats: Repeats = Settings.repeats,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    minutes: Annotated[
        float, typer.Option(min=0, help="Minutes per environment; more slices where they help.")
    ] = MINUTES,
    busy: Annotated[
        bool,
        typer.Option("--busy", help="Keep one core busy with another program.", show_default="off"),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            resolve_path=True,
            help="Another checkout of agym, whose choice is measured too.",
        ),
    ] = None,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure backend="auto" against every fixed choice and against other runners.

    The others are Gymnasium's SyncVectorEnv and AsyncVectorEnv, and Stable-Baselines3's DummyVecEnv
    and SubprocVecEnv. Runners with a process per environment are left out if there are too many
    environments. With --against, agym is also measured with the choice of another checkout's
    "auto": this compares the two rules, not the two versions of agym.
    """
    check_plot(plot)
    check_writable(json, plot)
    counts = parse_counts(num_envs)
    workloads = grid_workloads(envs or ENVS, counts)
    settings = Settings(seconds, repeats, workers, 60 * minutes / len(counts))
    with (ONE_LOOP if busy else QUIET).running():
        report = run_grid(workloads, settings, busy=busy, against=against, json=json)
    deliver(show_grid(report, busy=busy), report.to_json(), json)
    if plot is not None:
        save_count_plot(report.workloads, plot)


def parse_counts(text: str) -> tuple[int, ...]:
    """Parse numbers such as ``"1,8,64"``.

    Raises:
        UsageError: The text is not a list of positive numbers.
    """
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--num-envs {text!r} is not a list of numbers: write 1,8,64")
    return tuple(sorted({int(word) for word in words}))


def grid_workloads(envs: Sequence[str], counts: Sequence[int]) -> list[Workload]:
    """Return the workloads of all cells.

    Raises:
        UsageError: An environment does not exist.
    """
    return [check_work(Workload(env_id, count)) for env_id in envs for count in counts]


def run_grid(
    workloads: Sequence[Workload],
    settings: Settings,
    *,
    busy: bool = False,
    against: Path | None = None,
    json: Path | None = None,
) -> Report:
    """Measure all cells.

    Args:
        workloads: The cells.
        settings: Duration, repetitions, workers.
        busy: Whether another program keeps a core busy.
        against: Another checkout of agym, whose choice is measured, too.
        json: Where to write the report so far.
    """
    systems = SYSTEMS
    if against is not None:
        AgymOther.checkout = against
        systems = (*SYSTEMS, AgymOther)
    return run_workloads(
        workloads, settings, systems, lambda results, _: judge_cells(results, busy=busy),
        partial(undecided, busy=busy), json,
    )  # fmt: skip


def run_workloads(
    workloads: Sequence[Workload],
    settings: Settings,
    systems: Sequence[type[System]] | None = None,
    judge: Callable[
        [Sequence[WorkloadResult], Settings], Iterable[Verdict]
    ] = lambda results, _: (),
    undecided: Undecided | None = None,
    json: Path | None = None,
) -> Report:
    """Measure workloads, with progress on stderr that is redrawn only between slices.

    ``systems`` are by default those of each contest; ``judge`` compares results with targets. For
    ``undecided`` see :func:`measure`. After each workload, the report so far is written to
    ``json``, since a run may take an hour.
    """
    report = Report(describe_machine(), settings, ())
    with progress_bar(len(workloads)) as bar:
        for work in workloads:
            with bar.part(work.name) as announce:
                result = measure(work, settings, announce, systems, undecided)
            results = (*report.workloads, result)
            report = replace(report, workloads=results, targets=tuple(judge(results, settings)))
            if json is not None:
                json.write_text(report.to_json(), encoding="utf-8")
    return report


# ---------------------------------------------------------------- tables


def show_grid(report: Report, *, busy: bool = False) -> RenderableType:
    """Return a table with a line per cell."""
    settings = report.settings
    table = Table(
        title=f"agym auto, {settings.workers} workers for fixed choices: median of"
        f" {settings.repeats} × {settings.seconds:g} s or more in turns"
        + (", next to a busy program" if busy else ""),
        caption="\n".join(
            [machine_line(report.machine), *grouped_notes(report), *disturbance(report)]
        ),
        caption_justify="left",
    )
    table.add_column("cell", no_wrap=True)
    for name in ("µs/step", "cores", "steps/s"):
        table.add_column(name, justify="right")
    table.add_column("auto chose")
    others = (
        ["the other auto"] if any(work.row(AgymOther.name) for work in report.workloads) else []
    )
    for name in ("best fixed choice", "best peer", *others):
        table.add_column(name)
        table.add_column("auto ÷", justify="right")
    env_id = ""
    for work in report.workloads:
        if env_id not in ("", work.env_id):
            table.add_section()
        env_id, cell = work.env_id, Cell.of(work, busy=busy)
        if cell is None:
            table.add_row(work.work, "not measured")
            continue
        table.add_row(
            cell.work,
            f"{1e6 * cell.step_seconds:,.1f}",
            f"{cell.cores:.2f}",
            f"{cell.rate:,.0f}",
            cell.choice,
            *_best_cells(cell.fixed),
            *_best_cells(cell.peer),
            *(_best_cells(cell.other) if others else ()),
        )
    return table


def _best_cells(best: Best | None) -> tuple[str, str]:
    return ("–", "–") if best is None else (best.system, f"{best.ratio:.2f}")


def grouped_notes(report: Report) -> Iterator[str]:
    """Yield the notes, each with the cells that it concerns."""
    cells: dict[str, list[str]] = {}
    for work in report.workloads:
        for note in work.notes:
            cells.setdefault(note, []).append(work.work)
    for note, names in cells.items():
        where = "" if len(names) == len(report.workloads) else f" ({', '.join(names)})"
        yield f"{note}{where}."
