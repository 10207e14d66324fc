"""What comes through agym is, bit for bit, what the vector environment gives by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import example, given
from hypothesis import strategies as st

import agym
from agym.core._system.extras import installed
from agym.testing import any_spaces, assert_same
from agym.testing.random_env import RandomEnv
from tests.support.core_selection import examples
from tests.support.drivers import APIS, played
from tests.support.envs.vector_envs import MODES, Tally, infos_of

each_api = pytest.mark.parametrize("api", APIS)
each_workers = pytest.mark.parametrize("workers", [1, 2])


def cartpoles(num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Any:
    make = partial(gymnasium.make, "CartPole-v1")
    return SyncVectorEnv([make] * num_envs, autoreset_mode=autoreset_mode)


class Plain:
    """Vector environments by hand, side by side: one for each worker's share."""

    def __init__(self, make: Callable[[int], Any], num_envs: int, workers: int) -> None:
        self.bounds = [num_envs * k // workers for k in range(workers + 1)]
        pairs = zip(self.bounds, self.bounds[1:], strict=False)
        self.envs = [make(stop - start) for start, stop in pairs]
        self.num_envs = num_envs

    def reset(self, seed: int) -> Any:
        results = [
            env.reset(seed=seed + first) for env, first in zip(self.envs, self.bounds, strict=False)
        ]
        return self._joined([result[:-1] for result in results], results)

    def step(self, actions: Any) -> Any:
        shares = np.split(actions, self.bounds[1:-1])
        results = [env.step(share) for env, share in zip(self.envs, shares, strict=True)]
        return self._joined([result[:-1] for result in results], results)

    def _joined(self, columns: Any, results: Any) -> Any:
        infos = []
        for env, result in zip(self.envs, results, strict=True):
            infos += infos_of(result[-1], env.num_envs)
        return [np.concatenate(parts) for parts in zip(*columns, strict=True)], infos

    def close(self) -> None:
        for env in self.envs:
            env.close()


def compare(api: str, env: Any, make: Any, steps: int, **options: Any) -> int:
    """Play both; gives how many episodes ended."""
    ended = 0
    workers = options.get("workers", 1)
    num_envs = 5
    plain = Plain(make, num_envs, workers)
    with played(api, env, num_envs, backend="vector", **options) as envs:
        rng = np.random.default_rng(3)
        (observations,), infos = plain.reset(seed=11)
        ours = envs.reset(seed=11)
        np.testing.assert_array_equal(ours.observations, observations)
        assert_same(ours.infos, infos)
        for _ in range(steps):
            actions = rng.integers(envs.single_action_space.n, size=num_envs)
            (observations, rewards, terminated, truncated), infos = plain.step(actions)
            ours = envs.step(actions)
            np.testing.assert_array_equal(ours.observations, observations)
            assert ours.observations.dtype == observations.dtype
            np.testing.assert_array_equal(ours.rewards, rewards)
            np.testing.assert_array_equal(ours.terminated, terminated)
            np.testing.assert_array_equal(ours.truncated, truncated)
            for one in infos:
                one.setdefault("final_info", {}) if "final_obs" in one else None
            assert_same(ours.infos, infos)
            ended += int((terminated | truncated).sum())
    plain.close()
    return ended


@each_api
@each_workers
def test_a_registered_vector_entry_point(api: str, workers: int) -> None:
    env = partial(CartPoleVectorEnv, max_episode_steps=500)
    options = {"workers": workers, "autoreset": "next_step"}
    assert compare(api, "CartPole-v1", env, 300, **options) > 20


@each_api
@each_workers
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_its_own_mode(api: str, workers: int, mode: str) -> None:
    make = partial(cartpoles, autoreset_mode=MODES[mode])
    assert compare(api, cartpoles, make, 300, workers=workers, autoreset=mode) > 20


@each_api
@each_workers
def test_infos_with_masks(api: str, workers: int) -> None:
    assert compare(api, Tally, Tally, 40, workers=workers, autoreset="next_step") > 20


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


@each_api
@pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")
def check_envpool(api: str) -> None:
    envpool = importlib.import_module("envpool")

    def make(num_envs: int, seed: int = 4, **keywords: Any) -> Any:
        return envpool.make_gymnasium("CartPole-v1", num_envs=num_envs, seed=seed, **keywords)

    plain = make(5)
    with played(api, make, 5, backend="vector", workers=2, autoreset="next_step", seed=4) as envs:
        observations, info = plain.reset()
        ours = envs.reset()
        np.testing.assert_array_equal(ours.observations, observations)
        rng = np.random.default_rng(0)
        ended = 0
        for _ in range(300):
            actions = rng.integers(2, size=5)
            *columns, info = plain.step(actions)
            ours = envs.step(actions)
            for mine, theirs in zip(ours[:4], columns, strict=True):
                np.testing.assert_array_equal(mine, theirs)
            elapsed = [info["elapsed_step"] for info in ours.infos]
            assert elapsed == info["elapsed_step"].tolist()
            ended += int(columns[1].sum())
        assert ended > 10
        some = envs.reset(env_ids=[1, 4])
        expected = ours.observations.copy()
        rows, _ = plain.reset(options={"reset_mask": np.array([0, 1, 0, 0, 1], bool)})
        expected[[1, 4]] = rows
        np.testing.assert_array_equal(some.observations, expected)
    plain.close()


if installed("envpool"):
    test_envpool = check_envpool


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
@each_workers
@pytest.mark.parametrize("own", MODES)
def test_finished_environments_hold_still(api: str, workers: int, own: str) -> None:
    """The same from every mode of the program: what serial gives."""
    make = partial(cartpoles, autoreset_mode=MODES[own])
    vector = played(api, make, 5, backend="vector", workers=workers)
    with played(api, "CartPole-v1", 5, backend="serial") as theirs, vector as ours:
        assert_same(ours.reset(seed=3), theirs.reset(seed=3))
        rng = np.random.default_rng(1)
        ended = np.zeros(5, bool)
        for k in range(80):
            actions = rng.integers(2, size=5)
            mine = ours.step(actions)
            assert_same(mine, theirs.step(actions))
            ended |= mine.terminated
            if k == 60:
                mine, plain = (
                    envs.reset(seed=[9, 5, 7], env_ids=[4, 1, 2]) for envs in (ours, theirs)
                )
                assert_same(mine, plain)
        assert ended.all()
        assert_same(ours.reset(seed=4), theirs.reset(seed=4))
        episodes = [[env.episodes for env in envs.stats().envs] for envs in (ours, theirs)]
        assert episodes[0] == episodes[1]


@each_api
@pytest.mark.parametrize("own", ["next_step", "disabled"])
def test_same_step_where_the_program_resets_some(api: str, own: str) -> None:
    make = partial(cartpoles, autoreset_mode=MODES[own])
    vector = played(api, make, 5, backend="vector", autoreset="same_step")
    serial = played(api, "CartPole-v1", 5, backend="serial", autoreset="same_step")
    with serial as theirs, vector as ours:
        assert_same(ours.reset(seed=3), theirs.reset(seed=3))
        rng = np.random.default_rng(1)
        ended = 0
        for _ in range(100):
            actions = rng.integers(2, size=5)
            mine = ours.step(actions)
            assert_same(mine, theirs.step(actions))
            ended += int(mine.terminated.sum())
        assert ended > 5


def test_dict_and_tuple_spaces_by_hand() -> None:
    space = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Tuple([spaces.Discrete(4)] * 2))
    make = partial(RandomEnv, space, spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]))
    plain = SyncVectorEnv([make] * 3)
    options: dict[str, Any] = {"backend": "vector", "autoreset": "next_step", "output": "array"}
    with agym.make(lambda num_envs: SyncVectorEnv([make] * num_envs), 3, **options) as envs:
        assert_same(envs.reset(seed=1).observations, plain.reset(seed=1)[0])
        for _ in range(30):
            actions = envs.action_space.sample()
            mine, theirs = envs.step(actions), plain.step(actions)
            assert_same(list(mine[:4]), list(theirs[:4]))
    plain.close()
