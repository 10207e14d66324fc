"""The oracle: bit-identical to gymnasium.vector.SyncVectorEnv, wherever environments live."""

from __future__ import annotations

import importlib
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate
from gymnasium.wrappers.vector import DictInfoToList

from tests.support.backends import FORK
from tests.support.drivers import each_api, opened
from tests.support.envs.plain_envs import Nested
from tests.support.equality import same, same_array, same_values

pytestmark = pytest.mark.usefixtures("own_folder")

STEPS = 500
SEED = 1234
MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}
each_mode = pytest.mark.parametrize("mode", MODES)

# The environments; limits make episodes end where a random policy would not end them.
LIMITS = {
    "CartPole-v1": None,
    "Nested": None,
    "Acrobot-v1": 120,
    "Pendulum-v1": None,
    "MountainCarContinuous-v0": 90,
    "FrozenLake-v1": None,
    "Blackjack-v1": None,
    "BitFlippingEnv": None,
    "ALE/Pong-v5": 130,
    "HumanoidStandup-v5": 110,
}
HEAVY = ["ALE/Pong-v5", "HumanoidStandup-v5"]
LIGHT = [name for name in LIMITS if name not in HEAVY]
NEEDS = {
    "ALE/Pong-v5": "ale_py", "HumanoidStandup-v5": "mujoco", "FrozenLake-v1": "pygame",
    "BitFlippingEnv": "stable_baselines3.common.envs",
}  # fmt: skip


def bit_flipping() -> Any:
    """Return an environment that has ``render_mode="human"`` by default, and needs no window."""
    env = importlib.import_module(NEEDS["BitFlippingEnv"]).BitFlippingEnv()
    env.seed(5)  # its resets take none
    return env


def factory_of(name: str) -> Any:
    """Return what both sides make the environment with."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} needs {NEEDS[name]}, not installed here")
    own = {"Nested": Nested, "BitFlippingEnv": bit_flipping}
    limit = {} if LIMITS[name] is None else {"max_episode_steps": LIMITS[name]}
    return own.get(name) or partial(gymnasium.make, gymnasium.spec(name), **limit)


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


def assert_same(ours: Any, theirs: Any, lists_of: gymnasium.Space[Any] | None) -> None:
    """Compare two results of reset or of step; ours are lists of what a batched space holds."""
    observations, *columns, infos = ours
    expected, *expected_columns, expected_infos = theirs
    if lists_of is None:
        assert same_values(observations, expected)
        assert all(map(same_array, columns, expected_columns))
    else:
        pairs = zip(observations, iterate(lists_of, expected), strict=True)
        assert all(same_values(*pair) for pair in pairs)
        assert same(columns, [column.tolist() for column in expected_columns])
    for info, expected_info in zip(infos, expected_infos, strict=True):
        assert_same_info(info, expected_info)


def run(name: str, n: int, mode: str, api: str, **options: Any) -> None:
    """Play ``STEPS`` seeded steps on both and compare everything."""
    factory = factory_of(name)
    output = "list" if api == "sync" else "array"
    ends = 0
    theirs = DictInfoToList(SyncVectorEnv([factory] * n, autoreset_mode=MODES[mode]))
    with (
        closing(theirs),
        opened(api, factory, n, autoreset=mode, output=output, **options) as ours,
    ):
        lists_of = theirs.observation_space if output == "list" else None
        theirs.action_space.seed(SEED)
        assert_same(ours.reset(seed=SEED), theirs.reset(seed=SEED), lists_of)
        for _ in range(STEPS):
            batch = theirs.action_space.sample()
            actions = [*iterate(theirs.action_space, batch)] if output == "list" else batch
            expected = theirs.step(batch)
            assert_same(ours.step(actions), expected, lists_of)
            ends += int((expected[2] | expected[3]).sum())
    assert ends, "no episode ended: the test says nothing about autoreset"


@each_api
@each_mode
@pytest.mark.parametrize("name", LIGHT)
def test_serial(name: str, mode: str, api: str) -> None:
    run(name, 5, mode, api, backend="serial")


@pytest.mark.once
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@each_api
@each_mode
@pytest.mark.parametrize("name", LIGHT[:2])
def test_process(name: str, mode: str, api: str, workers: int) -> None:
    run(name, 5, mode, api, backend=FORK, workers=workers)


@pytest.mark.full
@pytest.mark.parametrize(("mode", "api"), [("next_step", "async"), ("same_step", "sync")])
@pytest.mark.parametrize(
    ("name", "n", "options"),
    [
        *((name, 5, {"backend": FORK, "workers": 3}) for name in LIGHT[2:]),
        *((name, 3, {"backend": FORK, "workers": 2}) for name in HEAVY),
        *((name, 3, {"backend": "serial"}) for name in HEAVY),
    ],
)
def test_others(name: str, n: int, options: dict[str, Any], mode: str, api: str) -> None:
    run(name, n, mode, api, **options)
