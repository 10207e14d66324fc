"""AgymVecEnv gives what DummyVecEnv gives, to the last bit, wherever its environments live."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import agym
from agym.testing import Script, ScriptedEnv
from tests.support.envs.plain_envs import Tally
from tests.support.training import (
    OBSERVATIONS,
    assert_same,
    course,
    each_place,
    random_envs,
    vec_envs,
)

env_util = pytest.importorskip("stable_baselines3.common.env_util", reason="the extra `sb3`")


@each_place
@pytest.mark.parametrize("observations", OBSERVATIONS)
def test_every_space_gives_what_dummy_gives(observations: str, options: dict[str, Any]) -> None:
    functions = random_envs(observations)
    ours = course(agym.sb3.AgymVecEnv(functions, **options), 200, resets=[50, 51, 120])
    theirs = course(vec_envs.DummyVecEnv(functions), 200, resets=[50, 51, 120])
    assert_same(ours, theirs)
    assert sum(int(result[2].sum()) for result in ours if len(result) == 5) > 50


@each_place
def test_make_vec_env_makes_what_sb3_makes(options: dict[str, Any], tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "n_envs": 4, "seed": 5, "env_kwargs": {"sutton_barto_reward": True},
        "wrapper_class": partial(gymnasium.wrappers.TimeLimit, max_episode_steps=20),
    }  # fmt: skip
    results, files = [], []
    for name, make in (
        ("ours", partial(agym.sb3.make_vec_env, **options)),
        ("theirs", env_util.make_vec_env),
    ):
        envs = make("CartPole-v1", monitor_dir=str(tmp_path / name), **arguments)
        first = envs.reset()  # from the seed that was given
        assert envs.render_mode == "rgb_array"
        results.append([(first, envs.metadata), *course(envs, 150)])
        paths = sorted((tmp_path / name).iterdir())
        files.append([(path.name, len(path.read_text().splitlines())) for path in paths])
    assert_same(*results)
    ends = [
        info for *_, infos, _ in results[0][2:] for info in infos if "terminal_observation" in info
    ]
    assert {info["TimeLimit.truncated"] for info in ends} == {True, False}
    assert files[0] == files[1]
    assert [name for name, _ in files[0]] == [f"{i}.monitor.csv" for i in range(4)]


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
                said += [vec_env.step(np.zeros(3, int))[3], [*vec_env.reset_infos]]
        vec_env.reset()
        said.append([*vec_env.reset_infos])
        vec_env.close()
        results.append(said)
    assert_same(*results)
    assert [info["options"] for info in results[0][0]] == [{"a": [1]}] * 3
    assert [info["options"] for info in results[0][-1]] == [None] * 3


class Odd(Tally):
    """Takes bits, and resets without options."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.MultiBinary(3)

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        observation, *rest, _ = super().step(0)
        assert action in self.action_space
        return observation, *rest, {"action": action.tolist()}


@each_place
def test_bits_may_be_floats_as_sb3_samples_them(options: dict[str, Any]) -> None:
    """And an environment's reset needs no parameter for options."""
    vec_env = agym.sb3.AgymVecEnv([Odd] * 2, **options)
    vec_env.seed(1)
    vec_env.reset()
    actions = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], np.float32)
    assert [info["action"] for info in vec_env.step(actions)[3]] == actions.tolist()
    with pytest.raises(ValueError, match="without loss"):
        vec_env.step(actions / 2)
    vec_env.close()


def test_a_reset_drops_the_pending_step(script: Script) -> None:
    vec_env = agym.sb3.AgymVecEnv(script.factories(3, length=9), backend="thread", workers=3)
    vec_env.reset()
    for i in range(3):
        script.set(i, "step", "wait")
    vec_env.step_async([1, 1, 1])
    with pytest.raises(agym.BusyError):
        vec_env.step_async([0, 0, 0])
    for i in range(3):
        script.open(i)
    assert vec_env.reset()[:, 1].tolist() == [2, 2, 2]
    with pytest.raises(agym.NothingSentError):
        vec_env.step_wait()
    observations, *_, infos = vec_env.step([2, 3, 4])
    assert observations[:, 3].tolist() == [info["action"] for info in infos] == [2, 3, 4]
    vec_env.close()


@each_place
def test_steps_that_are_not_received(options: dict[str, Any]) -> None:
    """A second step is refused also when the first has ended, and closing drops it."""
    vec_env = agym.sb3.AgymVecEnv([ScriptedEnv] * 2, **options)
    vec_env.reset()
    for _ in range(2):
        vec_env.step_async([1, 1])
        with pytest.raises(agym.BusyError, match="step_wait"):
            vec_env.step_async([2, 2])
        assert vec_env.step_wait()[0][0, 3] == 1
    vec_env.step_async([0, 0])
    vec_env.close()
    vec_env.close()
    with pytest.raises(agym.ClosedError):
        vec_env.reset()


@each_place
def test_snapshots_of_single_environments(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.AgymVecEnv([ScriptedEnv] * 3, **options)
    vec_env.reset()
    observations, *_ = vec_env.step(np.array([1, 2, 3]))
    taken = vec_env.env_method("snapshot", indices=[2, 0])
    once, *_ = vec_env.step(np.array([4, 4, 4]))
    (observation,) = vec_env.env_method("restore", taken[0], indices=[-1])
    assert np.array_equal(observation, observations[2])
    again, *_ = vec_env.step(np.array([4, 4, 4]))
    assert np.array_equal(again[2], once[2])
    vec_env.close()
