"""Recycling: a leaky worker is replaced in the midst of episodes, and nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
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
from tests.support.backends import FORK, with_own
from tests.support.envs.plain_envs import Tally
from tests.support.equality import same
from tests.support.patience import patience

FORKED = {"backend": FORK, "workers": 2}
SPAWNED = {"backend": Process(start_method="spawn"), "workers": 2}


class Leaky(Tally):
    """Keeps a megabyte for ever, at every reset, up to a gigabyte."""

    kept: list[bytes] = []  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if len(self.kept) < 1000:
            self.kept.append(b"x" * 1_000_000)
        return super().reset(seed=seed, options=options)


def recycling(options: dict[str, Any], **when: Any) -> dict[str, Any]:
    """Options whose worker processes are recycled."""
    return with_own(options, recycle=Recycle(**when))


def rounds_until_replaced(
    envs: Any, least: int = 0, who: Callable[[Iterable[int]], bool] = all
) -> Iterator[int]:
    """So many rounds, and more until all workers were replaced, whose spares take their time."""
    yield from range(least)
    end = time.monotonic() + patience(3)
    for k in count(least):
        if who(worker.restarts for worker in envs.stats().workers):
            break
        assert time.monotonic() < end, envs.stats().workers
        yield k


def play(envs: Any) -> Iterator[Any]:
    """Fixed actions, for ever."""
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
    """Its episodes do not end, so that it moves in the midst of one."""

    def step(self, action: Any) -> Any:
        self.state = self.np_random.normal(size=4)
        return self.state.astype(np.float32), float(action), False, False, {}


@pytest.mark.once
@pytest.mark.parametrize("options", [FORKED, SPAWNED], ids=["fork", "spawn"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize(
    "env",
    [[CartPoleEnv] * 6, [Cornered] * 6, [CartPoleEnv, Long, Cornered, Long, CartPoleEnv, Long]],
    ids=["copied", "uncopied", "endless"],
)
def test_no_trajectory_changes(env: Any, autoreset: str, options: dict[str, Any]) -> None:
    make = partial(agym.make, env, autoreset=autoreset, output="array")
    with make(**recycling(options, episodes=3)) as envs, make(backend="serial") as others:
        both = zip(play(others), play(envs), strict=True)
        for _ in rounds_until_replaced(envs, 200):
            assert same(*next(both))
        for _ in range(200):
            assert same(*next(both))


def first_k(lengths: list[int] | None = None, **options: Any) -> list[list[Any]]:
    """Rows of each environment, stepped one by one: so many, or until workers were replaced."""
    rows: list[list[Any]] = [[] for _ in range(6)]
    with agym.make("CartPole-v1", 6, autoreset="next_step", output="array", **options) as envs:
        envs.reset(seed=3)
        envs.send([0] * 6)
        going = rounds_until_replaced(envs, 100)
        for batch in envs.as_completed(min_envs=2):
            for k, i in enumerate(batch.env_ids.tolist()):
                rows[i].append([column[k].tolist() for column in batch[1:5]])
            more = lengths is None and next(going, None) is not None
            again = [
                i for i in batch.env_ids.tolist()
                if more or len(rows[i]) < (lengths[i] if lengths else 300)
            ]  # fmt: skip
            envs.send([len(rows[i]) % 3 % 2 for i in again], again)
    return rows


def test_first_k_goes_on_too() -> None:
    rows = first_k(**recycling(FORKED, episodes=3))
    assert rows == first_k([*map(len, rows)], backend="serial")


@pytest.mark.full
def test_memory_is_the_reason() -> None:
    rss = psutil.Process().memory_info().rss / 1e6
    options = recycling({**FORKED, "workers": 1}, rss_mb=rss + 60)
    with agym.make(partial(Leaky, 1), 2, autoreset="next_step", **options) as envs:
        envs.reset()
        first = envs.stats().workers[0].pid
        for _ in rounds_until_replaced(envs):
            envs.step([0, 0])
        assert envs.stats().workers[0].pid != first


@pytest.mark.full
async def test_operations_on_their_way_hold_an_environment_where_it_is() -> None:
    async with agym.make_async(partial(Tally, 2), 4, **recycling(FORKED, episodes=2)) as envs:
        await envs.reset()
        for _ in rounds_until_replaced(envs, 300, any):
            step, *_ = await asyncio.gather(
                envs.step([1] * 4), envs.render(), envs[2].call("render"), envs.get_attr("now")
            )
            assert step.rewards.shape == (4,)
            await envs.reset(env_ids=[1])


@pytest.mark.full
def test_a_worker_that_dies_in_the_middle_is_replaced_as_any_other() -> None:
    options = {"on_fault": agym.FaultPolicy("restart", max_restarts=1000), "output": "array"}
    options |= recycling(FORKED, episodes=1)
    with agym.make(partial(Tally, 3), 4, autoreset="next_step", **options) as envs:
        envs.reset(seed=0)
        faults = 0
        for round_ in range(200):
            if round_ % 20 == 10:
                for child in psutil.Process().children():
                    if child.name() and child.pid == envs.stats().workers[round_ // 20 % 2].pid:
                        child.kill()
            result = envs.step([1] * 4)
            faults += sum("fault" in info for info in result.infos)
            cut = [i for i, info in enumerate(result.infos) if "fault" in info]
            assert all(result.truncated[cut])
        assert faults >= 10


@pytest.mark.full
def test_a_spare_that_cannot_be_made_is_told() -> None:
    options = recycling({**SPAWNED, "workers": 1}, episodes=20)
    with agym.make(OnceOnly, 2, autoreset="next_step", **options) as envs:
        envs.reset()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            while not told:
                envs.step([0, 0])
        assert "cannot be recycled: " in str(told[0].message)
        assert "once only" in str(told[0].message)
        envs.step([0, 0])


class OnceOnly(Tally):
    """Can be made once for each caller."""

    def __init__(self) -> None:
        super().__init__(length=2)
        parent = psutil.Process().parent()
        assert parent is not None
        siblings = 0
        for child in parent.children():
            with contextlib.suppress(psutil.Error):  # it has ended: an earlier spare
                siblings += "spawn_main" in " ".join(child.cmdline())
        if siblings > 1:
            raise ValueError("once only")


def test_what_it_cannot_do() -> None:
    for backend in ("serial", "thread", "asyncio"):
        with pytest.raises(agym.UsageError, match=r"use backend=agym\.backends\.Process\(recycle="):
            agym.make("CartPole-v1", 2, backend=backend, recycle=Recycle(episodes=5))
    with pytest.raises(agym.UsageError, match=r"Recycle\.episodes=0"):
        Recycle(episodes=0)
    with pytest.raises(agym.UsageError, match=r"Recycle\.rss_mb=-1"):
        Recycle(rss_mb=-1)
    with pytest.raises(agym.UsageError, match="never recycles: pass episodes= or rss_mb="):
        Recycle()
    with pytest.raises(agym.UsageError, match=r"recycle=5 must be an agym\.Recycle"):
        Process(recycle=5)  # type: ignore[arg-type]


class Fussy(Tally):
    """Does nothing any more once it is closed."""

    closed = False

    def step(self, action: Any) -> Any:
        assert not self.closed
        return super().step(action)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert not self.closed
        return super().reset(seed=seed, options=options)

    def render(self) -> Any:
        assert not self.closed
        return super().render()

    def close(self) -> None:
        self.closed = True


@pytest.mark.full
@pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
async def test_nothing_reaches_an_environment_that_has_left(autoreset: str) -> None:
    """Neither a reset sent right behind the last step, nor renders while it moves."""
    options = {**recycling(FORKED, episodes=2), "autoreset": autoreset}
    async with agym.make_async(
        partial(Fussy, 2 if autoreset == "next_step" else 1), 4, **options
    ) as envs:
        await envs.reset()
        for round_ in rounds_until_replaced(envs, 400, any):
            step = envs.step([1] * 4)
            reset = envs.reset(env_ids=[round_ % 4, (round_ + 1) % 4])
            await step
            frames = [envs.render(), envs.render([round_ % 4])]
            await reset
            await asyncio.gather(*frames)
            await asyncio.gather(envs.render(), envs.get_attr("now"))
            if autoreset == "disabled":
                await envs.reset()


@pytest.mark.full
def test_those_that_do_not_let_go_are_ended() -> None:
    """One at a time may take its time to close."""
    options = {**recycling({**FORKED, "workers": 1}, episodes=2), "autoreset": "next_step"}
    with agym.make(partial(Clingy, 2), 2, **options) as envs:
        envs.reset()
        before = len(living_children())
        end = time.monotonic() + patience(20)
        while envs.stats().workers[0].restarts < 3:
            assert time.monotonic() < end
            envs.step([1, 1])
        assert len(living_children()) <= before + 2  # the worker's predecessor, and a spare


def living_children() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]


class Clingy(Tally):
    """Cannot be closed once it has been used for long."""

    fresh = True

    def step(self, action: Any) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        self.fresh = self.steps < 2000  # more than a proof of copies takes
        return super().step(action)

    def close(self) -> None:
        time.sleep(1 if self.fresh else 30)
