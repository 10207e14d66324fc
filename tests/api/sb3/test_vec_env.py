"""AgymVecEnv gives what DummyVecEnv gives, to the last bit, wherever its environments live."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import agym
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Tally
from tests.support.training import (
    OBSERVATIONS,
    assert_same,
    course,
    each_place,
    random_envs,
    vec_envs,
)


@each_place
@pytest.mark.parametrize("observations", OBSERVATIONS)
def test_every_space_gives_what_dummy_gives(observations: str, options: dict[str, Any]) -> None:
    functions = random_envs(observations)
    ours = course(agym.sb3.AgymVecEnv(functions, **options), 200, resets=[50, 51, 120])
    theirs = course(vec_envs.DummyVecEnv(functions), 200, resets=[50, 51, 120])
    assert_same(ours, theirs)
    dones = np.array([result[2] for result in ours if len(result) == 5])
    assert dones.sum() > 50


@each_place
def test_made_from_an_id_it_gives_what_sb3_makes(options: dict[str, Any], tmp_path: Any) -> None:
    wrapper = partial(gymnasium.wrappers.TimeLimit, max_episode_steps=20)
    arguments: dict[str, Any] = {
        "n_envs": 4,
        "seed": 5,
        "wrapper_class": wrapper,
        "env_kwargs": {"sutton_barto_reward": True},
    }
    sb3 = pytest.importorskip("stable_baselines3.common.env_util")
    ours = agym.sb3.make_vec_env(
        "CartPole-v1", monitor_dir=str(tmp_path / "ours"), **arguments, **options
    )
    theirs = sb3.make_vec_env("CartPole-v1", monitor_dir=str(tmp_path / "theirs"), **arguments)
    assert ours.render_mode == theirs.render_mode == "rgb_array"
    assert ours.metadata == theirs.metadata
    first = np.array_equal(ours.reset(), theirs.reset())  # the seed that was given
    assert first
    results = course(ours, 150)
    assert_same(results, course(theirs, 150))
    assert {True, False} == {info["TimeLimit.truncated"] for *_, infos, _ in results[1:]
                             for info in infos if "terminal_observation" in info}  # fmt: skip
    names = [sorted(path.name for path in (tmp_path / who).iterdir()) for who in ("ours", "theirs")]
    assert names[0] == names[1] == [f"{i}.monitor.csv" for i in range(4)]
    lines = [(tmp_path / who / "2.monitor.csv").read_text().splitlines()
             for who in ("ours", "theirs")]  # fmt: skip
    assert len(lines[0]) == len(lines[1]) > 3


@each_place
def test_a_callable_and_its_keywords(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.make_vec_env(
        Tally, 3, env_kwargs={"length": 2}, vec_env_kwargs=options, monitor_kwargs={}
    )
    vec_env.reset()
    vec_env.step([0, 1, 2])
    *_, infos = vec_env.step([0, 1, 2])
    assert [info["episode"]["l"] for info in infos] == [2, 2, 2]
    assert vec_env.get_attr("gravity") == [9.8] * 3
    vec_env.close()


@each_place
def test_seeds_and_options_are_for_one_reset_alone(options: dict[str, Any]) -> None:
    functions = [partial(Tally, length=2)] * 3
    results = []
    for vec_env in (agym.sb3.AgymVecEnv(functions, **options), vec_envs.DummyVecEnv(functions)):
        said: list[Any] = []
        for given in ({"a": [1]}, [{"length": 1}, {}, {"b": 2}], None):
            vec_env.set_options(given)
            assert vec_env.seed(7) == [7, 8, 9]
            vec_env.reset()
            said.append([*vec_env.reset_infos])
            for _ in range(2):  # through automatic resets
                said.append(vec_env.step(np.zeros(3, int))[3])
                said.append([*vec_env.reset_infos])
        vec_env.reset()
        said.append([*vec_env.reset_infos])
        vec_env.close()
        results.append(said)
    assert_same(*results)
    options_of_all = {str(info["options"]) for info in results[0][0]}
    assert options_of_all == {"{'a': [1]}"}
    assert [info["options"] for info in results[0][-1]] == [None] * 3


@each_place
def test_a_reset_needs_no_options_parameter(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.AgymVecEnv([Old], **options)
    vec_env.seed(1)
    vec_env.reset()
    vec_env.close()


class Old(Tally):
    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


@each_place
def test_rewards_are_float32_and_what_was_given_stays(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally] * 2, **options)
    observations = vec_env.reset()
    kept = observations.copy()
    results = vec_env.step(np.array([1, 2]))
    rewards, dones = results[1:3]
    assert rewards.dtype == np.float32
    assert dones.dtype == np.bool_
    vec_env.step(np.array([3, 4]))
    assert np.array_equal(observations, kept)
    assert np.array_equal(rewards, [1 + 1 / 16] * 2)
    vec_env.close()


@each_place
def test_bits_may_be_floats_as_sb3_samples_them(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.AgymVecEnv([Bits] * 2, **options)
    vec_env.reset()
    actions = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], np.float32)
    assert [info["action"] for info in vec_env.step(actions)[3]] == actions.tolist()
    with pytest.raises(ValueError, match="without loss"):
        vec_env.step(actions / 2)
    vec_env.close()


class Bits(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.MultiBinary(3)

    def step(self, action: Any) -> Any:
        observation, *rest, _ = super().step(0)
        assert action in self.action_space
        return observation, *rest, {"action": action.tolist()}


def test_a_reset_drops_the_pending_step(gates: Gates) -> None:
    options = {"backend": "thread", "workers": 3}
    vec_env = agym.sb3.AgymVecEnv(gates.factories, **options)
    vec_env.reset()
    vec_env.step_async([1, 1, 1])
    with pytest.raises(agym.BusyError):
        vec_env.step_async([0, 0, 0])
    for i in range(3):
        gates.open(i)
    observations = vec_env.reset()
    assert observations[:, 0].tolist() == [2, 2, 2]
    with pytest.raises(agym.NothingSentError):
        vec_env.step_wait()
    observations, *_, infos = vec_env.step([2, 3, 4])
    assert observations[:, 2].tolist() == [2, 3, 4]
    assert [info["action"] for info in infos] == [2, 3, 4]
    vec_env.close()


def test_a_second_step_is_refused_also_when_the_first_has_ended() -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally], backend="serial")
    vec_env.reset()
    vec_env.step_async([1])
    with pytest.raises(agym.BusyError, match="step_wait"):
        vec_env.step_async([2])
    assert vec_env.step_wait()[0][0, 2] == 1
    vec_env.close()


@each_place
def test_closing_with_a_step_pending(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally] * 2, **options)
    vec_env.reset()
    vec_env.step_async([0, 0])
    vec_env.close()
    vec_env.close()
    with pytest.raises(agym.ClosedError):
        vec_env.reset()
