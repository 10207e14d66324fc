"""A replay begins at the latest snapshot."""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agym.testing import assert_same
from tests.support.drivers import FORKED, each_api, each_mode, opened
from tests.support.envs.drifting_envs import Words

EVERY, DEADLY = 10, 7


class Long(gymnasium.Env[Any, Any]):
    """A random walk with episodes of some 200 steps, which counts those of its process.

    Those of the first three: others are made for the proof of a copy.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)  # of which the proof of a copy takes samples
    steps: ClassVar[int] = 0
    made: ClassVar[int] = 0

    def __init__(self) -> None:
        Long.made += 1
        self.counts = Long.made <= 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        return self.place.copy(), {}

    def step(self, action: Any) -> Any:
        type(self).steps += self.counts
        if action == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        self.place += self.np_random.normal(size=2) + action
        return self.place.copy(), 0.0, bool(self.np_random.random() < 0.005), False, {}


class Uncopied(Long):
    """The same, whose state cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = (number for number in range(3))


def actions(steps: int) -> list[list[int]]:
    return np.random.default_rng(3).integers(2, size=(steps, 3)).tolist()


def play(api: str, env: Any, mode: str, *, deadly: bool) -> tuple[list[Any], Any]:
    """Return the rows of the two environments that are not to blame, and steps of the process."""
    options = {**FORKED, "workers": 1, "autoreset": mode, "on_fault": "replay"}
    with opened(api, env, 3, **options) as envs:
        envs.reset(seed=5)
        seen = []
        for k, some in enumerate(actions(150)):
            some[0] = DEADLY if deadly and k in (73, 74, 120) else 0
            seen.append([column[1:] for column in envs.step(some)])
            if any(column[0] for column in seen[-1][2:4]) and mode == "disabled":
                break
            if deadly and k % EVERY == EVERY - 1:
                envs.snapshot()
        return seen, envs.call(steps_here)


def steps_here(env: Any) -> int:
    return type(env.unwrapped).steps


@each_api
@each_mode
@pytest.mark.parametrize("env", [Long, Uncopied])
def test_what_follows_is_the_same(api: str, mode: str, env: Any) -> None:
    right, _ = play(api, env, mode, deadly=False)
    found, steps = play(api, env, mode, deadly=True)
    for one, other in zip(right, found, strict=True):
        assert_same(one, other)
    if env is Long and mode != "disabled":
        # Since the last death: a few that were replayed, and 30 that followed.
        assert 3 * 29 <= steps[0] <= 3 * (30 + EVERY)


@each_api
def test_a_restored_episode_can_be_replayed(api: str) -> None:
    with opened(api, Long, 2, **FORKED, workers=1, on_fault="replay") as envs:
        envs.reset(seed=5)
        envs.step([0, 1])
        before = envs.snapshot()
        once = [envs.step([0, 0]) for _ in range(5)]
        envs.restore(before)
        for k, step in enumerate(once):
            found = envs.step([DEADLY if k == 3 else 0, 0])
            assert_same(step.observations[1], found.observations[1])
        assert found.infos[1] == {}


class DeadlyWords(Words):
    async def step(self, action: Any) -> Any:
        if action == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(action)


@each_api
@pytest.mark.parametrize("env", [Long, DeadlyWords])
def test_an_ended_episode_that_was_restored_is_still_over(api: str, env: Any) -> None:
    """Its steps did nothing, so a replay has none to repeat."""
    with opened(api, env, 2, **FORKED, workers=1, on_fault="replay") as envs:
        envs.reset(seed=5)
        while not envs.step([0, 0]).terminated[1]:
            pass
        (over,) = envs.snapshot([1])
        envs.reset(seed=6)
        envs.restore(over, [1])
        for k in range(5):
            found = envs.step([DEADLY if k == 3 else 0, 0])
            assert_same(found.observations[1], over.observation)
            assert (found.rewards[1], found.terminated[1], found.truncated[1]) == (0, True, False)
        assert found.infos[1] == {}
