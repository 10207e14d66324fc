"""The sync API: defaults, spaces, ways to make environments, attributes of all environments."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import agym
from agym.testing import Script
from tests.support.drivers import each_setup
from tests.support.envs.plain_envs import Tally
from tests.support.equality import same

pytestmark = each_setup


def test_lists_by_default(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 3, **setup) as envs:
        reset = envs.reset(seed=0)
        assert reset._fields == ("observations", "infos")
        assert all(isinstance(column, list) for column in reset)
        assert [o.dtype for o in reset.observations] == [np.float32] * 3
        actions = envs.action_space.sample()
        assert isinstance(actions, list)
        result = envs.step(actions)
        assert result._fields == ("observations", "rewards", "terminated", "truncated", "infos")
        observations, rewards, terminated, truncated, infos = result
        assert len(observations) == 3
        assert same(rewards, [1.0] * 3)
        assert same(terminated + truncated, [False] * 6)
        assert infos == [{}] * 3
        assert len({id(info) for info in infos}) == 3


@pytest.mark.parametrize("output", ["list", "array"])
def test_spaces(setup: dict[str, Any], output: Any) -> None:
    """A seeded action space repeats its samples, and they differ between environments."""
    env = gymnasium.make("Pendulum-v1")
    with agym.make("Pendulum-v1", 3, output=output, **setup) as envs:
        assert envs.single_action_space == env.action_space
        assert envs.single_observation_space == env.observation_space
        if output == "array":
            assert envs.action_space == batch_space(env.action_space, 3)
            assert envs.observation_space == batch_space(env.observation_space, 3)
        observations, _ = envs.reset()
        assert observations in envs.observation_space
        assert envs.action_space.sample() in envs.action_space
        envs.action_space.seed(5)
        first = [np.array(envs.action_space.sample()) for _ in range(4)]
        envs.action_space.seed(5)
        assert same(first, [np.array(envs.action_space.sample()) for _ in range(4)])
        assert len({float(x) for batch in first for x in batch[:, 0]}) == 12
    env.close()


def test_what_the_environments_are_like(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 2, render_mode="rgb_array", **setup) as envs:
        assert envs.spec.id == "CartPole-v1"
        assert envs.render_mode == "rgb_array"
        assert envs.metadata["render_fps"] == 50
        assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
        assert envs.num_envs == len(envs) == 2
        assert "CartPole-v1" in repr(envs)
        assert [env.index for env in envs] == [0, 1]
        assert "[1]" in repr(envs[1])
        envs.reset(seed=0)
        frames = envs.render()
        assert [(frame.shape, frame.dtype) for frame in frames] == [((400, 600, 3), np.uint8)] * 2
        assert all(frame.min() < frame.max() for frame in frames)
    assert "num_envs=2" in repr(envs)


def test_ways_to_make_environments(setup: dict[str, Any]) -> None:
    class Local(Tally):
        def secret(self) -> str:
            return f"{word} {self.gravity}"

    word = "told"
    factories = [partial(Tally, length=k) for k in (1, 2, 3)]
    with agym.make(Tally, **setup) as envs:
        assert len(envs) == 1
    with agym.make(Tally, 2, gravity=3.0, length=8, **setup) as envs:
        assert (envs.gravity, envs.length) == ([3.0] * 2, [8] * 2)
    with agym.make(factories, **setup) as envs:
        assert envs.length == [1, 2, 3]
    with agym.make(factories, 3, gravity=1.5, **setup) as envs:
        assert (envs.gravity, envs.length) == ([1.5] * 3, [1, 2, 3])
    with agym.make([lambda g=g: Local(gravity=g) for g in (1, 2, 3)], **setup) as envs:
        assert envs.secret() == ["told 1", "told 2", "told 3"]
    with agym.make(gymnasium.spec("CartPole-v1"), 2, max_episode_steps=7, **setup) as envs:
        envs.reset(seed=0)
        for _ in range(7):
            result = envs.step([0, 1])
        assert result.terminated[0] != result.truncated[0]


def test_attributes_under_wrappers(setup: dict[str, Any]) -> None:
    """A name with dots is looked up step by step; arrays come in a list as well."""
    with agym.make("CartPole-v1", 3, **setup) as envs:
        assert envs.unwrapped.gravity == envs.get_attr("gravity") == [9.8] * 3
        assert envs.get_attr("unwrapped.masscart") == [1.0] * 3
        envs.set_attr("gravity", 5.0)
        assert envs.unwrapped.gravity == [5.0] * 3
        envs.set_attr("unwrapped.length", 7)
        assert envs.unwrapped.length == [7] * 3
        envs.set_attr("_max_episode_steps", [3, 4, 5])
        assert envs[1].get_wrapper_attr("_max_episode_steps") == 4
        envs.reset(seed=0)
        assert len(envs.np_random_seed) == 3
        states = envs.get_attr("state"), envs.state, envs.unwrapped.state
        assert [len(state) for each in states for state in each] == [4] * 9


def test_the_block_closes_also_after_an_error(setup: dict[str, Any], script: Script) -> None:
    with pytest.raises(KeyError), agym.make(script.factories(2), **setup):
        raise KeyError
    assert script.closed() == [0, 1]


async def test_it_works_inside_a_running_loop(setup: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    with agym.make(Tally, 3, **setup) as envs:
        envs.reset(seed=0)
        result = envs.step([1, 2, 3])
        assert [info["action"] for info in result.infos] == [1, 2, 3]
        assert envs.render() == ["1:1"] * 3
    assert asyncio.get_running_loop() is loop
    await asyncio.sleep(0)


def test_close_gives_descriptors_back_though_the_object_stays(setup: dict[str, Any]) -> None:
    gc.collect()
    before = psutil.Process().num_fds()
    envs = agym.make(Tally, 3, **setup)
    envs.reset()
    envs.close()
    gc.collect()
    assert psutil.Process().num_fds() == before
    assert len(envs) == 3
