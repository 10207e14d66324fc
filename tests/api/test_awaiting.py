"""Dispatched now, awaited whenever and however; cancelling an await loses nothing."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import agym
from tests.support.envs.gated_envs import Gates, gated
from tests.support.patience import patience


async def test_steps_are_dispatched_before_the_await(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([1, 0, 1])
        assert not pending.done()
        gates.open(0)  # waits until environment 0 has its action, and nothing was awaited yet
        gates.open(2)
        result = await pending
        assert pending.done()
        assert result.observations[:, 2].tolist() == [1, 0, 1]


async def test_calls_are_dispatched_before_the_await(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.call("wait")
        for i in range(3):
            gates.open(i, f"word {i}")
        assert await pending == ["word 0", "word 1", "word 2"]


async def test_late_await(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([2, 3, 4])
        while not pending.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert (await pending).observations[:, 2].tolist() == [2, 3, 4]


async def test_await_after_other_operations(gates: Gates) -> None:
    async with gated(gates) as envs:
        first = envs.step([2, 3, 4])
        await envs.render()
        second = envs.step([5, 6, 7])
        await envs.reset()
        assert (await second).observations[:, 2].tolist() == [5, 6, 7]
        assert (await first).observations[:, 2].tolist() == [2, 3, 4]


async def test_awaiting_twice(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([2, 3, 4])
        first = await pending
        second = await pending
        assert first.observations.tolist() == second.observations.tolist()


async def test_awaiting_an_error_twice(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.call("no_such_method")
        for _ in range(2):
            with pytest.raises(ExceptionGroup) as caught:
                await pending
            assert {type(error) for error in caught.value.exceptions} == {agym.EnvError}


async def test_awaited_by_two_tasks_at_once(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([1, 2, 3])

        async def wait() -> Any:
            return await pending

        tasks = [
            asyncio.create_task(wait()),
            asyncio.create_task(wait()),
            asyncio.ensure_future(pending),
        ]
        await asyncio.sleep(0)
        gates.open(0)
        for result in await asyncio.gather(*tasks):
            assert result.observations[:, 2].tolist() == [1, 2, 3]


async def test_two_tasks_made_of_one_pending(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([1, 2, 3])
        tasks = [asyncio.create_task(pending), asyncio.create_task(pending)]
        await asyncio.sleep(0)
        gates.open(0)
        for result in await asyncio.gather(*tasks):
            assert result.observations[:, 2].tolist() == [1, 2, 3]


async def test_gather(gates: Gates) -> None:
    async with gated(gates) as envs:
        step, frames, gravity = await asyncio.gather(
            envs.step([2, 3, 4]), envs.render(), envs.get_attr("gravity")
        )
        assert step.observations[:, 2].tolist() == [2, 3, 4]
        assert frames == ["1:1"] * 3
        assert gravity == [9.8] * 3


async def test_task_group(gates: Gates) -> None:
    async with gated(gates) as envs:
        async with asyncio.TaskGroup() as group:
            step = group.create_task(envs.step([2, 3, 4]))
            frames = group.create_task(envs.render())
        assert step.result().observations[:, 2].tolist() == [2, 3, 4]
        assert frames.result() == ["1:1"] * 3


async def test_wait_for(gates: Gates) -> None:
    async with gated(gates) as envs:
        result = await asyncio.wait_for(envs.step([2, 3, 4]), timeout=patience(6))
        assert result.observations[:, 2].tolist() == [2, 3, 4]
        pending = envs.step([1, 5, 6])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pending, timeout=0.01)
        gates.open(0)
        assert (await pending).observations[:, 2].tolist() == [1, 5, 6]


async def test_wait_for_again(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([1, 5, 6])
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pending, timeout=0.01)
        gates.open(0)
        for _ in range(2):
            result = await asyncio.wait_for(pending, timeout=patience(6))
            assert result.observations[:, 2].tolist() == [1, 5, 6]


async def test_timeout_block(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([0, 0, 1])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await pending
        gates.open(2)
        async with asyncio.timeout(patience(6)):
            assert (await pending).observations[:, 1].tolist() == [1, 1, 1]


async def test_a_cancelled_await_loses_no_step(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([1, 2, 3])

        async def wait() -> None:
            await pending

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(agym.BusyError):
            envs.step([7, 7, 7])
        gates.open(0)
        assert (await pending).observations[:, 1:].tolist() == [[1, 1], [1, 2], [1, 3]]
        assert (await envs.step([4, 5, 6])).observations[:, 1:].tolist() == [[2, 4], [2, 5], [2, 6]]


async def test_an_abandoned_step_is_given_to_no_later_call(gates: Gates) -> None:
    async with gated(gates) as envs:
        waiting = asyncio.create_task(envs.step([1, 2, 3]))
        await asyncio.sleep(0)
        waiting.cancel()
        del waiting
        gates.open(0)
        assert await envs.render() == ["1:1"] * 3  # behind the step: now it has ended
        result = await envs.step([4, 5, 6])
        assert result.observations[:, 1:].tolist() == [[2, 4], [2, 5], [2, 6]]
        assert [info["action"] for info in result.infos] == [4, 5, 6]


async def test_a_step_that_nobody_awaits(gates: Gates) -> None:
    async with gated(gates) as envs:
        envs.step([2, 2, 2])
        gc.collect()  # and nothing warns of a coroutine that was never awaited
        assert await envs.render() == ["1:1"] * 3
