"""The oracle: bit-identical to gymnasium.vector.SyncVectorEnv, wherever environments live."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from tests.support.backends import FORK
from tests.support.drivers import APIS, opened
from tests.support.envs.plain_envs import Nested
from tests.support.equality import same, same_array, same_values

pytestmark = pytest.mark.usefixtures("own_folder")

STEPS = 500
MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}

# Limits make episodes end within the test, where a random policy would not end them.
LIMITS = {
    "CartPole-v1": None,
    "Acrobot-v1": 120,
    "Pendulum-v1": None,
    "MountainCarContinuous-v0": 90,
    "FrozenLake-v1": None,
    "Blackjack-v1": None,
    "ALE/Pong-v5": 130,
    "HumanoidStandup-v5": 110,
    "Nested": 40,
}
LIGHT = tuple(name for name in LIMITS if name not in ("ALE/Pong-v5", "HumanoidStandup-v5"))
HEAVY = ("ALE/Pong-v5", "HumanoidStandup-v5")
NEEDS = {"ALE/Pong-v5": "ale_py", "HumanoidStandup-v5": "mujoco", "FrozenLake-v1": "pygame"}
SEED = 1234


def factory(name: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    """How both sides make the environment."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} needs {NEEDS[name]}, not installed here")
    if name.startswith("ALE/"):
        importlib.import_module("ale_py")
    if name == "Nested":
        return Nested
    limit = {} if LIMITS[name] is None else {"max_episode_steps": LIMITS[name]}
    return partial(gymnasium.make, gymnasium.spec(name), **limit)


def single_info(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """The info of one environment, out of Gymnasium's dict of arrays and masks."""
    return {
        key: single_info(column, i) if isinstance(column, dict) else column[i]
        for key, column in infos.items()
        if not key.startswith("_") and infos[f"_{key}"][i]
    }


def assert_same_info(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare infos; Gymnasium has cast a number to the type of the first environment's."""
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        if key == "final_obs":
            assert same_values(ours[key], value)
        elif isinstance(value, dict):
            assert_same_info(ours[key], value)
        elif isinstance(value, np.ndarray | np.generic):
            assert np.array_equal(np.asarray(ours[key]).astype(value.dtype), value), key
        else:
            assert ours[key] == value, key


class Oracle:
    """Gymnasium's own vector environment and its actions, compared step by step with ours."""

    def __init__(self, name: str, n: int, mode: str, output: str) -> None:
        self.factory = factory(name)
        self._vector = SyncVectorEnv([self.factory] * n, autoreset_mode=MODES[mode])
        self._vector.action_space.seed(SEED)
        self._n = n
        self._list = output == "list"
        self.ends = 0

    def reset(self) -> Any:
        return self._vector.reset(seed=SEED)

    def actions(self) -> Any:
        batch = self._vector.action_space.sample()
        if self._list:
            return batch, list(iterate(self._vector.action_space, batch))
        return batch, batch

    def step(self, actions: Any) -> Any:
        result = self._vector.step(actions)
        self.ends += int((result[2] | result[3]).sum())
        return result

    def assert_same(self, ours: Any, theirs: Any) -> None:
        """Compare two results of reset or of step."""
        observations, *columns, infos = ours
        their_observations, *their_columns, their_infos = theirs
        if self._list:
            their_observations = list(iterate(self._vector.observation_space, their_observations))
            assert len(observations) == self._n
            assert all(map(same_values, observations, their_observations))
            assert same(columns, [column.tolist() for column in their_columns])
        else:
            assert same(_plain(observations), _plain(their_observations))
            assert all(map(same_array, columns, their_columns))
        for i in range(self._n):
            assert_same_info(infos[i], single_info(their_infos, i))

    def close(self) -> None:
        self._vector.close()


def _plain(batch: Any) -> Any:
    """Without the dict types that Gymnasium nests by."""
    if isinstance(batch, dict):
        return {key: _plain(value) for key, value in batch.items()}
    return tuple(map(_plain, batch)) if isinstance(batch, tuple) else batch


def run(name: str, n: int, mode: str, api: str, **options: Any) -> None:
    """Play ``STEPS`` seeded steps on both and compare everything."""
    output = "list" if api == "sync" else "array"
    oracle = Oracle(name, n, mode, output)
    try:
        with opened(api, oracle.factory, n, autoreset=mode, output=output, **options) as envs:
            oracle.assert_same(envs.reset(seed=SEED), oracle.reset())
            for _ in range(STEPS):
                batch, actions = oracle.actions()
                oracle.assert_same(envs.step(actions), oracle.step(batch))
    finally:
        oracle.close()
    assert oracle.ends > 0, "no episode ended: the test says nothing about autoreset"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LIGHT)
def test_serial(name: str, mode: str, api: str) -> None:
    run(name, 5, mode, api, backend="serial")


@pytest.mark.once
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["CartPole-v1", "Nested"])
def test_process(name: str, mode: str, api: str, workers: int) -> None:
    run(name, 5, mode, api, backend=FORK, workers=workers)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "api", "workers"),
    [
        ("next_step", "sync", 4),
        ("next_step", "async", 3),
        ("same_step", "sync", 2),
        ("same_step", "async", 1),
    ],
)
@pytest.mark.parametrize("name", [name for name in LIGHT if name not in ("CartPole-v1", "Nested")])
def test_process_others(name: str, mode: str, api: str, workers: int) -> None:
    run(name, 5, mode, api, backend=FORK, workers=workers)


@pytest.mark.parametrize(
    ("api", "options"),
    [
        ("sync", {"backend": "serial"}),
        ("async", {"backend": FORK, "workers": 2}),
    ],
    ids=["serial-sync", "process-async"],
)
@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HEAVY)
def test_heavy(name: str, mode: str, api: str, options: dict[str, Any]) -> None:
    run(name, 3, mode, api, **options)
