"""Games: the interface of the four implementations of a batch of Pong.

::

    scalar.py      one game after the other, in plain Python
    vectorised.py  all games at once, with array operations
    compiled.py    one game after the other, compiled by numba, on one core or on all
    cuda.py        all games at once, a thread of a CUDA device per game
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from agym.envs.pong.game import BEFORE, CELLS, DISABLED, NEXT_STEP, SAME_STEP
from agym.envs.pong.rules import BALL, FULL_SKILL, HALF, HEIGHT, PADDLE, WIDTH, mix
from agym.errors import UsageError

Array: TypeAlias = NDArray[Any]

MODES = {
    AutoresetMode.NEXT_STEP: NEXT_STEP,
    AutoresetMode.SAME_STEP: SAME_STEP,
    AutoresetMode.DISABLED: DISABLED,
}


@dataclass(frozen=True)
class Setup:
    """Settings that all games of a batch share; see :func:`agym.envs.pong.game.take_turn`.

    Attributes:
        players: Number of players whose actions are given.
        points: Points that win.
        skill: Skill of the scripted opponent, in 65536ths.
        limit: Maximum number of steps of an episode, 0 for no limit.
        mode: Autoreset mode.
    """

    players: int
    points: int = 1
    skill: int = FULL_SKILL
    limit: int = 0
    mode: int = DISABLED

    @classmethod
    def of(
        cls,
        players: int,
        points: int = 1,
        skill: float = 1.0,
        limit: int | None = None,
        mode: AutoresetMode = AutoresetMode.DISABLED,
    ) -> Setup:
        """Check a user's arguments.

        Raises:
            UsageError: An argument is out of range.
        """
        if not isinstance(points, int | np.integer) or points < 1:
            raise UsageError(f"points={points!r} must be a number of points: 1 or more")
        if not 0 <= skill <= 1:
            raise UsageError(
                f"skill={skill!r} must be the opponent's chance to pay attention: from 0 to 1"
            )
        if limit is not None and limit < 1:
            raise UsageError(f"max_episode_steps={limit!r} must be 1 or more, or None")
        return cls(
            players, int(points), round(skill * FULL_SKILL), limit or 0, MODES[AutoresetMode(mode)]
        )


class Games(ABC):
    """A batch of games.

    Attributes:
        cells: Cells of the games, ``uint8[count, HEIGHT, WIDTH]``, written in place.
        finals: Last cells of games that were replaced in the same step, the same shape.
    """

    cells: Array
    finals: Array

    def __init__(self, count: int, setup: Setup) -> None:
        self.count, self.setup = count, setup
        self.cells = np.empty((count, HEIGHT, WIDTH), np.uint8)
        self.cells[:] = first_picture()
        self.finals = np.empty_like(self.cells) if setup.mode == SAME_STEP else self.cells

    @abstractmethod
    def begin(self, mask: Array, keys: Array, seeded: Array) -> None:
        """Replace the games of ``mask`` by new ones.

        Args:
            mask: ``bool[count]``.
            keys: Keys of the games with a new seed, ``int64[count]``.
            seeded: Which games have a new seed, ``bool[count]``.
        """

    @abstractmethod
    def turn(self, actions: Array, rewards: Array, terminated: Array, truncated: Array) -> None:
        """Play a step of all games, with actions ``int64[count, players]``.

        Writes ``float64[count]`` rewards and both flags ``bool[count]``.
        """

    def close(self) -> None:
        """Free memory outside of this process."""


def first_picture() -> Array:
    """Return the grid before the first game."""
    grid = np.zeros((HEIGHT, WIDTH), np.uint8)
    row, column, _, _, left, right, *_ = BEFORE
    grid[left - HALF : left + HALF + 1, 0] = PADDLE
    grid[right - HALF : right + HALF + 1, WIDTH - 1] = PADDLE
    grid[row, column] = BALL
    assert grid.size == CELLS
    return grid


def as_bytes(cells: Array) -> memoryview:
    """Return a view of the same memory in which writing single cells is faster."""
    return memoryview(cells.reshape(-1).data)


def key_of(seed: int) -> int:
    """Return the 32-bit key of all random bits of a seed."""
    key = 1
    while True:
        key = mix(key ^ mix(seed & 0xFFFFFFFF))
        seed >>= 32
        if not seed:
            return key
