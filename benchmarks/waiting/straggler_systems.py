"""Stragglers: the compared systems, and why the comparison is fair.

A step takes the base time, and with a small chance many times as long. Three systems::

    no straggler   the same environments without that chance, all stepped at once
    barrier        await envs.step(actions): each round waits for the slowest
    first half     recv(n // 2), and send to exactly those

The baseline "no straggler" takes the base time, which is the median of the others' steps, not the
mean. This is the stricter choice: no runner can recover the share of the environments' time that
slow steps take, ``1 - 1 / (1 + chance * (times - 1))``, and it counts against the runner. A note
below the table shows the best possible ratio. With the defaults, that share is small (4%), but more
than a quarter of the rounds of 64 environments have a slow step, and take ten times as long. The
base time is constant: varying times would also slow the barrier without stragglers, and improve the
ratio.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from agym import AsyncEnvs, make_async
from benchmarks.measuring.interleave import RUN_IN, in_turns
from benchmarks.measuring.progress import Announce
from benchmarks.measuring.waiting_envs import StragglingEnv
from benchmarks.reports.comparison import Compared

NO_STRAGGLER, BARRIER, FIRST_HALF = "no straggler", "barrier", "first half"


@dataclass(frozen=True)
class StragglerWorkload:
    """The environments and the durations of their steps.

    Attributes:
        num_envs: Number of environments.
        delay: Base time of a step, in seconds.
        chance: Share of slow steps.
        times: How many times as long slow steps take.
    """

    num_envs: int = 64
    delay: float = 0.02
    chance: float = 0.005
    times: float = 10.0

    @property
    def best(self) -> float:
        """Share of the throughput that remains if no environment ever waits for another."""
        return 1 / (1 + self.chance * (self.times - 1))


async def measure_stragglers(
    workload: StragglerWorkload, seconds: float, repeats: int, announce: Announce
) -> tuple[Compared, ...]:
    """Measure the three systems in turns, in steps per second, with their ideals."""
    announce("making environments")
    rates: dict[str, list[float]] = {name: [] for name in RUNS}
    async with AsyncExitStack() as stack:
        systems = {}
        for name in RUNS:
            chance = 0.0 if name == NO_STRAGGLER else workload.chance
            env: Callable[[], Any] = partial(StragglingEnv, workload.delay, chance, workload.times)
            envs = make_async(env, workload.num_envs, backend="asyncio")
            systems[name] = await stack.enter_async_context(envs)
            await envs.reset(seed=0)
        for turn, name in in_turns(list(RUNS), repeats):
            announce(f"{turn + 1}/{repeats} {name}")
            rates[name].append(await RUNS[name](systems[name], seconds))
    ideals = tuple(rates[NO_STRAGGLER])
    return tuple(
        Compared(name, tuple(rates[name]), () if name == NO_STRAGGLER else ideals) for name in RUNS
    )


async def _wait_for_all(envs: AsyncEnvs, seconds: float) -> float:
    """Step for ``seconds`` after a warm-up; return steps per second."""
    actions = np.zeros(envs.num_envs, np.int64)
    for span in (seconds * RUN_IN, seconds):
        rounds, elapsed, started = 0, 0.0, time.perf_counter()
        while elapsed < span:
            await envs.step(actions)
            rounds += 1
            elapsed = time.perf_counter() - started
    return rounds * envs.num_envs / elapsed


async def _wait_for_half(envs: AsyncEnvs, seconds: float) -> float:
    """Do the same, waiting for half of the environments while the others are stepping."""
    actions = np.zeros(envs.num_envs, np.int64)
    envs.send(actions)
    for span in (seconds * RUN_IN, seconds):
        steps, elapsed, started = 0, 0.0, time.perf_counter()
        while elapsed < span:
            batch = await envs.recv(envs.num_envs // 2)
            envs.send(actions[: len(batch.env_ids)], env_ids=batch.env_ids)
            steps += len(batch.env_ids)
            elapsed = time.perf_counter() - started
    await envs.recv(envs.num_envs)  # nothing is left in flight for the next slice
    return steps / elapsed


RUNS: dict[str, Callable[[AsyncEnvs, float], Coroutine[Any, Any, float]]] = {
    NO_STRAGGLER: _wait_for_all,
    BARRIER: _wait_for_all,
    FIRST_HALF: _wait_for_half,
}
