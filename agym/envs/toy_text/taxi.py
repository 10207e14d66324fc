"""Taxi-v4: fetch a passenger, and take them where they want to go."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.gymnasium_pictures import gymnasium_picture

GYMNASIUM = "gymnasium.envs.toy_text.taxi:TaxiEnv"

SIZE = 5
SOUTH, NORTH, EAST, WEST, PICK_UP, DROP_OFF = 0, 1, 2, 3, 4, 5
ACTIONS = 6
# By direction, the rows to the south and the columns to the east.
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))

# A colon is a passage between two columns, and a bar is a wall.
MAP = (
    "|R: | : :G|",
    "| : | : : |",
    "| : : : : |",
    "| | : | : |",
    "|Y| : |B: |",
)

# Passages on the western side of a square; the last column is the eastern wall.
PASSAGES = np.array([[letter == ":" for letter in row[::2]] for row in MAP])

# The stand on a square, 0 to 3, or none.
NO_STAND, STANDS = -1, np.array([["RGYB".find(letter) for letter in row[1::2]] for row in MAP])
STANDS[STANDS < 0] = NO_STAND

# The passenger's location in the taxi; the other locations are stands.
IN_TAXI = 4

# The value of `last_action` before the first step.
NONE = -1


class Taxi:
    """Gymnasium's ``Taxi-v4``.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(Taxi, 4, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4,)

    Action: 0 goes south, 1 north, 2 east, 3 west, 4 picks up, 5 drops off. Observation: ``((row * 5
    + column) * 5 + passenger) * 4 + destination``. Reward: -1 per step, 20 for a delivery, which
    ends the episode, and -10 for an impossible pick-up or drop-off. An info has the probability of
    the step, and a mask of the actions that change the state.

    With ``is_rainy``, the taxi goes in the direction of the action with probability
    ``rainy_probability``, and otherwise to one of the two sides. With ``fickle_passenger``, the
    passenger's destination changes during the first ride with probability ``fickle_probability``.

    From T. G. Dietterich, "Hierarchical Reinforcement Learning with the MAXQ Value Function
    Decomposition" (2000), as in ``gymnasium/envs/toy_text/taxi.py``.
    """

    state = np.dtype(
        [
            ("row", np.int64), ("column", np.int64), ("passenger", np.int64),
            ("destination", np.int64), ("prob", float), ("changes_mind", bool),
            ("last_action", np.int64), ("heading", np.int64), ("is_rainy", bool),
            ("fickle_passenger", bool), ("rainy_probability", float), ("fickle_probability", float),
        ]
    )  # fmt: skip
    observation_space = spaces.Discrete(SIZE * SIZE * 5 * 4)
    action_space = spaces.Discrete(ACTIONS)
    parameters = {  # noqa: RUF012
        "is_rainy": False,
        "fickle_passenger": False,
        "rainy_probability": 0.8,
        "fickle_probability": 0.3,
    }
    max_episode_steps = 200
    reward_threshold = 8
    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012
    info_dtype = np.dtype([("prob", float), ("action_mask", np.int8, (ACTIONS,))])

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.row = rng.integers(0, SIZE)
        state.column = rng.integers(0, SIZE)
        state.passenger = rng.integers(0, 4)
        state.destination = other_stand(state.passenger, rng.integers(0, 3))
        state.changes_mind = state.fickle_passenger and rng.random() < state.fickle_probability
        state.prob = 1.0
        state.last_action = NONE

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.last_action = action
        state.prob = 1.0
        if action == PICK_UP:
            return pick_up(state), False
        if action == DROP_OFF:
            return drop_off(state)
        state.heading = action
        way = action
        if state.is_rainy:
            way = drifted(state, action, rng.random())
        row, column = state.row, state.column
        if is_open(row, column, action):
            state.row, state.column = driven(row, column, way)
        moved = row != state.row or column != state.column
        if moved and state.changes_mind and state.passenger == IN_TAXI:
            state.changes_mind = False
            state.destination = other_stand(state.destination, rng.integers(0, 3))
        return -1.0, False

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = observed(state)

    @staticmethod
    def info(state: Any, out: Any) -> None:
        row, column = state.row, state.column
        stand = STANDS[row, column]
        riding = state.passenger == IN_TAXI
        out.prob = state.prob
        for way in range(4):
            out.action_mask[way] = is_open(row, column, way)
        out.action_mask[PICK_UP] = not riding and stand == state.passenger
        out.action_mask[DROP_OFF] = riding and stand != NO_STAND

    @staticmethod
    def check(rainy_probability: float, fickle_probability: float, **_: Any) -> None:
        if not 0 <= rainy_probability <= 1 or not 0 <= fickle_probability <= 1:
            raise ValueError(
                f"rainy_probability={rainy_probability} and"
                f" fickle_probability={fickle_probability} must be between 0 and 1"
            )

    @staticmethod
    def render(state: Any, mode: str) -> Any:
        drawn = {
            "s": observed(state),
            "lastaction": None if state.last_action == NONE else state.last_action,
            "taxi_orientation": state.heading,
        }
        return gymnasium_picture(GYMNASIUM, mode, drawn)


def observed(state: Any) -> int:
    """Return the observation of a state."""
    place: int = (state.row * SIZE + state.column) * 5 + state.passenger
    return place * 4 + state.destination  # type: ignore[no-any-return]


def other_stand(stand: int, drawn: int) -> int:
    """Return one of the three other stands, for a number from 0 to 2."""
    return drawn if drawn < stand else drawn + 1


def pick_up(state: Any) -> float:
    """Pick up the passenger; return the reward."""
    if STANDS[state.row, state.column] == state.passenger:
        state.passenger = IN_TAXI
        return -1.0
    return -10.0


def drop_off(state: Any) -> tuple[float, bool]:
    """Drop off the passenger; return the reward, and whether this is their destination."""
    stand = STANDS[state.row, state.column]
    if state.passenger != IN_TAXI or stand == NO_STAND:
        return -10.0, False
    state.passenger = stand
    delivered = stand == state.destination
    return 20.0 if delivered else -1.0, delivered


def is_open(row: int, column: int, way: int) -> bool:
    """Return whether there is no wall on a side of a square."""
    if way == SOUTH:
        return row < SIZE - 1
    if way == NORTH:
        return row > 0
    return bool(PASSAGES[row, column + (way == EAST)])


def driven(row: int, column: int, way: int) -> tuple[int, int]:
    """Return the row and the column after a step; walls stop the taxi."""
    if is_open(row, column, way):
        row += MOVES[way][0]
        column += MOVES[way][1]
    return row, column


def drifted(state: Any, action: int, drawn: float) -> int:
    """Return the direction of a step in the rain, and note its probability.

    ``drawn`` is from [0, 1).
    """
    ahead = state.rainy_probability
    aside = (1.0 - ahead) / 2.0
    state.prob = ahead
    if drawn < ahead:
        return action
    state.prob = aside
    is_left = drawn < ahead + aside
    if action in (SOUTH, NORTH):
        return EAST if is_left == (action == SOUTH) else WEST
    return NORTH if is_left == (action == EAST) else SOUTH
