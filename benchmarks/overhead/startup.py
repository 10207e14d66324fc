"""``startup`` and ``memory``: cost of making many environments ready to step."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.workloads import Workload, parse_work
from benchmarks.overhead.measure_startup import measure_startup
from benchmarks.reports.comparison import Compared, Comparison, show_comparison
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Settings, Verdict

STARTUP_EXAMPLES = """Examples:

python -m benchmarks startup

python -m benchmarks startup ALE/Pong-v5:64 --workers 4
"""
MEMORY_EXAMPLES = """Examples:

python -m benchmarks memory

python -m benchmarks memory CartPole-v1:10000 --repeats 1
"""

WORKLOAD = Workload("CartPole-v1", 1000)
SECONDS_LIMIT, MEMORY_LIMIT = 2.5, 300.0

WorkArgument = Annotated[str, typer.Argument(metavar="WORKLOAD", help="ID:N for N environments.")]
Workers = Annotated[int, typer.Option(min=1, help="Worker processes.")]
Repeats = Annotated[int, typer.Option(min=1, help="Number of starts, each from a fresh process.")]
DEFAULT = f"{WORKLOAD.env_id}:{WORKLOAD.num_envs}"


def startup(
    work: WorkArgument = DEFAULT,
    workers: Workers = Settings.workers,
    repeats: Repeats = 5,
    json: JsonFile = None,
) -> None:
    """Measure the seconds until environments in worker processes are ready to step."""
    check_writable(json)
    comparison = run_startup(parse_work(work), workers, repeats)
    deliver(show_comparison(comparison), comparison.to_json(), json)


def memory(
    work: WorkArgument = DEFAULT,
    workers: Workers = Settings.workers,
    repeats: Repeats = 3,
    json: JsonFile = None,
) -> None:
    """Measure the memory of all processes together, once environments are ready to step.

    For comparison it also measures a single environment per worker process.
    """
    check_writable(json)
    comparison = run_memory(parse_work(work), workers, repeats)
    deliver(show_comparison(comparison), comparison.to_json(), json)


def run_startup(work: Workload, workers: int, repeats: int) -> Comparison:
    """Start environments and measure the time."""
    values: tuple[float, ...] = ()
    if (missing := work.missing()) is None:
        with progress_bar(1) as bar, bar.part("start-up") as announce:
            announce(work.name)
            values = measure_startup(work, workers, repeats).seconds
    rows = (Compared(work.name, values),) if values else ()
    return _compare(
        f"Start-up, {workers} workers, until ready to step", "s", work, workers, repeats, rows,
        SECONDS_LIMIT, missing,
    )  # fmt: skip


def run_memory(work: Workload, workers: int, repeats: int) -> Comparison:
    """Start environments and measure the memory."""
    rows: list[Compared] = []
    if (missing := work.missing()) is None:
        few = Workload(work.env_id, workers)
        both = [one for one in (few, work) if one is work or one != work]
        with progress_bar(len(both)) as bar:
            for one in both:
                with bar.part("memory") as announce:
                    announce(one.name)
                    taken = measure_startup(one, workers, repeats).memory
                rows.append(Compared(one.name, tuple(size / 1e6 for size in taken)))
    return _compare(
        f"Memory of all processes, {workers} workers", "MB", work, workers, repeats, tuple(rows),
        MEMORY_LIMIT, missing,
    )  # fmt: skip


def _compare(
    title: str,
    unit: str,
    work: Workload,
    workers: int,
    repeats: int,
    rows: tuple[Compared, ...],
    limit: float,
    missing: str | None,
) -> Comparison:
    targets: tuple[Verdict, ...] = ()
    if (work, workers) == (WORKLOAD, Settings.workers):
        measured = rows[-1].value if rows else None
        targets = (Verdict.on_limit(f"{title}: {work.name}", limit, measured, unit),)
    return Comparison(
        f"{title}: median of {repeats}", unit, describe_machine(),
        {"work": work.name, "workers": workers, "repeats": repeats}, rows,
        () if missing is None else (f"{work.name}: {missing}",), targets,
    )  # fmt: skip
