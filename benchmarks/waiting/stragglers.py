"""``stragglers``: the cost of a few slow steps when waiting for all environments, or for half."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import progress_bar
from benchmarks.reports.comparison import Comparison, show_comparison
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict
from benchmarks.waiting.straggler_systems import (
    FIRST_HALF,
    NO_STRAGGLER,
    StragglerWorkload,
    measure_stragglers,
)

EXAMPLES = """Examples:

python -m benchmarks stragglers

python -m benchmarks stragglers --chance 0.001 --json result.json
"""

# Required share of the throughput without stragglers.
FACTOR = 0.9


def stragglers(
    num_envs: Annotated[
        int, typer.Option(min=2, help="Number of environments.")
    ] = StragglerWorkload.num_envs,
    delay: Annotated[
        float, typer.Option(min=0.001, help="Seconds per step.")
    ] = StragglerWorkload.delay,
    chance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of slow steps.")
    ] = StragglerWorkload.chance,
    times: Annotated[
        float, typer.Option(min=1.0, help="How many times as long slow steps take.")
    ] = StragglerWorkload.times,
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each system.")
    ] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each system.")] = 5,
    json: JsonFile = None,
) -> None:
    """Measure steps per second with a few slow steps, waiting for all or for the first half.

    Environments are coroutine environments on one event loop.
    """
    check_writable(json)
    workload = StragglerWorkload(num_envs, delay, chance, times)
    with progress_bar(1) as bar, bar.part("stragglers") as announce, new_runner() as runner:
        rows = runner.run(measure_stragglers(workload, seconds, repeats, announce))
    targets = []
    if workload == StragglerWorkload():
        target = f"{FIRST_HALF} against {NO_STRAGGLER}"
        targets.append(Verdict.on_ratio(target, FACTOR, rows[-1].ratio))
    comparison = Comparison(
        f"{num_envs} environments, {chance:.2%} of steps take {1000 * delay * times:g} instead of"
        f" {1000 * delay:g} ms: median of {repeats} × {seconds:g} s in turns",
        "steps/s",
        describe_machine(),
        {**asdict(workload), "seconds": seconds, "repeats": repeats},
        rows,
        (f"The slow steps alone leave a ratio of {workload.best:.2f} at best",),
        tuple(targets),
    )
    deliver(show_comparison(comparison), comparison.to_json(), json)
