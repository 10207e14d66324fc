"""What comes through agym is, bit for bit, what the vector environment gives by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList
from hypothesis import example, given
from hypothesis import strategies as st

import agym
from agym.core.hosts.episode import MODES
from agym.testing import any_spaces, assert_same
from agym.testing.random_env import RandomEnv
from tests.support.core_selection import examples
from tests.support.drivers import each_api, played
from tests.support.envs.vector_envs import Tally

NUM_ENVS = 5


def cartpoles(num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Any:
    make = partial(gymnasium.make, "CartPole-v1")
    return SyncVectorEnv([make] * num_envs, autoreset_mode=autoreset_mode)


def compare(api: str, env: Any, make: Any, steps: int, **options: Any) -> int:
    """Play both; return how many episodes ended."""
    ended, plain = 0, DictInfoToList(make(NUM_ENVS))
    with played(api, env, NUM_ENVS, backend="vector", **options) as envs:
        rng = np.random.default_rng(3)
        assert_same(tuple(envs.reset(seed=11)), plain.reset(seed=11))
        for _ in range(steps):
            actions = rng.integers(envs.single_action_space.n, size=NUM_ENVS)
            *columns, infos = plain.step(actions)
            columns[1] = columns[1].astype(np.float64)  # rewards
            for one in infos:
                one.setdefault("final_info", {}) if "final_obs" in one else None
            assert_same(tuple(envs.step(actions)), (*columns, infos))
            ended += int((columns[2] | columns[3]).sum())
    plain.close()
    return ended


CARTPOLE = partial(CartPoleVectorEnv, max_episode_steps=500)


@each_api
@pytest.mark.parametrize(
    ("env", "make", "mode"),
    [
        pytest.param("CartPole-v1", CARTPOLE, "next_step", id="registered"),
        pytest.param(cartpoles, cartpoles, "next_step", id="next_step"),
        pytest.param(
            cartpoles, partial(cartpoles, autoreset_mode=MODES["same_step"]), "same_step",
            id="same_step",
        ),
        pytest.param(Tally, Tally, "next_step", id="infos with masks"),
    ],
)  # fmt: skip
def test_results_are_those_of_the_program(api: str, env: Any, make: Any, mode: str) -> None:
    assert compare(api, env, make, 300, autoreset=mode) > 20


@pytest.mark.full
@each_api
def test_atari(api: str) -> None:
    ale_py = pytest.importorskip("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    vector = pytest.importorskip("ale_py.vector_env").AtariVectorEnv
    keywords = {"game": "pong", "max_num_frames_per_episode": 120, "noop_max": 30}
    for mode in ("next_step", "same_step"):
        make = partial(vector, autoreset_mode=MODES[mode], **keywords)
        ended = compare(api, vector, lambda n, make=make: make(num_envs=n), 100,
                        autoreset=mode, **keywords)  # fmt: skip
        assert ended >= 15


@pytest.mark.filterwarnings("ignore:.*Casting input x")  # SyncVectorEnv passes scalars on
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@examples(25)
@given(any_spaces(), any_spaces(), st.integers(1, 4), st.integers(0, 1000))
@example(spaces.Tuple([spaces.Box(0, 100, (), np.uint8)]), spaces.Discrete(3), 1, 0)
def test_any_spaces(
    mode: str, observation_space: Space[Any], action_space: Space[Any], num_envs: int, seed: int
) -> None:
    env = partial(RandomEnv, observation_space, action_space)

    def make(num_envs: int) -> Any:
        return SyncVectorEnv([env] * num_envs, autoreset_mode=MODES[mode])

    with agym.make(env, num_envs, backend="serial", autoreset=mode, output="array") as theirs:
        vector: dict[str, Any] = {"backend": "vector", "autoreset": mode, "output": "array"}
        with agym.make(make, num_envs, **vector) as ours:
            assert_same(ours.reset(seed=seed).observations, theirs.reset(seed=seed).observations)
            ours.action_space.seed(seed)
            for _ in range(15):
                actions = ours.action_space.sample()
                mine, plain = ours.step(actions), theirs.step(actions)
                assert_same(mine[:4], plain[:4])
                for one, other in zip(mine.infos, plain.infos, strict=True):
                    assert one.keys() == other.keys()
                    assert_same(one.get("final_obs"), other.get("final_obs"))
            assert ours.render() == theirs.render()


@each_api
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("own", MODES)
@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_modes_that_the_program_lacks(api: str, workers: int, own: str, mode: str) -> None:
    """Results equal those of ``serial``, whatever the mode of the program."""
    make = partial(cartpoles, autoreset_mode=MODES[own])
    vector = played(api, make, 5, backend="vector", workers=workers, autoreset=mode)
    with played(api, "CartPole-v1", 5, backend="serial", autoreset=mode) as theirs, vector as ours:
        assert_same(ours.reset(seed=3), theirs.reset(seed=3))
        rng = np.random.default_rng(1)
        ended = np.zeros(5, bool)
        for k in range(100):
            actions = rng.integers(2, size=5)
            mine = ours.step(actions)
            assert_same(mine, theirs.step(actions))
            ended |= mine.terminated
            if k == 60 and mode == "disabled":
                some = [env.reset(seed=[9, 5, 7], env_ids=[4, 1, 2]) for env in (ours, theirs)]
                assert_same(*some)
        assert ended.all()
        assert_same(ours.reset(seed=4), theirs.reset(seed=4))
        episodes = [[env.episodes for env in envs.stats().envs] for envs in (ours, theirs)]
        assert episodes[0] == episodes[1]
