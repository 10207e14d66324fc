"""What environments give as flags: all that NumPy takes as one, and nothing else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import agym


class Ending(gym.Env[Any, Any]):
    """Its fifth step ends the episode, by a flag of a given kind."""

    observation_space = gym.spaces.Discrete(100)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        over = self._steps == 5
        return self._steps, 1.0, self._kind(over and action == 0), self._kind(over and action), {}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    "kind", [bool, np.bool_, int, float, lambda flag: np.array([flag]), lambda flag: flag or None]
)
def test_flags_of_every_kind(kind: Any, n: int) -> None:
    actions = [k % 2 for k in range(n)]
    with agym.make(
        lambda: Ending(kind), n, backend="serial", output="array", autoreset="next_step"
    ) as envs:
        envs.reset()
        for t in range(1, 14):
            _, _, terminated, truncated, _ = envs.step(actions)
            over = t % 6 == 5
            assert terminated.tolist() == [over and not action for action in actions]
            assert truncated.tolist() == [bool(over and action) for action in actions]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("kind", [lambda flag: [flag], lambda flag: (bool(flag),)])
def test_a_sequence_is_no_flag(kind: Any, n: int) -> None:
    """The truth of a list is whether it has elements."""
    with agym.make(
        lambda: Ending(kind), n, backend="serial", output="array", autoreset="next_step"
    ) as envs:
        envs.reset()
        with pytest.raises(
            agym.AgymError, match=r"a flag of type (list|tuple), which must be True or False"
        ):
            envs.step([0] * n)
