"""Recycling: a worker that leaks memory is replaced, and no trajectory changes."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode

import agym
from agym import Recycle
from agym.backends import Process
from agym.testing import ScriptedEnv
from tests.support.equality import same
from tests.support.patience import patience
from tests.support.worlds import PROCESS

NEXT_STEP = replace(PROCESS, autoreset="next_step")


def recycling(start_method: Any = "fork", workers: int = 2, **when: Any) -> dict[str, Any]:
    """Options whose worker processes are recycled."""
    backend = Process(start_method=start_method, recycle=Recycle(**when))
    return {"backend": backend, "workers": workers}


def rounds_until_replaced(
    envs: Any, least: int = 0, who: Callable[[Iterable[int]], bool] = all
) -> Iterator[int]:
    """Count rounds until all workers were replaced, but at least so many rounds."""
    yield from range(least)
    end = time.monotonic() + patience(3)
    for k in count(least):
        if who(worker.restarts for worker in envs.stats().workers):
            break
        assert time.monotonic() < end, envs.stats().workers
        yield k


def play(envs: Any) -> Iterator[Any]:
    """Take fixed actions without end."""
    generator = np.random.default_rng(0)
    yield envs.reset(seed=3, options={"low": -0.01, "high": 0.01})
    while True:
        result = envs.step(generator.integers(0, 2, 6))
        yield result
        over = np.flatnonzero(result.terminated | result.truncated)
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and len(over):
            yield envs.reset(env_ids=over)


class Cornered(CartPoleEnv):
    """Cannot be copied, so that it moves between two episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.secret = (number for number in range(9))


class Long(CartPoleEnv):
    """Its episodes do not end, so that it moves during one."""

    def step(self, action: Any) -> Any:
        self.state = self.np_random.normal(size=4)
        return self.state.astype(np.float32), float(action), False, False, {}


@pytest.mark.once
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize(
    "env",
    [[CartPoleEnv] * 6, [Cornered] * 6, [CartPoleEnv, Long, Cornered, Long, CartPoleEnv, Long]],
    ids=["copied", "uncopied", "endless"],
)
def test_no_trajectory_changes(env: Any, autoreset: str, start_method: str) -> None:
    make = partial(agym.make, env, autoreset=autoreset, output="array")
    with make(**recycling(start_method, episodes=3)) as envs, make(backend="serial") as others:
        both = zip(play(others), play(envs), strict=True)
        for _ in rounds_until_replaced(envs, 200):
            assert same(*next(both))
        for _ in range(200):
            assert same(*next(both))


def send_and_receive(lengths: list[int] | None = None, **options: Any) -> list[list[Any]]:
    """Return the rows of each environment: so many, or until all workers were replaced."""
    rows: list[list[Any]] = [[] for _ in range(6)]
    with agym.make("CartPole-v1", 6, autoreset="next_step", output="array", **options) as envs:
        envs.reset(seed=3)
        envs.send([0] * 6)
        rounds = rounds_until_replaced(envs, 100)
        for batch in envs.as_completed(min_envs=2):
            ids = batch.env_ids.tolist()
            for k, i in enumerate(ids):
                rows[i].append([column[k].tolist() for column in batch[1:5]])
            goes_on = lengths is None and next(rounds, None) is not None
            wanted = lengths or [300] * 6
            again = [i for i in ids if goes_on or len(rows[i]) < wanted[i]]
            envs.send([len(rows[i]) % 3 % 2 for i in again], again)
    return rows


def test_sent_steps_are_received_as_without_recycling() -> None:
    rows = send_and_receive(**recycling(episodes=3))
    assert rows == send_and_receive([*map(len, rows)], backend="serial")


class Leaky(ScriptedEnv):
    """Keeps a megabyte at every reset, up to a gigabyte."""

    kept: list[bytes] = []  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if len(self.kept) < 1000:
            self.kept.append(b"x" * 1_000_000)
        return super().reset(seed=seed, options=options)


