"""``stats()``: what was waited for, how late the event loop was, and what steps cost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import agym
from agym.backends import Asyncio, Process
from agym.testing import AsyncScriptedEnv, ScriptedEnv, World
from tests.support.drivers import each_api, each_mode
from tests.support.envs.scripted_envs import Telling
from tests.support.envs.vector_envs import Tally as TallyVector
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over


class Costs(ScriptedEnv):
    """A reset costs 100; a step costs its number in the episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed)
        return observation, {**info, "cost": 100}

    def step(self, action: Any) -> Any:
        *row, info = super().step(action)
        return *row, {**info, "cost": np.float32(self.now)}


class SlowReset(AsyncScriptedEnv):
    """Waits in each reset."""

    SECONDS = 0.02

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        await asyncio.sleep(self.SECONDS)
        return await super().reset(seed=seed)


# Seven steps of episodes of three; under next-step autoreset one of them resets.
SPENT = {"next_step": 200 + 6 + 6, "same_step": 300 + 6 + 6 + 1, "disabled": 100 + 6}


@over(SERIAL, THREAD, PROCESS, ASYNCIO, COROUTINES)
@each_mode
@pytest.mark.parametrize("infos", ["all", "episode", "none"])
def test_costs_are_summed_over_steps_and_resets(world: World, mode: Any, infos: str) -> None:
    world = replace(world, autoreset=mode)
    with world.open_envs(world.adapt(Costs), 3, infos=infos) as envs:
        envs.reset()
        for _ in range(7):
            envs.step([1, 1, 1])
        stats = envs.stats()
    assert [env.cost for env in stats.envs] == [SPENT[mode]] * 3
    assert stats.cost == 3 * SPENT[mode]
    assert f"cost: {stats.cost:.6g}" in str(stats)


def test_each_environment_has_a_cost_of_its_own() -> None:
    with PROCESS.open_envs(Costs, 3, workers=1) as envs:
        envs.reset()
        envs.step([1, 1], env_ids=[0, 2])
        assert [env.cost for env in envs.stats().envs] == [101, 100, 101]


@pytest.mark.parametrize(
    ("costs", "total"),
    [
        *(([cost], 0) for cost in (None, "much", float("nan"), float("inf"), [1.0], np.ones(2))),
        ([{"usd": 1}], 0),
        ([np.array(0.5), np.int64(2), True], 3.5),
    ],
)
def test_only_numbers_are_costs(costs: list[Any], total: float) -> None:
    infos = [{}, *({"cost": cost} for cost in costs)]
    with SERIAL.open_envs(lambda: Telling(infos, len(infos)), 1) as envs:
        envs.reset()
        for _ in costs:
            envs.step([1])
        assert envs.stats().cost == total
        assert ("cost" in str(envs.stats())) == bool(total)


def test_a_vector_environment_has_costs() -> None:
    class Charges(TallyVector):
        def step(self, actions: Any) -> Any:
            *rest, info = super().step(actions)
            return *rest, {**info, "cost": np.arange(3), "_cost": np.ones(3, bool)}

    with agym.make(Charges, 3, backend="vector") as envs:
        envs.reset()
        envs.step([1, 1, 1])
        envs.step([1, 1, 1])
        assert [env.cost for env in envs.stats().envs] == [0, 2, 4]


def test_a_new_worker_adds_to_the_costs() -> None:
    with PROCESS.open_envs(Costs, 2, on_fault="restart") as envs:
        envs.reset()
        with agym.chaos(envs.envs, kill=1.0):
            envs.step([1, 1])
        spent = envs.stats().cost
        envs.reset()
        assert envs.stats().cost == spent + 200


@each_api
def test_a_wait_for_environments_counts(api: Any) -> None:
    with replace(THREAD, api=api, workers=3).open(3) as envs:
        envs.reset()
        before = envs.stats().waited.environments
        envs.script.set(0, "step", "wait")
        envs.send([0, 0, 0])
        envs.recv(min_envs=2)
        assert len(envs.recv(timeout=0.05).env_ids) == 0
        # An event loop's timer may ring a millisecond early.
        assert envs.stats().waited.environments - before >= 0.045
        envs.open_gate(0)
        envs.recv()


def test_steps_in_the_callers_thread_are_not_waited_for() -> None:
    with SERIAL.open() as envs:
        envs.reset()
        envs.step([1] * 4)
        assert envs.stats().waited == type(envs.stats().waited)()


@pytest.mark.parametrize(
    "backend", [Asyncio(max_concurrency=1), Process(workers=1, max_concurrency=1)]
)
def test_a_wait_for_a_turn_counts_for_each_environment(backend: Any) -> None:
    with replace(ASYNCIO, backend=backend).open_envs(SlowReset, 3) as envs:
        envs.reset()
        assert envs.stats().waited.concurrency >= (1 + 2) * SlowReset.SECONDS


async def test_a_loop_that_is_blocked_is_late() -> None:
    async with agym.make_async(SlowReset, 2, backend="asyncio") as envs:
        await envs.reset()
        await envs.reset()
        await envs.reset()
        assert envs.stats().loop_lag is not None
        pending = asyncio.ensure_future(envs.reset())
        await asyncio.sleep(0)  # now it awaits the reset, which is when lateness is looked for
        time.sleep(0.2)  # noqa: ASYNC251
        await pending
        await asyncio.sleep(0.05)
        lag = envs.stats().loop_lag
    assert lag is not None
    assert lag.longest >= 0.1
    assert lag.p50 <= lag.p99 <= lag.longest
    assert "event loop: median" in str(envs.stats())


@over(SERIAL, PROCESS)
def test_without_a_loop_none_is_late(world: World) -> None:
    with world.open() as envs:
        envs.reset()
        assert envs.stats().loop_lag is None
