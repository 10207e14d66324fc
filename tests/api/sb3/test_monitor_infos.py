"""What SB3's Monitor tells at an episode's end travels in the table, and options leave it alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import agym
from tests.support.envs.scripted_envs import Info, messages
from tests.support.training import assert_same, course, each_place, vec_envs

env_util = pytest.importorskip("stable_baselines3.common.env_util", reason="the extra `sb3`")

CARTPOLE = partial(gymnasium.make, "CartPole-v1")
KEYS = {"episode", "terminal_observation", "TimeLimit.truncated"}


def play(vec_env: Any, steps: int) -> list[Info]:
    """Push to the left; what is told at the ends of episodes."""
    told = []
    for _ in range(steps):
        _, _, dones, infos = vec_env.step(np.zeros(4, np.int64))
        told += [infos[i] for i in np.flatnonzero(dones)]
    return told


@each_place
@pytest.mark.parametrize("monitored", [True, False])
def test_an_episodes_end_takes_no_message(monitored: bool, options: dict[str, Any]) -> None:
    """Neither do agym's own statistics, which the infos have without a monitor."""
    if monitored:
        vec_env = agym.sb3.make_vec_env("CartPole-v1", 4, seed=0, **options)
    else:
        vec_env = agym.sb3.AgymVecEnv([CARTPOLE] * 4, infos="episode", **options)
    vec_env.reset()
    assert play(vec_env, 30)
    with messages(vec_env.runner) as seen:
        told = play(vec_env, 60)
    assert seen == []
    assert len(told) > 10
    assert all(info.keys() == KEYS for info in told)
    assert all(info["episode"]["r"] == info["episode"]["l"] for info in told)
    assert all(type(info["episode"]["l"]) is int for info in told)
    vec_env.close()


@each_place
def test_only_episodes_are_the_monitors(options: dict[str, Any]) -> None:
    ours = agym.sb3.make_vec_env("CartPole-v1", 4, seed=0, infos="episode", **options)
    theirs = env_util.make_vec_env("CartPole-v1", 4, seed=0, vec_env_cls=vec_envs.DummyVecEnv)
    assert_same(course(ours, 60), course(theirs, 60))  # CartPole tells nothing else
