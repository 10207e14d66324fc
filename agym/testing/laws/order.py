"""Calls that overlap: operations of one environment keep their order, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from functools import partial
from typing import Any

import gymnasium.error
import pytest

from agym.errors import AgymErrorGroup, BusyError
from agym.testing.law import await_for, law, result_of, rows, steps_of
from agym.testing.worlds import World


@law("async", "disabled", "single")
def operations_of_one_environment_keep_their_order(world: World) -> None:
    """A step, a render, a reset and a render are dispatched before any is awaited."""
    with world.open(4) as envs:

        async def run(envs: Any) -> None:
            await envs.reset(seed=0)
            pending = [envs.step([0] * 4), envs.render(), envs.reset(seed=1), envs.render()]
            results = [await operation for operation in pending]
            assert results[1] == ["1:1"] * 4
            assert results[3] == ["2:0"] * 4
            pending = [
                envs[1].step(3), envs.render(), envs[1].reset(), envs[1].render(),
                envs.reset(), envs[0].step(4), envs.render([0, 1]),
            ]  # fmt: skip
            results = [await operation for operation in pending]
            assert results[0][0][1:].tolist() == [2, 1, 3]
            assert results[1] == ["2:0", "2:1", "2:0", "2:0"]
            assert results[3] == "3:0"
            assert results[4].observations[:, 1].tolist() == [3, 4, 3, 3]
            assert results[5][0][1:].tolist() == [3, 1, 4]
            assert results[6] == ["3:1", "4:0"]
            pending = [envs.set_attr("value", 5.0), envs.step([0] * 4), envs.call("add", 1.0)]
            assert [await operation for operation in pending][2] == [6.0] * 4

        envs.run(run(envs.envs))


@law("async", "single")
def results_may_be_awaited_in_any_order(world: World) -> None:
    """Each awaitable returns the result of its call."""
    with world.open(3, length=9) as envs:

        async def run(envs: Any) -> None:
            await envs.reset()
            singles = [envs[i].step(5 + i) for i in range(3)]
            rows = [(await singles[i])[0][2:].tolist() for i in (2, 0, 1)]
            assert rows == [[1, 7], [1, 5], [1, 6]]

        envs.run(run(envs.envs))


@law("async", "single")
def a_second_step_in_flight_is_refused(world: World) -> None:
    """It raises unless the first step has finished; no step is lost or run twice."""
    with world.open(3, length=10**6) as envs:

        async def run(envs: Any) -> int:
            await envs.reset()
            taken = 0
            for _ in range(20):
                first = envs.step([0, 0, 0])
                taken += 1
                with contextlib.suppress(BusyError):
                    await envs.step([0, 0, 0])
                    taken += 1
                await first
            return taken

        taken = envs.run(run(envs.envs))
        assert steps_of(envs) == [taken] * 3


@law("async", "concurrent")
def a_step_in_flight_is_refused_to_others(world: World) -> None:
    """A step of a handle and a step of all exclude each other; an earlier call frees neither.

    During the step, other tasks run, and other environments' steps finish.
    """
    with world.with_options(workers=3).open(3, length=9) as envs:
        envs.reset()
        envs.script.set(1, "step", "wait")

        async def run(player: Any) -> None:
            envs = player.envs
            frames = envs.render()
            one = envs[1].step(3)
            assert await frames == ["1:0"] * 3
            for dispatch in (partial(envs.step, [0, 0, 0]), partial(envs[1].step, 0)):
                with pytest.raises(BusyError, match="environment 1") as caught:
                    dispatch()
                assert isinstance(caught.value, gymnasium.error.AlreadyPendingCallError)
                assert caught.value.name == "step"
            others = await envs.step([4, 5], env_ids=[0, 2])
            assert others.observations[:, 2:].tolist() == [[1, 4], [1, 5]]
            await asyncio.to_thread(player.script.open, 1)
            assert (await one)[0][1:].tolist() == [1, 1, 3]

        envs.run(run(envs))


@law("async", "single")
def a_task_may_play_each_environment(world: World) -> None:
    """Tasks that each use one handle do not disturb each other."""
    with world.open(4, length=99) as envs:
        lengths = [3, 5, 2, 7]

        async def play(env: Any) -> list[list[float]]:
            _, info = await env.reset(options={"length": lengths[env.index]})
            seen, over = [], False
            while not over:
                observation, _, over, _, info = await env.step(env.index)
                seen.append(info.get("final_obs", observation)[2:].tolist())
            return seen

        async def run(envs: Any) -> list[Any]:
            return await asyncio.gather(*map(play, envs))

        for i, seen in enumerate(envs.run(run(envs.envs))):
            assert seen == [[k + 1, i] for k in range(lengths[i])]


@law("async", "single")
def a_cancelled_wait_does_not_cancel_the_step(world: World) -> None:
    """Whenever it is cancelled, the result is dropped, and never returned by a later call."""
    with world.open(2, length=99) as envs:
        envs.reset()
        for turns in range(8):
            if "concurrent" in world.has:
                envs.script.set(0, "step", "wait")

            async def run(envs: Any, turns: int = turns) -> None:
                step = envs.step([5, 5]) if turns % 2 else envs[0].step(5)
                await await_for(step, 1 + turns)

            envs.run(run(envs.envs))
            if "concurrent" in world.has:
                envs.open_gate(0)
            envs.render()
            result = envs.step([6, 6])
            assert result.observations[0, 2:].tolist() == [2 * turns + 2, 6]
            assert result.observations[1, 2:].tolist() == [turns + 1 + (turns + 1) // 2, 6]


@law("async", "single")
def a_cancelled_receipt_loses_nothing(world: World) -> None:
    """Whenever it is cancelled, later receipts return the results that had finished."""
    with world.open(3, length=99) as envs:
        envs.reset()
        for turns in range(8):
            if "concurrent" in world.has:
                envs.script.set(0, "step", "wait")
            envs.send([5, 6, 7])

            async def run(envs: Any, turns: int = turns) -> list[Any]:
                batches = [
                    await await_for(envs.recv(min_envs=2, max_envs=2), 1 + turns),
                    await await_for(anext(envs.as_completed(max_envs=1), None), 1 + turns),
                ]
                return [row for batch in batches if batch is not None for row in rows(batch)]

            received = envs.run(run(envs.envs))
            if "concurrent" in world.has:
                envs.open_gate(0)
            for batch in envs.as_completed():
                received += rows(batch)
            assert sorted(received) == [[i, turns + 1, 5 + i] for i in range(3)]


@law("async", "concurrent")
def an_operation_may_be_awaited_in_any_way(world: World) -> None:
    """It runs without an await; it may be awaited late, repeatedly, by many tasks, with limits."""
    with world.with_options(workers=3).open(3, length=99) as envs:
        envs.reset()

        async def run(player: Any) -> None:
            envs, script = player.envs, player.script
            script.set(0, "step", "wait")
            pending = envs.step([1, 2, 3])
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(pending, timeout=0.001)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await pending
            tasks = [asyncio.create_task(pending) for _ in range(2)]
            tasks += [asyncio.create_task(result_of(pending)), asyncio.ensure_future(pending)]
            cancelled = asyncio.create_task(result_of(pending))
            await asyncio.sleep(0)
            cancelled.cancel()
            assert not pending.done()
            await asyncio.to_thread(script.open, 0)
            results = await asyncio.gather(*tasks, envs.render())
            assert results.pop() == ["1:1"] * 3
            results += [await asyncio.wait_for(pending, 600), await pending]
            assert cancelled.cancelled()
            assert pending.done()
            assert [result.observations[:, 3].tolist() for result in results] == [[1, 2, 3]] * 6
            async with asyncio.TaskGroup() as group:
                step = group.create_task(envs.step([4, 5, 6]))
                frames = group.create_task(envs.render())
            assert step.result().observations[:, 3].tolist() == [4, 5, 6]
            assert frames.result() == ["1:2"] * 3
            late = envs.step([7, 8, 9])
            while not late.done():  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert (await late).observations[:, 3].tolist() == [7, 8, 9]
            script.set(1, "call", "wait")
            call = envs.call("add", 1.0)
            await asyncio.to_thread(script.open, 1)  # it was dispatched before the await
            assert await call == [2.0] * 3
            failing = envs.call("no_such_method")
            for _ in range(2):
                with pytest.raises(AgymErrorGroup):
                    await failing
            envs.step([0, 0, 0])
            gc.collect()  # nothing warns of a coroutine that was never awaited
            assert await envs.render() == ["1:4"] * 3

        envs.run(run(envs))


@law("async")
def other_tasks_run_though_results_are_always_ready(world: World) -> None:
    """Awaiting steps that have finished does not keep the event loop to itself."""
    with world.open(2, length=10**9) as envs:

        async def run(envs: Any) -> None:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0)

            ticking = asyncio.create_task(tick())
            await envs.reset()
            before = ticks
            for _ in range(1_000_000):
                await envs.step([0, 0])
                if ticks > before + 5:
                    break
            assert ticks > before + 5
            ticking.cancel()

        envs.run(run(envs.envs))
