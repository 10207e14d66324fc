"""What environments give as flags: all that NumPy takes as one, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import agym
from agym.testing import ScriptedEnv


class Ending(ScriptedEnv):
    """Returns its flags as another type; episodes with an even action are terminated."""

    def __init__(self, kind: Any) -> None:
        super().__init__(length=5)
        self._kind = kind

    def step(self, action: Any) -> Any:
        observation, reward, over, _, info = super().step(action)
        return (
            observation,
            reward,
            self._kind(over and action == 0),
            self._kind(over and action),
            info,
        )


def make(kind: Any, n: int) -> Any:
    options: Any = {"backend": "serial", "output": "array", "autoreset": "next_step"}
    return agym.make(lambda: Ending(kind), n, **options)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    "kind", [bool, np.bool_, int, float, lambda flag: np.array([flag]), lambda flag: flag or None]
)
def test_flags_of_every_kind(kind: Any, n: int) -> None:
    actions = [k % 2 for k in range(n)]
    with make(kind, n) as envs:
        envs.reset()
        for t in range(1, 14):
            _, _, terminated, truncated, _ = envs.step(actions)
            over = t % 6 == 5
            assert terminated.tolist() == [over and not action for action in actions]
            assert truncated.tolist() == [bool(over and action) for action in actions]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("kind", [lambda flag: [flag], lambda flag: (bool(flag),)])
def test_a_sequence_is_not_a_flag(kind: Any, n: int) -> None:
    """The truth of a list is whether it has elements."""
    with make(kind, n) as envs:
        envs.reset()
        with pytest.raises(agym.AgymError, match=r"a flag of type (list|tuple), which must be"):
            envs.step([0] * n)
