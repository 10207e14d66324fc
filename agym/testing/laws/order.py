"""Calls that overlap: operations of one environment keep their order, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from agym.errors import BusyError
from agym.testing.laws.law import law, steps_of
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
def a_cancelled_wait_does_not_cancel_the_step(world: World) -> None:
    """The result is dropped, and never returned by a later call."""
    with world.open(2, length=9) as envs:
        envs.reset()
        envs.script.set(0, "step", "wait")

        async def run(envs: Any) -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(envs.step([5, 5]), 0.01)

        envs.run(run(envs.envs))
        envs.open_gate(0)
        envs.render()
        result = envs.step([6, 6])
        assert result.observations[:, 2:].tolist() == [[2, 6], [2, 6]]


@law("async", "concurrent")
def a_cancelled_receipt_loses_nothing(world: World) -> None:
    """The next ``recv`` returns the results that had finished."""
    with world.open(2, length=9) as envs:
        envs.reset()
        envs.script.set(0, "step", "wait")
        envs.send([5, 6])

        async def run(envs: Any) -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(envs.recv(min_envs=2), 0.01)

        envs.run(run(envs.envs))
        envs.open_gate(0)
        batch = envs.recv(min_envs=2)
        assert sorted(batch.observations[:, 3].tolist()) == [5, 6]


@law("async", "concurrent")
def the_event_loop_runs_while_environments_step(world: World) -> None:
    """During a step, other tasks run, and other environments' steps finish."""
    with world.with_options(workers=2).open(2, length=9) as envs:
        envs.reset()
        envs.script.set(0, "step", "wait")

        async def run(player: Any) -> None:
            waiting = player.envs[0].step(5)
            other = await player.envs[1].step(6)
            assert other[0][3] == 6
            await asyncio.to_thread(player.script.open, 0)
            assert (await waiting)[0][3] == 5

        envs.run(run(envs))
