"""Several threads with the sync API, and several event loops with the async API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agym.errors import BusyError, ClosedError, NothingSentError, UsageError
from agym.testing.laws.law import assert_same, calls_of, law, rows, steps_of
from agym.testing.worlds import World


def _play(envs: Any) -> list[Any]:
    """Play one environment or a group, and return all that is seen."""
    is_group = hasattr(envs, "num_envs")
    seen = [envs.reset(seed=7 if is_group else envs.index)]
    for k in range(20):
        seen.append(envs.step([k % 10] * envs.num_envs if is_group else k % 10))
        if k % 10 == 3:
            seen.append((envs.call("add", k), envs.render()))
    return seen


@law("sync", "single")
def threads_play_at_the_same_time(world: World) -> None:
    """Each gets the results of its environment or group; others call, render and read figures."""
    with world.open(6) as together, world.open(6) as alone, ThreadPoolExecutor(7) as pool:

        def look() -> None:
            for k in range(20):
                assert together.call("add", k) == [1.0 + k] * 6
                assert len(together.render()) == len(together.stats().envs) == 6

        for ours, theirs in (
            (together.envs, alone.envs),
            (together.envs.split(2), alone.envs.split(2)),
        ):
            looking = pool.submit(look)
            assert_same([*pool.map(_play, ours)], [*map(_play, theirs)])
            looking.result()


@law("sync", "single")
def threads_share_what_was_sent(world: World) -> None:
    """A thread receives what another thread has sent, and nothing is lost."""
    with world.open(6, length=99) as player, ThreadPoolExecutor(3) as pool:
        player.reset()

        def send_and_receive(ids: list[int]) -> list[list[float]]:
            player.send(ids, env_ids=ids)
            received = []
            with contextlib.suppress(NothingSentError):
                for batch in player.as_completed():
                    received += rows(batch)
            return received

        for k in range(1, 6):
            received = pool.map(send_and_receive, [[0, 1], [2, 3], [4, 5]])
            assert sorted(row for part in received for row in part) == [[i, k, i] for i in range(6)]


@law("sync", "single")
def a_step_in_another_thread_is_refused_to_others(world: World) -> None:
    """The second thread gets an error and does not wait; the first step is not disturbed."""
    with (
        world.with_options(workers=3).open(3, length=99) as player,
        ThreadPoolExecutor(1) as pool,
    ):
        envs = player.envs
        envs.reset()
        steps: list[Callable[[], Any]] = [
            lambda: envs.step([0] * 3),
            lambda: envs[0].step(0),
            lambda: envs.send([0], [0]),
        ]
        for first in steps[:2]:
            player.script.set(0, "step", "wait")
            call = pool.submit(first)
            with Path(player.script.gate(0).path).open("w"):  # environment 0 waits there
                for other in steps:
                    with pytest.raises(BusyError, match="environment 0"):
                        other()
            call.result()
        assert steps_of(envs) == [2, 1, 1]


@law("sync", "single")
def any_thread_may_close(world: World) -> None:
    """Threads that wait for a step then get an error, and closing is idempotent."""
    with (
        world.with_options(workers=3).open(3) as player,
        ThreadPoolExecutor(5) as pool,
        contextlib.ExitStack() as gates,
    ):
        envs = player.envs
        envs.reset()
        waiting = []
        for i in (0, 1) if "concurrent" in world.has else ():
            player.script.set(i, "step", "wait")
            waiting.append(pool.submit(envs[i].step, 0))
            # Opened once the environment waits in its step.
            gates.enter_context(Path(player.script.gate(i).path).open("w"))
        quick = pool.submit(envs[2].step, 0)
        closing = [pool.submit(envs.close) for _ in range(2)]
        for call in waiting:
            assert isinstance(call.exception(), ClosedError)
        gates.close()
        for call in closing:
            call.result()
        assert isinstance(quick.exception(), ClosedError | None)
        assert envs.closed


@law("async", "single")
def a_second_event_loop_is_refused(world: World) -> None:
    """The environments belong to the event loop and the thread that opened them."""
    with world.open(2) as player:
        player.reset()
        envs = player.envs

        async def use(call: Any) -> None:
            pending = call()
            if pending is not None:
                await pending

        async def run() -> None:
            for call in [*calls_of(envs), envs[0].close, envs.aclose, lambda: envs]:
                with pytest.raises(UsageError, match="another event loop: make"):
                    await asyncio.to_thread(asyncio.run, use(call))
            with pytest.raises(UsageError, match="another thread"):
                await asyncio.to_thread(envs.step, [0, 0])

        player.run(run())
        player.step([0, 0])
