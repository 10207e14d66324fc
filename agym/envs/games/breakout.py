"""Breakout on a grid of cells: a paddle, a ball and two walls of bricks.

::

    column  0                                          39
    row  0  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .   the ceiling is above this row
            .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
            =  =  =  =  =  =  =  =  =  =  =  =  =  =  =  =   rows 4 to 9: 20 bricks each,
            =  =  =  =  .  .  .  .  =  =  =  =  =  =  =  =   two cells wide
            .  .  .  .  .  .  .  o  .  .  .  .  .  .  .  .
            .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
    row 29  .  .  .  .  .  .  .  #  #  #  #  #  #  #  .  .   the paddle

All numbers are integers. The ball moves one row and one or two columns per step. Its path depends
only on where it met the paddle, so a player can compute it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.games.cells import METADATA, draw_cells

HEIGHT, WIDTH = 30, 40

# Contents of a cell.
EMPTY, PADDLE, BALL, BRICK = 0, 1, 2, 3

# Actions.
STAY, LEFT, RIGHT = 0, 1, 2

# A paddle covers `half` columns on both sides of its centre, and moves PACE columns per step. Its
# `half` is HALF for a new ball, and SHORT_HALF once the ball has reached the ceiling. It starts at
# CENTRE.
HALF, SHORT_HALF, PACE, CENTRE = 3, 1, 2, WIDTH // 2

# The first row of bricks, the row of a served ball, and the row where the ball meets the paddle. A
# served ball takes as many steps to the paddle as the paddle needs to reach any column.
TOP, SERVE_ROW, PADDLE_ROW = 4, 11, HEIGHT - 2

# Numbers of rows and columns of bricks, and the points of a brick by its row.
ROWS, COLUMNS = 6, 20
POINTS = np.array([7.0, 7.0, 4.0, 4.0, 1.0, 1.0])

# The bits of a complete row of bricks.
FULL_ROW = (1 << COLUMNS) - 1

# Keys by action: letters, and arrows by their number in pygame.
KEYS: dict[tuple[str | int, ...], int] = {
    ("a",): LEFT, ("d",): RIGHT, (1073741904,): LEFT, (1073741903,): RIGHT,
}  # fmt: skip

# Colours (RGB) and letters by the content of a cell; each row of bricks has its colour.
COLORS = np.array(
    [
        (17, 24, 39), (96, 165, 250), (250, 204, 21), (239, 68, 68), (244, 114, 82), (249, 146, 60),
        (217, 178, 50), (132, 190, 60), (52, 190, 130),
    ],
    np.uint8,
)  # fmt: skip
LETTERS = " #o" + "=" * ROWS


class Breakout:
    """Breakout: break all bricks with a ball that must not fall.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(Breakout, 4, engine="python", lives=3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape, observations.dtype
        ((4, 30, 40), dtype('uint8'))

    Action: 0 stays, 1 moves two cells to the left, 2 to the right. Observation: ``uint8[30, 40]``,
    0 empty, 1 paddle, 2 ball, 3 brick. Reward: the points of a brick that breaks, 7 in the upper
    two rows, 4 in the next two and 1 in the lower two: 480 for a wall. The game ends when all
    ``lives`` (5) are lost, or all ``walls`` (2) are broken.

    - The ball breaks a brick whose cell it enters, and turns back vertically.
    - The ball leaves the paddle on the side where it met it: two columns per step near the ends of
      the paddle, otherwise one. In the middle of the paddle, it keeps its direction.
    - When the ball reaches the ceiling, the paddle shrinks from seven cells to three, until the
      next ball.
    - A ball that misses the paddle costs a life. The next ball is served in the same step, from a
      random column under the bricks.
    - The next wall appears when the ball meets the paddle, or is served.
    """

    state = np.dtype(
        [
            ("row", np.int8), ("column", np.int8), ("fall", np.int8), ("run", np.int8),
            ("paddle", np.int8), ("half", np.int8), ("bricks", np.int32, (ROWS,)),
            ("bricks_left", np.int16), ("walls_left", np.int32), ("balls_left", np.int32),
            ("lives", np.int32), ("walls", np.int32),
        ]
    )  # fmt: skip
    observation_space = spaces.Box(0, BRICK, (HEIGHT, WIDTH), np.uint8)
    action_space = spaces.Discrete(3)
    parameters = {"lives": 5, "walls": 2}  # noqa: RUF012
    max_episode_steps = 20_000  # two walls take 9,000 steps if no ball is missed
    metadata = METADATA
    keys_to_action = KEYS

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.balls_left = state.lives
        state.walls_left = state.walls
        state.paddle = CENTRE
        serve(state, rng)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.paddle = moved(state.paddle, state.half, action)
        reward = fly(state)
        over = state.bricks_left == 0 and state.walls_left == 0
        if state.row == PADDLE_ROW and state.fall > 0 and not meet(state):
            state.balls_left -= 1
            over = state.balls_left == 0
            if not over:
                serve(state, rng)
        return reward, over

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[:, :] = EMPTY
        for r in range(ROWS):
            draw_bricks(out, TOP + r, state.bricks[r])
        half, paddle = state.half, state.paddle
        out[HEIGHT - 1, paddle - half : paddle + half + 1] = PADDLE
        out[state.row, state.column] = BALL

    @staticmethod
    def check(lives: int, walls: int) -> None:
        if lives < 1 or walls < 1:
            raise ValueError(f"lives={lives} and walls={walls} must be at least 1")

    @staticmethod
    def render(state: Any, mode: str) -> Any:
        cells = np.empty((HEIGHT, WIDTH), np.uint8)
        Breakout.observe(state, cells)
        for r in range(ROWS):  # each row of bricks has its colour
            row = cells[TOP + r]
            row[row == BRICK] += r
        return draw_cells(cells, mode, COLORS, LETTERS)


def draw_bricks(out: Any, row: int, bricks: int) -> None:
    """Draw a row of bricks, given as bits, on empty cells."""
    if bricks == FULL_ROW:  # most rows are full most of the time: this halves the cost
        out[row, :] = BRICK
    elif bricks != 0:
        for column in range(WIDTH):
            out[row, column] = BRICK * ((bricks >> (column >> 1)) & 1)


def moved(paddle: int, half: int, action: int) -> int:
    """Return a paddle's centre after an action; the sides stop the paddle."""
    paddle += PACE * ((action == RIGHT) - (action == LEFT))
    return min(max(paddle, half), WIDTH - 1 - half)


def serve(state: Any, rng: Any) -> None:
    """Serve a ball from a random column to a random side."""
    build_wall(state)
    state.row = SERVE_ROW
    state.fall = 1
    state.column = rng.integers(0, WIDTH)
    state.run = 2 * rng.integers(0, 2) - 1
    state.half = HALF
    state.paddle = moved(state.paddle, HALF, STAY)


def build_wall(state: Any) -> None:
    """Build the next wall, if all bricks are broken."""
    if state.bricks_left == 0 and state.walls_left > 0:
        state.walls_left -= 1
        state.bricks_left = ROWS * COLUMNS
        state.bricks[:] = FULL_ROW


def fly(state: Any) -> float:
    """Move the ball by a step; return the points of the brick that it breaks, if any.

    The sides reflect the ball at the middle of columns 0 and 39, and the ceiling at the middle of
    row 0.
    """
    row, column = state.row + state.fall, state.column + state.run
    if column < 0:
        column = -column
        state.run = -state.run
    if column > WIDTH - 1:
        column = 2 * (WIDTH - 1) - column
        state.run = -state.run
    if row == 0:
        state.fall = 1
        state.half = SHORT_HALF
    state.row = row
    state.column = column
    points = 0.0
    if TOP <= row < TOP + ROWS:
        brick = 1 << (column >> 1)
        if state.bricks[row - TOP] & brick != 0:
            state.bricks[row - TOP] ^= brick
            state.bricks_left -= 1
            state.fall = -state.fall
            points = POINTS[row - TOP]
    return points


def meet(state: Any) -> bool:
    """Send a ball that has come down back up, if the paddle is there; return whether it is."""
    half = state.half
    offset = state.column - state.paddle
    if abs(offset) > half:
        return False
    state.fall = -1
    state.run = spun(state.run, offset, half)
    build_wall(state)
    return True


def spun(run: int, offset: int, half: int) -> int:
    """Return the columns per step of a ball after it met the paddle ``offset`` from the centre."""
    way = 1 if (offset or run) > 0 else -1
    return 2 * way if abs(offset) > half // 2 else way
