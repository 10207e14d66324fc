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
from tests.support.drivers import SETUPS
from tests.support.envs.plain_envs import Counted, Nested, Tally
from tests.support.equality import same, same_values

pytestmark = pytest.mark.parametrize("setup", SETUPS)


def test_lists_by_default(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 3, **setup) as envs:
        observations, infos = envs.reset(seed=0)
        assert isinstance(observations, list)
        assert isinstance(infos, list)
        assert [o.dtype for o in observations] == [np.float32] * 3
        actions = envs.action_space.sample()
        assert isinstance(actions, list)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        assert len(observations) == 3
        assert rewards == [1.0] * 3
        assert [type(r) for r in rewards] == [float] * 3
        assert terminated == truncated == [False] * 3
        assert [type(flag) for flag in terminated + truncated] == [bool] * 6
        assert infos == [{}] * 3
        assert len({id(info) for info in infos}) == 3


def test_results_have_names(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 2, **setup) as envs:
        assert envs.reset()._fields == ("observations", "infos")
        assert envs.step([0, 0])._fields == (
            "observations",
            "rewards",
            "terminated",
            "truncated",
            "infos",
        )


def test_both_outputs_hold_the_same(setup: dict[str, Any]) -> None:
    with (
        agym.make(Nested, 3, output="list", **setup) as lists,
        agym.make(Nested, 3, output="array", **setup) as arrays,
    ):
        a, b = lists.reset(seed=2), arrays.reset(seed=2)
        for _ in range(5):
            for i in range(3):
                assert same_values(a.observations[i]["position"], b.observations["position"][i])
                assert same_values(a.observations[i]["pair"][1], b.observations["pair"][1][i])
                assert same(a.infos[i], b.infos[i])
            action = {"force": np.ones(3, np.float32), "gear": 1}
            a, b = lists.step([action] * 3), arrays.step([action] * 3)
            assert same(a.rewards, b.rewards.tolist())


@pytest.mark.parametrize("output", ["list", "array"])
def test_spaces(setup: dict[str, Any], output: Any) -> None:
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
        assert len(envs.action_space.sample()) == 3
    env.close()


@pytest.mark.parametrize("output", ["list", "array"])
def test_a_seeded_action_space_repeats_and_differs_between_environments(
    setup: dict[str, Any], output: Any
) -> None:
    with agym.make("Pendulum-v1", 3, output=output, **setup) as envs:
        envs.action_space.seed(5)
        first = [np.array(envs.action_space.sample()) for _ in range(4)]
        envs.action_space.seed(5)
        assert same(first, [np.array(envs.action_space.sample()) for _ in range(4)])
        assert len({float(x) for batch in first for x in batch[:, 0]}) == 12


def test_what_the_environments_are_like(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 2, render_mode="rgb_array", **setup) as envs:
        assert envs.spec.id == "CartPole-v1"
        assert envs.render_mode == "rgb_array"
        assert envs.metadata["render_fps"] == 50
        assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
        assert envs.num_envs == len(envs) == 2
        assert "CartPole-v1" in repr(envs)
        assert "num_envs=2" in repr(envs)
        assert [env.index for env in envs] == [0, 1]
        assert "[1]" in repr(envs[1])
    assert "num_envs=2" in repr(envs)


def test_one_environment_by_default(setup: dict[str, Any]) -> None:
    with agym.make(Tally, **setup) as envs:
        assert len(envs) == 1


def test_a_list_of_factories(setup: dict[str, Any]) -> None:
    factories = [partial(Tally, length=k) for k in (1, 2, 3)]
    with agym.make(factories, **setup) as envs:
        assert envs.length == [1, 2, 3]
    with agym.make(factories, 3, gravity=1.5, **setup) as envs:
        assert envs.gravity == [1.5] * 3
        assert envs.length == [1, 2, 3]


def test_a_spec(setup: dict[str, Any]) -> None:
    with agym.make(gymnasium.spec("CartPole-v1"), 2, max_episode_steps=7, **setup) as envs:
        envs.reset(seed=0)
        for _ in range(7):
            result = envs.step([0, 1])
        assert result.terminated[0] != result.truncated[0]


