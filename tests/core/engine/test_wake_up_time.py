"""What wakes up first in a worker is slow for a moment, which is not the environment's doing."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import agym
from agym.core.engine.calls.traffic import stragglers_of
from agym.core.protocol.messages.failures import name_envs
from agym.core.protocol.metrics.gauges import WAKING, Gauges, Meter, percentiles
from agym.testing import AsyncScriptedEnv, ScriptedEnv, World
from tests.support.insides import gauges_of
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over

CartPole = partial(gymnasium.make, "CartPole-v1")


class Slow(ScriptedEnv):
    """Takes twenty milliseconds for each step, and leaves the GIL to others."""

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return super().step(action)


def work(world: World, factories: list[Any], steps: int = 300) -> agym.Stats:
    """Step, and do something else in between, so that the workers fall asleep."""
    with replace(world, autoreset="next_step").open_envs(factories) as envs:
        envs.reset()
        for _ in range(steps):
            envs.step([0] * len(factories))
            time.sleep(0.002)
        stats: agym.Stats = envs.stats()
    return stats


@pytest.mark.once
@pytest.mark.parametrize(
    ("world", "env", "count"),
    [
        *((world, CartPole, 16) for world in (SERIAL, THREAD, PROCESS)),
        *((world, AsyncScriptedEnv, 16) for world in (ASYNCIO, COROUTINES)),
        (PROCESS, CartPole, 3),  # one is alone in its worker
    ],
)
def test_no_environment_is_slow_because_it_was_woken(world: World, env: Any, count: int) -> None:
    stats = work(world, [env] * count)
    assert stats.stragglers == ()
    assert "stragglers" not in str(stats)
    if env is CartPole and count == 16:
        times = [env.p50 or 0.0 for env in stats.envs]
        assert times[0] < 4 * np.median(times)


@pytest.mark.once
@over(SERIAL, THREAD, PROCESS)
@pytest.mark.parametrize("slow", [0, 7])
def test_a_slow_environment_is_found_at_any_place(world: World, slow: int) -> None:
    """Within fifty steps, in which fast environments are timed two or three times."""
    factories: list[Any] = [ScriptedEnv] * 8
    factories[slow] = Slow
    stats = work(world, factories, 50)
    # On a busy machine, interruptions can make another one look slow too, but not half of them.
    assert slow in stats.stragglers
    assert f"stragglers: {name_envs(stats.stragglers)}" in str(stats)
    assert (stats.envs[slow].p50 or 0) > 0.018  # of a histogram


def test_only_slow_environments_are_stragglers() -> None:
    envs = [agym.EnvStats(i, 9, 1, 0.02 if i == 3 else 1e-5, None, 0) for i in range(8)]
    assert stragglers_of(envs, [range(8)]) == (3,)


def meter() -> tuple[Gauges, Meter]:
    gauges = gauges_of(3)
    return gauges, Meter(gauges, 0)


def p50s(gauges: Gauges) -> list[float | None]:
    return [row[0] for row in percentiles(gauges.arrays["times"], (0.5,))]


@pytest.mark.parametrize(
    ("measured", "idle", "charged"),
    [
        (100_000, 10**6, 10_000),  # waking explains all of it
        (100_000, 20_000, 80_000),  # ... not more than it was idle
        (100_000, 0, 100_000),
        (10**7, 10**9, 10**7 - WAKING),  # ... and not ten milliseconds
        (5_000, 10**6, 5_000),  # quicker than the others it stays
    ],
)
def test_what_is_charged(measured: int, idle: int, charged: int) -> None:
    gauges, one = meter()
    for _ in range(4):
        one.timed(1, 10_000)
    one.timed(0, measured, idle)
    first, *_, never = p50s(gauges)
    assert first == pytest.approx(charged / 1e9, rel=0.15)
    assert never is None


def test_with_nothing_to_compare_it_is_charged_as_it_is() -> None:
    gauges, one = meter()
    one.timed(0, 100_000, 10**6)
    assert p50s(gauges)[0] == pytest.approx(1e-4, rel=0.15)