@pytest.mark.full
def test_a_worker_that_uses_much_memory_is_replaced() -> None:
    rss = psutil.Process().memory_info().rss / 1e6
    options = recycling(workers=1, rss_mb=rss + 60)
    with agym.make(partial(Leaky, length=1), 2, autoreset="next_step", **options) as envs:
        envs.reset()
        first = envs.stats().workers[0].pid
        for _ in rounds_until_replaced(envs):
            envs.step([0, 0])
        assert envs.stats().workers[0].pid != first


@pytest.mark.full
def test_a_worker_that_dies_during_a_move_is_replaced() -> None:
    policy = agym.FaultPolicy("restart", max_restarts=1000)
    with NEXT_STEP.open(4, length=3, on_fault=policy, **recycling(episodes=1)) as envs:
        envs.reset(seed=0)
        faults = 0
        for k in range(200):
            if k % 20 == 10 and (pid := envs.stats().workers[k // 20 % 2].pid) is not None:
                psutil.Process(pid).kill()
            result = envs.step([1] * 4)
            lost = ["fault" in info for info in result.infos]
            assert result.truncated[lost].all()
            faults += sum(lost)
        assert faults >= 10


@pytest.mark.full
def test_a_standby_worker_that_cannot_be_made_is_a_warning() -> None:
    with NEXT_STEP.open(2, length=2, **recycling("spawn", workers=1, episodes=20)) as envs:
        envs.reset()
        envs.script.set(0, "make", "raise", always=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            while not caught:
                envs.step([0, 0])
        assert "cannot be recycled: " in str(caught[0].message)
        assert "boom" in str(caught[0].message)
        envs.step([0, 0])


class Clingy(ScriptedEnv):
    """Cannot be closed once it has been used for longer than a proof of copies takes."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        return super().step(action)

    def close(self) -> None:
        time.sleep(1 if self.steps < 2000 else 30)


@pytest.mark.full
def test_workers_that_do_not_end_are_killed() -> None:
    """At most one worker at a time takes its time to close."""

    def children() -> int:
        statuses = [child.status() for child in psutil.Process().children()]
        return sum(status != psutil.STATUS_ZOMBIE for status in statuses)

    options = recycling(workers=1, episodes=2)
    with agym.make(partial(Clingy, length=2), 2, autoreset="next_step", **options) as envs:
        envs.reset()
        before = children()
        end = time.monotonic() + patience(20)
        while envs.stats().workers[0].restarts < 3:
            assert time.monotonic() < end
            envs.step([1, 1])
        assert children() <= before + 2  # the worker's predecessor, and a standby worker


class Fussy(ScriptedEnv):
    """Raises when it is used after it was closed."""

    is_closed = False

    async def _act(self, operation: str) -> str | None:
        assert not self.is_closed
        self.is_closed = operation == "close"
        return await super()._act(operation)


@pytest.mark.full
@pytest.mark.parametrize(("autoreset", "length"), [("next_step", 2), ("disabled", 1)])
async def test_no_operation_reaches_an_environment_that_has_moved(
    autoreset: Any, length: int
) -> None:
    """Neither a reset right behind the last step, nor renders and calls during the move."""
    env: Any = partial(Fussy, length=length)
    options = recycling(episodes=2)
    async with agym.make_async(env, 4, autoreset=autoreset, **options) as envs:
        await envs.reset()
        for k in rounds_until_replaced(envs, 400, any):
            step = envs.step([1] * 4)
            reset = envs.reset(env_ids=[k % 4, (k + 1) % 4])
            assert (await step).rewards.shape == (4,)
            frames = [envs.render(), envs.render([k % 4])]
            await reset
            await asyncio.gather(*frames, envs[2].call("render"), envs.get_attr("now"))
            if autoreset == "disabled":
                await envs.reset()


def test_no_reason_to_recycle_is_refused() -> None:
    with pytest.raises(agym.UsageError, match=r"never recycles: pass episodes= or rss_mb="):
        Recycle()
