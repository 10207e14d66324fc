"""CliffWalking-v1: walk along a cliff to the other side."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.gymnasium_pictures import gymnasium_picture
from agym.envs.toy_text.maps import walked

GYMNASIUM = "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv"

HEIGHT, WIDTH = 4, 12
# By action, the rows down and the columns to the right: up, right, down and left.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
THIRD = 1 / 3


class CliffWalking:
    """Gymnasium's ``CliffWalking-v1``, and with ``is_slippery`` ``CliffWalkingSlippery-v1``.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(CliffWalking, 4, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4,)

    Action: 0 goes up, 1 to the right, 2 down, 3 to the left. Observation: ``row * 12 + column``.
    Reward: -1 per step, and -100 for a fall off the cliff, which returns the player to the start.
    With ``is_slippery``, the player goes in the direction of the action or to one of its two sides,
    each with probability 1/3. An info has the probability of the step.

    Example 6.6 of R. S. Sutton and A. G. Barto, "Reinforcement Learning: An Introduction" (2020),
    as in ``gymnasium/envs/toy_text/cliffwalking.py``.
    """

    state = np.dtype(
        [("row", np.int64), ("column", np.int64), ("prob", float), ("is_slippery", bool)]
    )
    observation_space = spaces.Discrete(HEIGHT * WIDTH)
    action_space = spaces.Discrete(4)
    parameters = {"is_slippery": False}  # noqa: RUF012
    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012
    info_dtype = np.dtype([("prob", float)])

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.row = HEIGHT - 1
        state.prob = 1.0

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        way = action
        if state.is_slippery:
            way = (action + rng.integers(-1, 2)) & 3
        state.prob = THIRD if state.is_slippery else 1.0
        row, column = walked(state.row, state.column, MOVES[way], HEIGHT, WIDTH)
        fallen = row == HEIGHT - 1 and 0 < column < WIDTH - 1
        state.row = row
        state.column = 0 if fallen else column
        at_goal = row == HEIGHT - 1 and column == WIDTH - 1
        return -100.0 if fallen else -1.0, at_goal

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.row * WIDTH + state.column

    @staticmethod
    def info(state: Any, out: Any) -> None:
        out.prob = state.prob

    @staticmethod
    def render(state: Any, mode: str) -> Any:
        return gymnasium_picture(GYMNASIUM, mode, {"s": state.row * WIDTH + state.column})
