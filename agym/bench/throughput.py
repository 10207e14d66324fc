"""``agym bench throughput``: steps per second of agym and of other runners, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from agym.bench.aims import judge
from agym.bench.extras import require
from agym.bench.machine import describe_machine
from agym.bench.measure import measure
from agym.bench.output import JsonFile, check_writable, deliver
from agym.bench.plot import save_plot
from agym.bench.progress import progress_bar
from agym.bench.report import show
from agym.bench.results import Report, Settings, StartupResult, WorkResult
from agym.bench.startup import STARTUP_WORK, measure_startup
from agym.bench.works import WORKS, Work, parse_work

# What to write in place of a work for the start-up.
STARTUP = "start-up"

EXAMPLES = f"""Examples:

agym bench throughput

agym bench throughput CartPole-v1:8 ALE/Pong-v5:8 --repeats 9

agym bench throughput {STARTUP}

agym bench throughput --json result.json --plot result.png
"""


def throughput(
    works: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORK",
            help=f"ID:N for N environments, or {STARTUP}; by default all that agym has aims for.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Length of one slice of one system.")
    ] = Settings.seconds,
    repeats: Annotated[int, typer.Option(min=1, help="Slices of each system.")] = Settings.repeats,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    json: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="File for a PNG chart.")] = None,
) -> None:
    """Measure steps per second of agym and of other runners, in turns within one run.

    The bare environment is a plain loop over one; times the workers it is the bound.
    All systems get the same actions.
    """
    if plot is not None:
        require("matplotlib", "bench")
    check_writable(json, plot)
    chosen = [parse_work(text) for text in works if text != STARTUP] if works else WORKS
    wants_startup = not works or STARTUP in works
    report = run(chosen, Settings(seconds, repeats, workers), wants_startup=wants_startup)
    deliver(show(report), report.to_json(), json)
    if plot is not None:
        save_plot(report, plot)


def run(works: Sequence[Work], settings: Settings, *, wants_startup: bool) -> Report:
    """Measure, with progress on stderr that is drawn only between two slices."""
    results: list[WorkResult] = []
    startup: StartupResult | None = None
    with progress_bar(len(works) + wants_startup) as bar:
        if wants_startup:
            with bar.part(STARTUP) as tell:
                tell(f"{STARTUP_WORK.name}, {settings.workers} workers")
                startup = measure_startup(STARTUP_WORK, settings.workers, settings.repeats)
        for work in works:
            with bar.part(work.name) as tell:
                results.append(measure(work, settings, tell))
    return Report(describe_machine(), settings, tuple(results), startup, judge(results, startup))
