"""Handles: one environment of many, each played by a coroutine of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import agym
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncRaises, AsyncTally, Keeper
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Tally

FORKED = {"backend": FORK, "workers": 2}
SETUPS = [
    pytest.param(Tally, Raises, {"backend": "serial"}, id="serial"),
    pytest.param(Tally, Raises, {"backend": "thread"}, id="thread"),
    pytest.param(Tally, Raises, FORKED, id="process"),
    pytest.param(partial(AsyncTally, Tally), AsyncRaises, {"backend": "asyncio"}, id="asyncio"),
    pytest.param(partial(AsyncTally, Tally), AsyncRaises, FORKED, id="process-coroutines"),
]
everywhere = pytest.mark.parametrize(("tally", "raises", "setup"), SETUPS)


@everywhere
async def test_every_method(tally: Any, raises: Any, setup: dict[str, Any]) -> None:
    async with agym.make_async(tally, 3, **setup, autoreset="disabled") as envs:
        env = envs[1]
        assert (len([*envs]), envs[-1].index, env.index) == (3, 2, 1)
        assert env.action_space == envs.single_action_space
        with pytest.raises(agym.ResetNeededError, match="environment 1"):
            env.step(0)
        observation, info = await env.reset(seed=7, options={"length": 2})
        assert observation.tolist() == [1, 0, -1]
        assert (info["seed"], info["options"]) == (7, {"length": 2})
        observation, reward, terminated, truncated, info = await env.step(5)
        assert observation.tolist() == [1, 1, 5]
        assert (reward, terminated, truncated) == (1.0625, False, False)
        assert [type(value) for value in (reward, terminated)] == [float, bool]
        assert info == {"now": 1, "action": 5}
        assert (await env.step(6))[2] is True
        assert await env.render() == "1:2"
        assert await env.call("add", 1, b=2) == 12.8
        assert await env.call("gravity") == 9.8
        assert await envs.get_attr("now") == [0, 2, 0]
        for index in (3, -4):
            with pytest.raises(IndexError):
                envs[index]


@everywhere
async def test_a_task_for_each(tally: Any, raises: Any, setup: dict[str, Any]) -> None:
    lengths = [3, 5, 2, 7]
    factories = [partial(tally, length=length) for length in lengths]
    played = {}

    async def play(env: agym.AsyncEnvHandle) -> None:
        await env.reset(seed=env.index)
        seen = []
        over = False
        while not over:
            observation, _, terminated, truncated, _ = await env.step(env.index)
            seen.append(observation.tolist())
            over = terminated or truncated
        played[env.index] = seen

    async with agym.make_async(factories, **setup, autoreset="disabled") as envs:
        async with asyncio.TaskGroup() as group:
            for env in envs:
                group.create_task(play(env))
        assert await envs.get_attr("now") == lengths
    assert played == {i: [[1, k + 1, i] for k in range(length)] for i, length in enumerate(lengths)}


@everywhere
async def test_single_calls_and_batches_keep_the_order(
    tally: Any, raises: Any, setup: dict[str, Any]
) -> None:
    async with agym.make_async(partial(tally, length=99), 3, **setup, autoreset="disabled") as envs:
        await envs.reset()
        pending: list[Any] = [
            envs[1].step(3),
            envs.render(),
            envs[1].reset(),
            envs[1].render(),
            envs.reset(),
            envs[0].step(4),
            envs.render(),
        ]
        results = [await one for one in pending]
        assert results[0][0].tolist() == [1, 1, 3]
        assert results[1] == ["1:0", "1:1", "1:0"]
        assert results[3] == "2:0"
        assert results[4].observations[:, 0].tolist() == [2, 3, 2]
        assert results[5][0].tolist() == [2, 1, 4]
        assert results[6] == ["2:1", "3:0", "2:0"]


async def test_a_single_step_and_a_batch_exclude_each_other() -> None:
    keeper = Keeper()
    async with agym.make_async(keeper.factories(3), backend="asyncio") as envs:
        await envs.reset()
        one = envs[1].step(3)
        with pytest.raises(agym.BusyError, match="environment 1"):
            envs.step([0, 0, 0])
        with pytest.raises(agym.BusyError, match="environment 1"):
            envs[1].step(0)
        others = envs.step([4, 5], env_ids=[0, 2])
        await keeper.let(0, 2)
        assert (await others).observations[:, 2].tolist() == [4, 5]
        assert not one.done()
        await keeper.let(1)
        assert (await one)[0].tolist() == [1, 1, 3]


@everywhere
async def test_closing_one(tally: Any, raises: Any, setup: dict[str, Any]) -> None:
    async with agym.make_async(tally, 3, **setup, autoreset="disabled") as envs:
        await envs.reset()
        step = envs.step([1, 2, 3])
        closing = envs[1].close()
        assert await closing is None
        assert await envs[1].close() is None  # twice is once
        assert (await step).observations[:, 2].tolist() == [1, 2, 3]  # before it was closed
        for use in (
            envs[1].reset,
            envs[1].render,
            partial(envs[1].step, 0),
            envs.reset,
            envs.render,
            partial(envs.step, [0, 0, 0]),
            partial(envs.send, [0], [1]),
        ):
            with pytest.raises(agym.ClosedError, match="environment 1"):
                use()
        assert (await envs.step([4, 5], env_ids=[0, 2])).observations[:, 1].tolist() == [2, 2]
        assert (await envs.reset(env_ids=[0])).observations[:, 0].tolist()[0] == 2
        envs.send([6], [2])
        assert (await envs.recv()).env_ids.tolist() == [2]
        assert await envs[2].render() == "1:3"


@everywhere
async def test_closing_one_that_raises(tally: Any, raises: Any, setup: dict[str, Any]) -> None:
    """It is told once, as what the caller asked for, and not again by closing the others."""
    factories = [tally, partial(raises, "close"), tally]
    async with agym.make_async(factories, **setup) as envs:
        with pytest.raises(agym.EnvError, match="environment 1") as caught:
            await envs[1].close()
        assert (caught.value.env_id, caught.value.operation) == (1, "close")


@pytest.mark.parametrize("held", [False, True], ids=["quick", "held"])
@pytest.mark.parametrize("single", [False, True], ids=["batch", "handle"])
async def test_cancelling_a_step_at_any_point(held: bool, single: bool) -> None:
    """Its result is dropped, the environments step once, and are free again afterwards."""
    keeper = Keeper()
    where = ("step",) if held else ()
    async with agym.make_async(
        keeper.factories(2, where=where), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        steps = 0
        for turns in range(12):
            pending: Any = envs[0].step(3) if single else envs.step([3, 4])
            steps += 1
            task = asyncio.ensure_future(pending)
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await task
            await keeper.let_all()
            await envs.render()  # behind it
            step = envs[0].step(5)
            steps += 1
            await keeper.let_all()
            assert (await step)[0].tolist() == [1, steps, 5]
        totals = [keeper.envs[i].total for i in range(2)]
        assert totals == [steps, 0 if single else steps // 2]
