"""A limit of the rate: calls of a kind of environment are never closer than it says."""

from __future__ import annotations

import asyncio
import fcntl
import multiprocessing
import os
import signal
import threading
import time
import uuid
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.api.options.environments import make_factories
from agym.core.hosts.rate_limit import RateLimiter, number_kinds
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.drawn_envs import AsyncDrawn, Drawn
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline, patience

SETUPS = [
    pytest.param(Tally, {"backend": "serial"}, id="serial"),
    pytest.param(Tally, {"backend": "thread"}, id="thread"),
    pytest.param(Tally, {"backend": FORK, "workers": 2}, id="process"),
    pytest.param(AsyncTally, {"backend": "asyncio"}, id="asyncio"),
    pytest.param(AsyncTally, {"backend": FORK, "workers": 2}, id="process-coroutines"),
]
everywhere = pytest.mark.parametrize(("env", "options"), SETUPS)


@everywhere
def test_all_workers_together_keep_to_the_rate(env: Any, options: dict[str, Any]) -> None:
    """So many calls take at least so long, whoever makes them."""
    with agym.make(env, 4, autoreset="next_step", rate_limit=200, **options) as envs:
        begun = time.monotonic()
        envs.reset(seed=0)
        for _ in range(7):
            envs.step([0] * 4)
        took = time.monotonic() - begun
        assert took >= (4 * 8 - 1) / 200
        waited = envs.stats().waited.rate_limit
        assert waited > 0
        assert f"rate limit {waited:.3g} s" in str(envs.stats())


# The serial backend, which cannot end a step, comes last: with `once` the core has the first.
@pytest.mark.once
@pytest.mark.parametrize(("env", "options"), SETUPS[::-1])
def test_waiting_for_a_turn_is_no_missed_deadline(env: Any, options: dict[str, Any]) -> None:
    """A step of all takes 1.5 times as long as the deadline of one."""
    timeout = deadline(0.1)
    rate = 4 / (1.5 * timeout)
    with agym.make(env, 4, timeout=timeout, rate_limit=rate, **options) as envs:
        envs.reset(seed=0)
        envs.step([0] * 4)


class Hangs(Tally):
    """Hangs in a step with action 1."""

    def step(self, action: Any) -> Any:
        if action == 1:
            time.sleep(patience())
        return super().step(action)


class AsyncHangs(AsyncTally):
    """Hangs in a step with action 1."""

    async def step(self, action: Any) -> Any:
        if action == 1:
            await asyncio.Event().wait()
        return await super().step(action)


@pytest.mark.once
@pytest.mark.parametrize(
    ("env", "options"),
    [
        pytest.param(Hangs, {"backend": FORK, "workers": 2}, id="process"),
        pytest.param(AsyncHangs, {"backend": "asyncio"}, id="asyncio"),
        pytest.param(AsyncHangs, {"backend": FORK, "workers": 2}, id="process-coroutines"),
    ],
)
def test_what_hangs_misses_its_deadline_all_the_same(env: Any, options: dict[str, Any]) -> None:
    timeout = deadline(0.2)
    with agym.make(env, 4, timeout=timeout, rate_limit=100, **options) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.StepTimeout, match="environment"):
            envs.step([0, 1, 0, 0])
        envs.reset(seed=0)
        envs.step([0] * 4)


class Registers(Tally):
    """Leaves a file when it is made, and removes it when it is closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = folder / uuid.uuid4().hex
        self.file.touch()

    def close(self) -> None:
        self.file.unlink()


class AsyncRegisters(AsyncTally):
    """The coroutine environment that does the same."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inner = Registers(folder)

    async def close(self) -> None:
        self.inner.close()


# One worker has both environments, so one of them waits while the other is done.
CLOSED = [
    pytest.param(Registers, {"backend": "thread", "workers": 1}, id="thread"),
    pytest.param(Registers, {"backend": FORK, "workers": 1}, id="process"),
    pytest.param(AsyncRegisters, {"backend": "asyncio"}, id="asyncio"),
    pytest.param(AsyncRegisters, {"backend": FORK, "workers": 1}, id="process-coroutines"),
]


@pytest.mark.parametrize(("env", "options"), CLOSED)
def test_closing_ends_the_wait(env: Any, options: dict[str, Any], tmp_path: Path) -> None:
    """Turns are hours away, yet each environment is closed, and nothing outlives the test."""

    async def main() -> None:
        factories = [partial(env, tmp_path)] * 2
        async with agym.make_async(factories, rate_limit=1e-4, **options) as envs:
            pending = envs.reset(seed=0)
            while not any(env.episodes for env in envs.stats().envs):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await envs.aclose()
            with pytest.raises(agym.AgymError):
                await pending

    agym.run(main())
    assert not [*tmp_path.iterdir()]


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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate_limit": 0}, "rate_limit=0 .*calls per second, or None"),
        ({"rate_limit": float("inf")}, "rate_limit=inf"),
        ({"rate_limit": 1, "backend": "ray"}, "rate_limit=.*backend='ray': use"),
    ],
)
def test_what_is_refused(options: dict[str, Any], text: str) -> None:
    for make in (agym.make, agym.make_async, agym.make_vec):
        with pytest.raises(agym.UsageError, match=text):
            make(Tally, **options)


def test_drawn_is_the_same_with_a_rate() -> None:
    """A limit changes when environments are called, and nothing else."""
    runs = []
    for env, options in ((Drawn, {"backend": "serial"}), (AsyncDrawn, {"backend": "asyncio"})):
        for rate in (None, 1000):
            with agym.make(env, 2, autoreset="next_step", rate_limit=rate, **options) as envs:
                envs.reset(seed=0)
                runs.append([envs.step([0, 0]).rewards for _ in range(10)])
    assert all(run == runs[0] for run in runs)
