"""``overlap``: a backward pass while the environments step.

::

    step alone            [ step     ]
    backward alone                    [ backward ]
    one after the other   [ step     ][ backward ]
    overlapped            [ step     ]
                          [ backward ]             ideal: the longer of the two

The environments run in one worker process, and torch has one thread, so each has a core. Within a
repetition the four kinds take turns at every round, and their means count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from statistics import mean, median
from typing import Annotated, Any

import typer

from agym import AsyncEnvs, make_async
from agym.core._system.extras import how_to_get, installed
from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import Announce, progress_bar
from benchmarks.measuring.workloads import Workload, parse_work, sample_actions
from benchmarks.reports.comparison import Compared, Comparison, show_comparison
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict
from benchmarks.waiting.backward import backward_pass

EXAMPLES = """Examples:

python -m benchmarks overlap

python -m benchmarks overlap CartPole-v1:1024 --repeats 5 --json result.json
"""

WORKLOAD, FACTOR = Workload("HumanoidStandup-v5", 16), 1.05

STEP, BACKWARD = "step alone", "backward alone"
ONE_BY_ONE, OVERLAPPED = "one after the other", "overlapped"
PAIRS = (ONE_BY_ONE, OVERLAPPED)
KINDS = (STEP, BACKWARD, *PAIRS)

# Unmeasured rounds of stepping; the second half of them determines the time of a step.
RUN_IN_ROUNDS = 50


def overlap(
    work: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="ID:N for N environments.")
    ] = f"{WORKLOAD.env_id}:{WORKLOAD.num_envs}",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each kind per repetition.")] = 25,
    repeats: Annotated[int, typer.Option(min=1, help="Number of repetitions.")] = 9,
    json: JsonFile = None,
) -> None:
    """Measure a step of all environments and a backward pass in torch, overlapped.

    The backward pass is sized to take as long as the step.
    """
    check_writable(json)
    chosen = parse_work(work)
    missing = chosen.missing() or (None if installed("torch") else how_to_get("torch", "sb3"))
    rows: tuple[Compared, ...] = ()
    if missing is None:
        with progress_bar(1) as bar, bar.part(chosen.name) as announce, new_runner() as runner:
            rows = runner.run(measure_overlap(chosen, rounds, repeats, announce))
    targets = []
    if chosen == WORKLOAD:
        ratio = rows[-1].ratio if rows else None
        target = f"{chosen.name}: the pair overlapped against the longer of the two"
        targets.append(Verdict.on_ratio(target, FACTOR, ratio, at_most=True))
    comparison = Comparison(
        f"{chosen.name} and a backward pass: median of {repeats} × {rounds} rounds",
        "ms",
        describe_machine(),
        {"work": work, "rounds": rounds, "repeats": repeats},
        rows,
        () if missing is None else (f"{chosen.name}: {missing}",),
        tuple(targets),
    )
    deliver(show_comparison(comparison), comparison.to_json(), json)


async def measure_overlap(
    work: Workload, rounds: int, repeats: int, announce: Announce
) -> tuple[Compared, ...]:
    """Measure the four kinds in turns, in milliseconds, with ideals for both pairs."""
    announce("making environments")
    actions = cycle(sample_actions(work).batches)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    ideals: list[float] = []
    async with make_async(work.factory, work.num_envs, backend="process", workers=1) as envs:
        await envs.reset(seed=0)
        seconds = [await _run(STEP, envs, next(actions), _nothing) for _ in range(RUN_IN_ROUNDS)]
        announce("sizing the backward pass")
        with backward_pass(median(seconds[RUN_IN_ROUNDS // 2 :])) as backward:
            for i in range(repeats):
                announce(f"{i + 1}/{repeats}")
                taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
                for _, kind in in_turns(KINDS, rounds):
                    taken[kind].append(await _run(kind, envs, next(actions), backward))
                for kind in KINDS:
                    times[kind].append(1000 * mean(taken[kind]))
                ideals.append(max(times[STEP][-1], times[BACKWARD][-1]))
    return tuple(
        Compared(kind, tuple(times[kind]), tuple(ideals) if kind in PAIRS else ()) for kind in KINDS
    )


def _nothing() -> None:
    """Stand in for the backward pass before it exists."""


async def _run(kind: str, envs: AsyncEnvs, actions: Any, backward: Callable[[], None]) -> float:
    """Run one round of a kind; return seconds."""
    started = time.perf_counter()
    if kind == STEP:
        await envs.step(actions)
    elif kind == BACKWARD:
        backward()
    elif kind == ONE_BY_ONE:
        await envs.step(actions)
        backward()
    else:
        pending = envs.step(actions)
        backward()
        await pending
    return time.perf_counter() - started
