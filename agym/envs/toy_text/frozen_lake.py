"""FrozenLake-v1: cross a frozen lake without falling into a hole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import MAPS

from agym.envs.gymnasium_pictures import gymnasium_picture
from agym.envs.toy_text.maps import walked

GYMNASIUM = "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv"

# By action, the rows down and the columns to the right: left, down, right and up.
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))

# Tiles, which are also the indices of `reward_schedule`.
GOAL, HOLE, FROZEN = 0, 1, 2

# The value of `last_action` before the first step.
NONE = -1

STATE = np.dtype(
    [
        ("row", np.int64), ("column", np.int64), ("last_action", np.int64), ("prob", float),
        ("is_slippery", bool), ("success_rate", float), ("reward_schedule", float, (3,)),
    ]
)  # fmt: skip


def frozen_lake(
    rows: Sequence[str],
    *,
    name: str = "FrozenLake",
    max_episode_steps: int | None = None,
    reward_threshold: float | None = None,
) -> Any:
    """Return the rule book of Gymnasium's ``FrozenLake-v1`` on a map.

    Example:
        >>> lake = frozen_lake(["SFF", "FHF", "FFG"], max_episode_steps=50)
        >>> lake.observation_space
        Discrete(9)

    Action: 0 goes to the left, 1 down, 2 to the right, 3 up. Observation: ``row * columns +
    column``. With ``is_slippery``, the player goes in this direction with probability
    ``success_rate``, and otherwise to one of the two sides. ``reward_schedule`` has the rewards of
    the goal, of a hole and of any other tile; goal and holes end the episode. An info has the
    probability of the step.

    Args:
        rows: Strings of equal lengths: S is a start, F is frozen, H a hole, G a goal.
        name: Name of the class.
        max_episode_steps: Steps after which an episode is truncated.
        reward_threshold: Mean return at which the task counts as solved.

    Returns:
        A class, for :func:`agym.vectorize`.

    Raises:
        ValueError: The map has other letters, unequal rows or no start.
    """
    check_map(rows)
    height, width = len(rows), len(rows[0])
    tiles = np.array([["GHF".find(letter.replace("S", "F")) for letter in row] for row in rows])
    starts = np.flatnonzero([letter == "S" for row in rows for letter in row])
    count = len(starts)
    limit, threshold, desc = max_episode_steps, reward_threshold, tuple(rows)

    class Lake:
        state = STATE
        observation_space = spaces.Discrete(height * width)
        action_space = spaces.Discrete(4)
        parameters = {  # noqa: RUF012
            "is_slippery": True,
            "success_rate": 1.0 / 3.0,
            "reward_schedule": (1.0, 0.0, 0.0),
        }
        max_episode_steps = limit
        reward_threshold = threshold
        metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012
        info_dtype = np.dtype([("prob", float)])

        @staticmethod
        def reset(state: Any, rng: Any) -> None:
            start = starts[rng.integers(0, count) if count > 1 else 0]
            state.row = start // width
            state.column = start % width
            state.last_action = NONE
            state.prob = 1.0

        @staticmethod
        def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
            state.last_action = action
            state.prob = 1.0
            if tiles[state.row, state.column] != FROZEN:  # the episode has ended before
                return 0.0, True
            way = slipped(state, action, rng.random()) if state.is_slippery else action
            move = MOVES[way]
            state.row, state.column = walked(state.row, state.column, move, height, width)
            tile = tiles[state.row, state.column]
            return state.reward_schedule[tile], tile != FROZEN

        @staticmethod
        def observe(state: Any, out: Any) -> None:
            out[0] = state.row * width + state.column

        @staticmethod
        def info(state: Any, out: Any) -> None:
            out.prob = state.prob

        @staticmethod
        def check(success_rate: float, **_: Any) -> None:
            if not 0 <= success_rate <= 1:
                raise ValueError(f"success_rate={success_rate} must be between 0 and 1")

        @staticmethod
        def render(state: Any, mode: str) -> Any:
            action = None if state.last_action == NONE else state.last_action
            drawn = {"s": state.row * width + state.column, "lastaction": action}
            return gymnasium_picture(GYMNASIUM, mode, drawn, desc=desc)

    Lake.__name__ = Lake.__qualname__ = name
    Lake.__doc__ = f"Gymnasium's ``FrozenLake-v1`` on {height} × {width} tiles."
    return Lake


def check_map(rows: Sequence[str]) -> None:
    """Check a map.

    Raises:
        ValueError: The map has other letters, unequal rows or no start.
    """
    letters = "".join(rows)
    if not letters or len({len(row) for row in rows}) != 1:
        raise ValueError(f"the rows of the map {rows!r} must be of one length")
    if set(letters) - set("SFHG") or "S" not in letters:
        raise ValueError(f"the map {rows!r} must consist of S, F, H and G, with at least one S")


def slipped(state: Any, action: int, drawn: float) -> int:
    """Return the direction of a step on ice, and note its probability.

    ``drawn`` is from [0, 1).
    """
    ahead = state.success_rate
    aside = (1.0 - ahead) / 2.0
    turn = 0
    if drawn < aside:
        turn = -1
    elif drawn >= aside + ahead:
        turn = 1
    state.prob = ahead if turn == 0 else aside
    return (action + turn) & 3


FrozenLake = frozen_lake(MAPS["4x4"], max_episode_steps=100, reward_threshold=0.7)

FrozenLake8x8 = frozen_lake(
    MAPS["8x8"], name="FrozenLake8x8", max_episode_steps=200, reward_threshold=0.85
)