def test_keywords_go_to_the_environment(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 2, gravity=3.0, length=8, **setup) as envs:
        assert envs.gravity == [3.0, 3.0]
        assert envs.length == [8, 8]


def test_factories_may_be_closures(setup: dict[str, Any]) -> None:
    class Local(Tally):
        def secret(self) -> str:
            return f"{word} {self.gravity}"

    word = "told"
    with agym.make([lambda g=g: Local(gravity=g) for g in (1, 2, 3)], **setup) as envs:
        assert envs.secret() == ["told 1", "told 2", "told 3"]


def test_render(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 3, render_mode="rgb_array", **setup) as envs:
        envs.reset(seed=0)
        frames = envs.render()
        assert len(frames) == 3
        assert {frame.shape for frame in frames} == {(400, 600, 3)}
        assert {frame.dtype for frame in frames} == {np.dtype(np.uint8)}
        assert all(frame.min() < frame.max() for frame in frames)


def test_attributes_come_as_lists(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 3, **setup) as envs:
        assert envs.unwrapped.gravity == [9.8] * 3
        assert envs.get_attr("gravity") == [9.8] * 3
        assert envs.get_attr("unwrapped.masscart") == [1.0] * 3
        envs.reset(seed=0)
        assert len(envs.np_random_seed) == 3


def test_array_attributes_come_as_lists(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 3, **setup) as envs:
        assert [state.tolist() for state in envs.get_attr("state")] == [[0, 1, 2]] * 3
        assert [state.tolist() for state in envs.state] == [[0, 1, 2]] * 3
        assert [state.tolist() for state in envs.unwrapped.state] == [[0, 1, 2]] * 3


def test_methods_are_called_on_all(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 3, **setup) as envs:
        assert envs.add(1) == [10.8] * 3
        assert envs.add(1, b=2) == [12.8] * 3
        assert envs.unwrapped.add(b=1, a=0) == [10.8] * 3
        assert envs.call("add", 1, b=1) == [11.8] * 3
        assert envs.call("gravity") == [9.8] * 3
        assert envs.remember("x") == [""] * 3
        assert envs.remember("y") == ["x"] * 3


def test_set_attr(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 3, **setup) as envs:
        envs.set_attr("gravity", [1.0, 2.0, 3.0])
        assert envs.unwrapped.gravity == [1.0, 2.0, 3.0]
        envs.set_attr("gravity", 5.0)
        assert envs.unwrapped.gravity == [5.0] * 3
        envs.set_attr("gravity", (1, 2, 3))
        assert envs.gravity == [1, 2, 3]
        envs.set_attr("unwrapped.length", 7)
        assert envs.unwrapped.length == [7] * 3
        envs.set_attr("brand_new", ["a", "b", "c"])
        assert envs.unwrapped.brand_new == ["a", "b", "c"]


def test_a_missing_attribute(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 3, **setup) as envs:
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = envs.no_such_thing
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = envs.unwrapped.no_such_thing
        with pytest.raises(AttributeError, match="no_such_thing"):
            envs.get_attr("no_such_thing")
        assert not hasattr(envs, "no_such_thing")
        assert not hasattr(envs, "_private")
        with pytest.raises(agym.UsageError, match="set_attr"):
            envs.set_attr("gravity", [1.0, 2.0])
        assert envs.gravity == [9.8] * 3


def test_handles_of_nested_spaces(setup: dict[str, Any]) -> None:
    bare = Nested()
    with agym.make(Nested, 3, **setup) as envs:
        ours, theirs = envs[2].reset(seed=9), bare.reset(seed=9)
        assert same_values(ours[0], theirs[0])
        action = {"force": np.ones(3, np.float32), "gear": 2}
        for _ in range(3):
            ours, theirs = envs[2].step(action), bare.step(action)
            assert same_values(ours[0], theirs[0])
            assert same(list(ours[1:4]), list(theirs[1:4]))


def test_the_block_closes_also_after_an_error(setup: dict[str, Any], tmp_path: Any) -> None:
    log = tmp_path / "log"
    with pytest.raises(KeyError), agym.make(partial(Counted, str(log)), 2, **setup):
        raise KeyError
    assert len(log.read_text().splitlines()) == 4


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
