"""``render``: cost of rendering, of recording a timeline, and of the live page.

::

    step and render     [ step, draw ][ step, draw ] ...      against a loop, and a process per env
    finished pictures   [ copy ][ transport ]                 drawing takes no time
    render beside       [ 20 rounds of steps          ]       ideal: one after the other, with the
                          [ draw ]                            drawing on all cores at once
    timeline            [ steps, recorded ]                   against steps alone
    live page           [ steps, ten pictures a second ]      against no page
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.console import RenderableType
from rich.table import Table

from agym.core._system.extras import how_to_get, installed
from agym.core.engine.hooks import Hooks
from agym.core.protocol.metrics.spans import SpanLog, span_fields
from benchmarks.measuring.options import Repeats, Seconds
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Report, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import machine_line, notes
from benchmarks.throughput.grid import run_workloads
from benchmarks.waiting.render_systems import (
    BESIDE,
    FEW,
    RENDER_WORKLOADS,
    RENDERED,
    STILL,
    TRACED,
    WALL,
    WATCHED,
    DrawingAgym,
    DrawingAsync,
    DrawingLoop,
    OnlyDrawingAtOnce,
    Stepping,
    SteppingAndDrawing,
    StillAgym,
    Traced,
    Untraced,
    Unwatched,
    Watchable,
    Watched,
)

EXAMPLES = """Examples:

python -m benchmarks render

python -m benchmarks render --num-envs 8 --seconds 0.2 --json result.json
"""

# Number of checks whether a timeline is recorded, when the check is timed.
QUESTIONS = 20_000


def render(
    num_envs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of environments.", show_default="those of the targets"),
    ] = None,
    seconds: Seconds = 1.0,
    repeats: Repeats = 7,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    json: JsonFile = None,
) -> None:
    """Measure the cost of rendering environments, of timelines and of the live page."""
    check_writable(json)
    workloads = [
        work if num_envs is None else replace(work, num_envs=num_envs)
        for work in RENDER_WORKLOADS
        if work.render_mode is None or installed("pygame")
    ]
    report = run_workloads(
        workloads,
        Settings(seconds, repeats, workers),
        judge=lambda results, _: judge_render(results),
    )
    deliver(show_render(report), report.to_json(), json)


# ---------------------------------------------------------------- figures


def share_of_ideal(work: WorkloadResult) -> float | None:
    """Return the speed with one round in twenty rendered, relative to steps and drawing in turn."""
    steps, pictures = work.row(Stepping.name), work.row(OnlyDrawingAtOnce.name)
    both = work.row(SteppingAndDrawing.name)
    if steps is None or pictures is None or both is None:
        return None
    # Seconds per environment: twenty steps, one picture, and both.
    return median(
        (RENDERED / a + 1 / b) / (RENDERED / c)
        for a, b, c in zip(steps.rates, pictures.rates, both.rates, strict=True)
    )


def cost_while_off() -> float:
    """Return the microseconds per batch of checking for a timeline when none is recorded."""
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in span_fields(1).items()}
    log, hooks = SpanLog(arrays, 0), Hooks()
    started = time.perf_counter()
    for _ in range(QUESTIONS):
        if log.recording[0] or hooks.all:
            raise AssertionError
    return 1e6 * (time.perf_counter() - started) / QUESTIONS


def judge_render(workloads: Sequence[WorkloadResult]) -> Iterator[Verdict]:
    """Compare results with the targets for their number of environments."""
    for work in workloads:
        if work.work == WALL.name:
            text = f"{work.work}: {DrawingAgym.name} against a plain loop"
            yield Verdict.on_ratio(text, 1.85, work.ratio(DrawingAgym.name, DrawingLoop.name))
        elif work.work == FEW.name:
            text = f"{work.work}: {DrawingAgym.name} against {DrawingAsync.name}"
            yield Verdict.on_ratio(text, 1.3, work.ratio(DrawingAgym.name, DrawingAsync.name))
        elif work.work == STILL.name:
            row = work.row(StillAgym.name)
            text = "copy and transport of a picture of 600 × 400"
            yield Verdict.on_limit(text, 60.0, None if row is None else 1e6 / row.rate, "µs")
        elif work.work == BESIDE.name:
            text = f"{work.work}: steps with 1 round in {RENDERED} rendered, against the ideal"
            yield Verdict.on_ratio(text, 0.9, share_of_ideal(work))
        elif work.work == WATCHED.name:
            for kind, target in ((Watchable, 0.99), (Watched, 0.95)):
                text = f"{work.work}: {kind.name}, against {Unwatched.name}"
                yield Verdict.on_ratio(text, target, work.ratio(kind.name, Unwatched.name))
        elif work.work == TRACED.name:
            ratio = work.ratio(Untraced.name, Traced.name)
            text = f"{work.work}: a batch while it is recorded, against none"
            yield Verdict.on_ratio(text, 1.03, ratio, at_most=True)
            row = work.row(Untraced.name)
            if row is not None:
                share = cost_while_off() * row.rate / work.num_envs / 1e4
                text = f"{work.work}: checks for a timeline while none is recorded, of a batch"
                yield Verdict.on_limit(text, 0.5, share, "%")


# ---------------------------------------------------------------- tables


def show_render(report: Report) -> RenderableType:
    """Return a table with a line per system, then the targets."""
    settings = report.settings
    missing = () if installed("pygame") else (how_to_get("pygame", "render") + ".",)
    sums = filter(None, map(arithmetic, report.workloads))
    table = Table(
        title=f"Rendering, {settings.workers} workers: median of {settings.repeats} ×"
        f" {settings.seconds:g} s in turns",
        caption="\n".join([machine_line(report.machine), *missing, *notes(report), *sums]),
        caption_justify="left",
    )
    table.add_column("work", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for name in ("per second", "µs each", "spread", "÷ the first"):
        table.add_column(name, justify="right")
    for work in report.workloads:
        for i, row in enumerate(work.rows):
            table.add_row(
                work.work if i == 0 else "",
                row.system,
                f"{row.rate:,.0f}",
                f"{1e6 / row.rate:,.1f}",
                f"{row.spread:.0%}",
                f"{work.ratio(row.system, work.rows[0].system):.2f}",
            )
        table.add_section()
    return table


def arithmetic(work: WorkloadResult) -> str:
    """Return a sentence about how the ideal of rendering beside steps is computed."""
    share = share_of_ideal(work)
    if share is None:
        return ""
    steps, pictures, both = (
        1e3 * work.num_envs * count / work.row(kind.name).rate  # type: ignore[union-attr]
        for kind, count in (
            (Stepping, RENDERED),
            (OnlyDrawingAtOnce, 1),
            (SteppingAndDrawing, RENDERED),
        )
    )
    return (
        f"{work.work}: {RENDERED} rounds of steps take {steps:.1f} ms, drawing one round on all"
        f" cores at once {pictures:.1f} ms, together {steps + pictures:.1f} ms; measured"
        f" {both:.1f} ms, so {share:.2f} of the ideal (median over the repetitions)."
    )
