"""What wakes up first in a worker is slow for a moment, which is not the environment's doing."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import agym
from agym.core.protocol.metrics.gauges import WAKING, Gauges, Meter, gauge_fields, percentiles
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Tally

PROCESS = {"backend": FORK, "workers": 2}
SETUPS = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": "thread", "workers": 2}, id="thread"),
    pytest.param(PROCESS, id="process"),
]
CartPole = partial(gymnasium.make, "CartPole-v1")


class Slow(Tally):
    """Takes five milliseconds for a step."""

    def __init__(self) -> None:
        super().__init__(length=10**6)

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass
        return super().step(action)


def work(envs: Any, steps: int = 300) -> agym.Stats:
    """Step, and do something else for a while in between, so that the workers fall asleep."""
    envs.reset()
    for _ in range(steps):
        envs.step([0] * len(envs))
        time.sleep(0.002)
    stats: agym.Stats = envs.stats()
    return stats


@pytest.mark.once
@pytest.mark.parametrize("setup", SETUPS)
def test_nobody_is_slow_because_it_was_woken(setup: dict[str, Any]) -> None:
    with agym.make(CartPole, 16, autoreset="next_step", **setup) as envs:
        stats = work(envs)
    assert stats.stragglers == ()
    assert "stragglers" not in str(stats)
    times = [env.p50 or 0.0 for env in stats.envs]
    assert times[0] < 4 * np.median(times)


@pytest.mark.once
@pytest.mark.parametrize("setup", [{"backend": "asyncio"}, PROCESS], ids=["asyncio", "process"])
def test_coroutines_are_not_either(setup: dict[str, Any]) -> None:
    with agym.make(partial(AsyncTally, length=10**6), 16, **setup) as envs:
        assert work(envs).stragglers == ()


def test_an_environment_alone_in_its_worker_is_not_either() -> None:
    with agym.make(CartPole, 3, autoreset="next_step", **PROCESS) as envs:
        assert work(envs).stragglers == ()


@pytest.mark.once
@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("slow", [0, 3])
def test_one_that_is_slow_is_found_wherever_it_is(setup: dict[str, Any], slow: int) -> None:
    factories: list[Any] = [Tally] * 4
    factories[slow] = Slow
    with agym.make(factories, **setup) as envs:
        assert work(envs, 100).stragglers == (slow,)


def meter() -> tuple[Gauges, Meter]:
    gauges = Gauges(
        {name: np.zeros(shape, dtype) for name, (dtype, shape) in gauge_fields(3).items()}
    )
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
