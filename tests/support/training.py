"""Courses: all that a ``VecEnv`` gives in a number of steps, to hold two of them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from agym.testing.random_env import RandomEnv
from tests.support.backends import OF_ENVS
from tests.support.equality import same_values

# Imports SB3 for all tests here, which are skipped without it.
vec_envs = pytest.importorskip("stable_baselines3.common.vec_env", reason="the extra `sb3`")

each_place = pytest.mark.parametrize("options", OF_ENVS.values(), ids=OF_ENVS)

BOX = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "box": BOX,
    "image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "discrete": spaces.Discrete(7, start=-2),
    "bits": spaces.MultiBinary(3),
    "dict": spaces.Dict({"b": BOX, "a": spaces.Discrete(5), "c": spaces.MultiDiscrete([2, 3])}),
    "tuple": spaces.Tuple((BOX, spaces.Discrete(5))),
}


def random_envs(observations: str, count: int = 5) -> list[Callable[[], RandomEnv]]:
    return [partial(RandomEnv, OBSERVATIONS[observations], spaces.Discrete(4))] * count


def course(vec_env: Any, steps: int, resets: Sequence[int] = ()) -> list[Any]:
    """All results; nothing is looked at before the end, so none may change meanwhile."""
    vec_env.action_space.seed(1)
    vec_env.seed(3)
    results: list[Any] = [(vec_env.reset(), [*vec_env.reset_infos])]
    for k in range(steps):
        if k in resets:
            results.append((vec_env.reset(), [*vec_env.reset_infos]))
        actions = np.array([vec_env.action_space.sample() for _ in range(vec_env.num_envs)])
        results.append((*vec_env.step(actions), [*vec_env.reset_infos]))
    vec_env.close()
    return [_timeless(result) for result in results]


def _timeless(value: Any) -> Any:
    """Leave out the seconds that a monitor tells."""
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if key != "t"}
    return type(value)(map(_timeless, value)) if isinstance(value, list | tuple) else value


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    for k, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert same_values(one, other), f"result {k}: {one} and {other}"
