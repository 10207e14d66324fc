"""``stats()``: what was waited for, how late the event loop was, and what steps cost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

import agym
from agym.backends import Asyncio, Process
from tests.support.drivers import SETUPS, Setup, each_mode, played
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.faulty_envs import Informs
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Result, Tally
from tests.support.envs.vector_envs import Tally as TallyVector
from tests.support.scenarios import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over

ONE_WORKER = Process(workers=1, max_concurrency=1)


class Costs(Tally):
    """A reset costs 100; a step its number in the episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed)
        return observation, {**info, "cost": 100}

    def step(self, action: Any) -> Result:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "cost": np.float32(self.now)}


class AsyncCosts(AsyncTally):
    def __init__(self) -> None:
        super().__init__(Costs)


class Slow(AsyncTally):
    SECONDS = 0.02

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        await asyncio.sleep(self.SECONDS)
        return await super().reset(seed=seed)


# Seven steps of episodes of three; under next-step autoreset one of them resets.
SPENT = {"next_step": 200 + 6 + 6, "same_step": 300 + 6 + 6 + 1, "disabled": 100 + 6}


@over(SERIAL, THREAD, PROCESS, ASYNCIO, COROUTINES)
@each_mode
@pytest.mark.parametrize("infos", ["all", "episode", "none"])
def test_costs_are_summed_over_steps_and_resets(setup: Setup, mode: str, infos: str) -> None:
    kind: Any = AsyncCosts if setup in (ASYNCIO, COROUTINES) else Costs
    with played("sync", kind, 3, autoreset=mode, infos=infos, **setup.options) as envs:
        envs.reset()
        for _ in range(7):
            envs.step([1, 1, 1])
        stats = envs.stats()
    assert [env.cost for env in stats.envs] == [SPENT[mode]] * 3
    assert stats.cost == 3 * SPENT[mode]
    assert f"cost: {stats.cost:.6g}" in str(stats)


def test_single_environments_have_costs_of_their_own() -> None:
    with agym.make(Costs, 3, backend="process", workers=1) as envs:
        envs.reset()
        envs.step([1, 1], env_ids=[0, 2])
        assert [env.cost for env in envs.stats().envs] == [101, 100, 101]


@pytest.mark.parametrize(
    "cost", [None, "much", float("nan"), float("inf"), [1.0], np.ones(2), {"usd": 1}]
)
def test_what_is_no_number_costs_nothing(cost: Any) -> None:
    with played("sync", lambda: Informs([{"cost": cost}]), 2, backend="serial") as envs:
        envs.reset()
        envs.step([1, 1])
        assert envs.stats().cost == 0
        assert "cost" not in str(envs.stats())


def test_numbers_of_arrays_count() -> None:
    infos = [{"cost": np.array(0.5)}, {"cost": np.int64(2)}, {"cost": True}]
    with played("sync", lambda: Informs(infos), 1, backend="serial") as envs:
        envs.reset()
        for _ in infos:
            envs.step([1])
        assert envs.stats().cost == 3.5


def test_costs_of_a_program_of_all_environments() -> None:
    class Charges(TallyVector):
        def step(self, actions: Any) -> Any:
            *rest, info = super().step(actions)
            return *rest, {**info, "cost": np.arange(3), "_cost": np.ones(3, bool)}

    with agym.make(Charges, 3, backend="vector") as envs:
        envs.reset()
        envs.step([1, 1, 1])
        envs.step([1, 1, 1])
        assert [env.cost for env in envs.stats().envs] == [0, 2, 4]


def test_a_new_worker_goes_on_with_the_costs() -> None:
    with played("sync", Costs, 2, on_fault="restart", **PROCESS.options) as envs:
        envs.reset()
        with agym.chaos(envs.envs, kill=1.0):
            envs.step([1, 1])
        spent = envs.stats().cost
        envs.reset()
        assert envs.stats().cost == spent + 200


@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_wait_for_environments_counts(api: str, gates: Gates) -> None:
    with played(api, gates.factories, backend="thread", output="array") as envs:
        envs.reset()
        before = envs.stats().waited.environments
        envs.send([1, 0, 0])
        envs.recv(min_envs=2)
        assert len(envs.recv(timeout=0.05).env_ids) == 0
        # An event loop's timer may ring a millisecond early.
        assert envs.stats().waited.environments - before >= 0.045
        envs.let(gates.paths[0])
        envs.recv()


def test_what_runs_in_the_callers_thread_is_not_waited_for() -> None:
    with agym.make(Tally, 2, backend="serial") as envs:
        envs.reset()
        envs.step([1, 1])
        assert envs.stats().waited == type(envs.stats().waited)()


@pytest.mark.parametrize("backend", [Asyncio(max_concurrency=1), ONE_WORKER])
def test_a_wait_for_a_turn_counts_for_each_environment(backend: Any) -> None:
    with played("sync", Slow, 3, backend=backend) as envs:
        envs.reset()
        assert envs.stats().waited.concurrency >= (1 + 2) * Slow.SECONDS


async def test_a_loop_that_is_blocked_is_late() -> None:
    async with agym.make_async(Slow, 2, backend="asyncio") as envs:
        await envs.reset()
        await envs.reset()
        await envs.reset()
        assert envs.stats().loop_lag is not None
        pending = envs.reset()
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251
        await pending
        await asyncio.sleep(0.05)
        lag = envs.stats().loop_lag
    assert lag is not None
    assert lag.longest >= 0.1
    assert lag.p50 <= lag.p99 <= lag.longest
    assert "event loop: median" in str(envs.stats())


@pytest.mark.parametrize("setup", SETUPS)
def test_without_a_loop_none_is_late(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 2, **setup) as envs:
        envs.reset()
        assert envs.stats().loop_lag is None
