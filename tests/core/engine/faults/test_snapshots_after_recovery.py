"""A snapshot that is taken after a recovery continues exactly, also where it is by actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.drivers import Setup
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Result
from tests.support.envs.trapped_envs import Trapped, Traps
from tests.support.equality import same
from tests.support.scenarios import COROUTINES, PROCESS, over

LENGTH = 12
COUNT = 2


class Sealed(Trapped):
    """Draws in each step, and holds a generator, so that it can only be copied by its actions."""

    def __init__(self, folder: str, env_id: int) -> None:
        super().__init__(folder, env_id, LENGTH)
        self.secret = (number for number in range(9))

    def step(self, action: Any) -> Result:
        observation, reward, terminated, truncated, info = super().step(action)
        draw = self.np_random.random()
        observation[2] += draw
        return observation, reward + draw, terminated, truncated, info


class AsyncSealed(AsyncTally):
    """The coroutine environment that does the same."""

    def __init__(self, folder: str, env_id: int) -> None:
        super().__init__(Sealed, folder, env_id)


Open = Callable[[agym.FaultPolicy], agym.Envs[Any, Any]]


@pytest.fixture
def sealed(traps: Traps, setup: Setup) -> Open:
    """Opens environments that share one worker."""
    kind = AsyncSealed if setup is COROUTINES else Sealed
    factories = [partial(kind, str(traps.folder), i) for i in range(COUNT)]
    options = {**setup.options, "workers": 1, "autoreset": "next_step", "output": "array"}
    return lambda policy: agym.make(factories, on_fault=policy, **options)


def play(envs: agym.Envs[Any, Any], ids: list[int], steps: int, first: int = 0) -> list[Any]:
    """Observations, rewards and flags of some environments."""
    rows = []
    for k in range(first, first + steps):
        result = envs.step([(k + i) % 9 for i in range(COUNT)])
        rows.append([np.array(column[ids]) for column in result[:4]])
    return rows


def continue_elsewhere(
    envs: agym.Envs[Any, Any], elsewhere: agym.Envs[Any, Any], env_id: int
) -> None:
    """Take a snapshot, and compare what follows it here and in another worker process."""
    (snapshot,) = envs.snapshot([env_id])
    assert snapshot.way == "actions"
    once = play(envs, [env_id], 20)
    assert any(row[2].any() for row in once), "no episode has ended"
    elsewhere.reset(seed=50)
    observations, _ = elsewhere.restore(snapshot, [env_id])
    assert same(observations[env_id], snapshot.observation)
    assert same(play(elsewhere, [env_id], 20), once)


# In the first episode, which began with a seed, and in a later one, which began without.
each_time = pytest.mark.parametrize("before", [4, LENGTH + 5], ids=["first", "second"])


@each_time
@over(PROCESS, COROUTINES)
def test_after_a_replay(setup: Setup, before: int, traps: Traps, sealed: Open) -> None:
    """Environment 0 only shared the worker that environment 1 killed."""
    policy = agym.FaultPolicy("replay")
    with sealed(policy) as envs, sealed(policy) as elsewhere:
        envs.reset(seed=3)
        play(envs, [0], before)
        traps.set(1, "step", "kill")
        infos = envs.step([1, 2]).infos
        assert ["fault" in info for info in infos] == [False, True]
        play(envs, [0], 3)
        continue_elsewhere(envs, elsewhere, 0)


@each_time
@over(PROCESS, COROUTINES)
def test_after_a_retry(setup: Setup, before: int, traps: Traps, sealed: Open) -> None:
    """Environment 1 killed the worker, and its episode began again."""
    policy = agym.FaultPolicy("restart", retry=2)
    with sealed(policy) as envs, sealed(policy) as elsewhere:
        envs.reset(seed=3)
        play(envs, [1], before)
        traps.set(1, "step", "kill")
        assert envs.step([1, 2]).infos[1]["fault"].retry == 1
        assert envs.step([0, 0]).infos[1]["retry"] == 1
        play(envs, [1], 3)
        continue_elsewhere(envs, elsewhere, 1)
