"""A limit of the rate: calls of a kind of environment are never closer than it says."""

from __future__ import annotations

import asyncio
import fcntl
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.api.options.environments import make_factories
from agym.core.hosts.rate_limit import RateLimiter, number_kinds
from agym.testing import World, assert_same
from agym.testing.law import play
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline, patience
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over

WORLDS = [
    replace(world, autoreset="next_step")
    for world in (PROCESS, THREAD, ASYNCIO, COROUTINES, SERIAL)
]
everywhere, concurrent = over(*WORLDS), over(*WORLDS[:-1])


@everywhere
def test_all_workers_together_keep_to_the_rate(world: World) -> None:
    """So many calls take at least so long, whoever makes them; the results are the same."""
    with world.open(4, rate_limit=200) as envs, world.serial.open(4) as unlimited:
        begun = time.monotonic()
        results = play(envs, 7)
        took = time.monotonic() - begun
        assert took >= (4 * 8 - 1) / 200
        waited = envs.stats().waited.rate_limit
        assert waited > 0
        assert f"rate limit {waited:.3g} s" in str(envs.stats())
        assert_same(results, play(unlimited, 7))


@pytest.mark.once
@everywhere
def test_only_environments_that_hang_miss_their_deadline(world: World) -> None:
    """Not those that wait for their turn: all turns take 1.5 times as long as the deadline."""
    timeout = deadline(0.3)
    with world.open(4, timeout=timeout, rate_limit=4 / (1.5 * timeout), length=9) as envs:
        envs.reset(seed=0)
        envs.step([0] * 4)
        if "deadlines" in world.has and world.backend != "thread":
            envs.script.set(1, "step", "wait")
            with pytest.raises(agym.StepTimeout, match="environment"):
                envs.step([0] * 4)
            envs.reset(seed=0)
            envs.step([0] * 4)


@concurrent
def test_closing_ends_the_wait(world: World) -> None:
    """Turns are hours away, yet each environment is closed, and nothing outlives the test."""
    world = replace(world, api="async", workers=1)
    with world.open(2, rate_limit=1e-4) as player:

        async def run(envs: agym.AsyncEnvs) -> None:
            pending = envs.reset(seed=0)
            while not any(env.episodes for env in envs.stats().envs):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await envs.aclose()
            with pytest.raises(agym.AgymError):
                await pending

        player.run(run(player.envs))
        assert player.script.closed() == [0, 1]


def test_each_kind_has_a_rate_of_its_own() -> None:
    """Ids, classes and functions are kinds; what is made alike is one kind."""

    def thunk(i: int) -> Any:
        return lambda: Tally(i)

    cart_poles = make_factories("CartPole-v1", 2, {})
    acrobots = make_factories("Acrobot-v1", 2, {})
    assert number_kinds([*cart_poles, *acrobots, Tally, Raises, thunk(1), thunk(2)]) == [
        0, 0, 1, 1, 2, 3, 4, 4,
    ]  # fmt: skip


@given(rate=st.floats(1, 1e6), ids=st.lists(st.integers(0, 2), min_size=2, max_size=30))
def test_turns_of_a_kind_are_apart(rate: float, ids: list[int]) -> None:
    limiter = RateLimiter(rate, [0, 1, 0])
    turns: dict[int, list[int]] = {0: [], 1: []}
    for i in ids:
        turns[[0, 1, 0][i]].append(limiter.reserve(i))
    for each in turns.values():
        assert all(b - a >= 1e9 / rate for a, b in pairwise(each))


@pytest.mark.parametrize("rate", [1e-9, 1e-300])
def test_turns_may_be_far_away(rate: float) -> None:
    limiter = RateLimiter(rate, [0])
    first, second = limiter.reserve(0), limiter.reserve(0)
    assert second - first > 1e9 * 3600 * 24


def _reserve(limiter: RateLimiter, count: int, answers: Any) -> None:
    answers.put([limiter.reserve(0) for _ in range(count)])


@pytest.mark.once  # another interpreter takes long to start
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_turns_in_several_processes_are_apart(method: Any) -> None:
    limiter = RateLimiter(1e5, [0])
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    processes = [context.Process(target=_reserve, args=(limiter, 200, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    turns = sorted(turn for _ in processes for turn in answers.get())
    for process in processes:
        process.join()
        process.close()
    answers.close()
    assert len(turns) == 600
    assert all(b - a >= 10_000 for a, b in pairwise(turns))


def _lock_and_wait(limiter: RateLimiter, locked: Any) -> None:
    with Path(limiter.path).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        locked.put(None)
        signal.pause()


def test_the_lock_ends_with_the_process_that_has_it() -> None:
    limiter = RateLimiter(1e5, [0])
    context = multiprocessing.get_context("fork")
    locked = context.SimpleQueue()
    process = context.Process(target=_lock_and_wait, args=(limiter, locked))
    process.start()
    locked.get()
    waiting = threading.Thread(target=limiter.reserve, args=(0,))
    waiting.start()
    assert waiting.is_alive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    waiting.join(patience())
    assert not waiting.is_alive()
    process.join()
    process.close()
    locked.close()
