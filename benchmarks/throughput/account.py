"""``account``: the parts of a batch's time with ``backend="process"``, next to bare loops.

The parts, and how they are measured, are in :mod:`benchmarks.throughput.account_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.measuring.options import Repeats, Seconds
from benchmarks.measuring.workloads import Workload, check_work
from benchmarks.reports.account_plot import save_account_plot
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import Settings
from benchmarks.reports.tables import disturbance, machine_line
from benchmarks.throughput.account_parts import BARE_PART, Account, run_account

EXAMPLES = """Examples:

python -m benchmarks account Acrobot-v1 64

python -m benchmarks account CartPole-v1 64 --pin --repeats 15

python -m benchmarks account Acrobot-v1 64 --json result.json --plot result.png
"""

# A slice whose speed relative to bare loops is lower gets a sentence.
SLOW = 0.75


def account(
    env: Annotated[str, typer.Argument(metavar="ENV", help="The environment.")],
    num_envs: Annotated[int, typer.Argument(metavar="N", min=1, help="Number of environments.")],
    seconds: Seconds = 0.4,
    repeats: Repeats = 9,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    pin: Annotated[
        bool,
        typer.Option("--pin", help="Keep each worker on one core (Linux).", show_default="off"),
    ] = False,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Split the time of a batch with backend="process", next to bare loops in as many processes.

    Both run in turns. The parts of each slice add up to its batch time.

    bare: the time of the loops without agym, in all processes at once.
    host and cache: the rest of a worker's step; below zero if it was faster than the loops.
    waiting for a core: the worker was ready, but had no core (an upper bound).
    barrier: from the end of a worker until the last worker has finished.
    waking: from the post of a step until a worker starts it.
    transport: from the end of the last worker until the caller sees it.
    caller: from there to the next post: results, checks, actions, the loop.
    """
    check_plot(plot)
    check_writable(json, plot)
    work = check_work(Workload(env, num_envs))
    result = run_account(work, Settings(seconds, repeats, workers), pin=pin)
    deliver(show_account(result), result.to_json(), json)
    if plot is not None:
        save_account_plot(result, plot)


def show_account(account: Account) -> RenderableType:
    """Return a table with a line per slice and their medians, then the sentences."""
    report, settings, work = account.report, account.report.settings, account.report.workloads[0]
    pinned = ", pinned" if account.pin else ""
    notes = [f"{note}." for note in work.notes]
    table = Table(
        title=f"{work.work}, {settings.workers} workers{pinned}: µs per batch,"
        f" {settings.repeats} × {settings.seconds:g} s in turns",
        caption="\n".join([machine_line(report.machine), *notes, *disturbance(report)]),
        caption_justify="left",
    )
    for name in ("slice", "process ÷ bare", "batch", *account.parts):
        table.add_column(name, justify="right")
    for number, each in enumerate(account.slices, start=1):
        table.add_row(str(number), *_cells(each.ratio, each.timing.batch, each.parts))
    table.add_section()
    table.add_row("median", *_cells(account.ratio, account.batch, account.parts), style="bold")
    return Group(table, *sentences(account))


def _cells(ratio: float, batch: float, parts: Mapping[str, float]) -> list[str]:
    return [f"{ratio:.2f}", *(f"{part:,.0f}" for part in (batch, *parts.values()))]


def sentences(account: Account) -> Iterator[str]:
    """Yield the largest parts of the gap: of each slow slice, then of the medians."""
    for number, each in enumerate(account.slices, start=1):
        if each.ratio < SLOW:
            yield f"Slice {number} at {each.ratio:.2f}: {largest(each.parts)}."
    yield (
        f"Median: process reaches {account.ratio:.2f} of bare loops; the largest parts of the gap"
        f" are {largest(account.parts)}."
    )
    yield (
        f"Of the barrier, {account.uneven:,.0f} µs are caused by the same workers in each batch:"
        " assigning environments by measured cost could save no more."
    )


def largest(parts: Mapping[str, float]) -> str:
    """Return the two largest parts beyond bare, in words."""
    gap = [(part, name) for name, part in parts.items() if name != BARE_PART]
    return " and ".join(f"{name} {part:,.0f} µs" for part, name in nlargest(2, gap))
