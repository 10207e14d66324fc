"""Pong on a grid of cells: against a scripted opponent, or a rally of two players.

::

    column  0                                          39
    row  0  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .   a wall is above this row
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
            #  .  .  .  .  o  .  .  .  .  .  .  .  .  .  #
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #   paddles move in columns 0 and 39,
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #   the ball flies in columns 1 to 38
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #
    row 29  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #   a wall is below this row

All numbers are integers.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.games.cells import METADATA, draw_cells

HEIGHT, WIDTH = 30, 40

# Contents of a cell.
EMPTY, PADDLE, BALL = 0, 1, 2

# Actions of a player.
STAY, UP, DOWN = 0, 1, 2

# A paddle covers HALF rows above and below its centre, and moves PACE rows per step.
HALF, PACE = 2, 2

# Limits of a paddle's centre, and its row when a game starts.
TOP, BOTTOM, CENTRE = HALF, HEIGHT - 1 - HALF, HEIGHT // 2

# Maximum number of rows that the ball moves per step.
STEEPEST = 3

# Columns where the ball meets a paddle, and where it is served to the left and to the right.
LEFT_END, RIGHT_END = 1, WIDTH - 2
LEFT_SERVE, RIGHT_SERVE = WIDTH // 2 - 1, WIDTH // 2

# The opponent's attention changes at most every 2 ** SPAN steps.
SPAN = 3

# The skill of an opponent that always pays attention.
FULL_SKILL = 1 << 16

# Maximum number of steps: two players that never miss would play forever.
LIMIT = 10_000

# Keys by action: letters for the left player, and arrows (pygame's keycodes) for the right one.
LETTERS: dict[int, tuple[str | int, ...]] = {STAY: (), UP: ("w",), DOWN: ("s",)}
ARROWS: dict[int, tuple[str | int, ...]] = {STAY: (), UP: (1073741906,), DOWN: (1073741905,)}

# Colours, as RGB, and letters by the content of a cell.
COLORS = np.array([(17, 24, 39), (96, 165, 250), (250, 204, 21)], np.uint8)
LETTERS_OF_CELLS = " #o"

BALL_AND_PADDLES = [(name, np.int8) for name in ("row", "column", "fall", "run", "left", "right")]


class Pong:
    """Pong against a scripted opponent.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(Pong, 4, engine="python", points=5)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape, observations.dtype
        ((4, 30, 40), dtype('uint8'))

    The agent has the right paddle. Action: 0 stays, 1 moves up, 2 moves down. Observation:
    ``uint8[30, 40]``, 0 empty, 1 paddle, 2 ball. Reward: 1 for a point, -1 for a point of the
    opponent. The game ends when a side has ``points`` points. After any other point, the next ball
    is served in the same step, and the paddles do not move. Parameters: ``points`` to win (21), and
    ``skill``, the probability that the opponent pays attention (0.5).
    """

    state = np.dtype(
        [
            *BALL_AND_PADDLES, ("left_score", np.int32), ("right_score", np.int32),
            ("points", np.int32), ("skill", np.float64),
        ]
    )  # fmt: skip
    observation_space = spaces.Box(0, BALL, (HEIGHT, WIDTH), np.uint8)
    action_space = spaces.Discrete(3)
    parameters = {"points": 21, "skill": 0.5}  # noqa: RUF012
    max_episode_steps = LIMIT
    metadata = METADATA
    keys_to_action = {  # noqa: RUF012
        keys[action]: action for keys in (LETTERS, ARROWS) for action in (UP, DOWN)
    }

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.left = CENTRE
        state.right = CENTRE
        put_ball(state, rng)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        left = STAY
        if state.run < 0:
            # Attention uses negative positions of the random stream, and serves positive ones.
            attention = rng.bits_at(-1 - (rng.drawn() >> SPAN))
            skill = int(state.skill * FULL_SKILL + 0.5)
            left = follow(state.row, state.run, state.left, attention, skill)
        rng.bits()  # attention changes with the number of draws
        point = play(state, left, action)
        over = False
        if point != 0:
            if point > 0:
                state.right_score += 1
            else:
                state.left_score += 1
            over = max(state.left_score, state.right_score) >= state.points
            if not over:
                put_ball(state, rng)
        return float(point), over

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[:, :] = EMPTY
        for k in range(-HALF, HALF + 1):
            out[state.left + k, 0] = PADDLE
            out[state.right + k, WIDTH - 1] = PADDLE
        out[state.row, state.column] = BALL

    @staticmethod
    def check(points: int, skill: float) -> None:
        if points < 1:
            raise ValueError(f"points={points} must be a number of points: 1 or more")
        if not 0 <= skill <= 1:
            raise ValueError(f"skill={skill} must be a probability, from 0 to 1")

    @staticmethod
    def render(state: Any, mode: str) -> Any:
        cells = np.zeros((HEIGHT, WIDTH), np.uint8)
        Pong.observe(state, cells)
        return draw_cells(cells, mode, COLORS, LETTERS_OF_CELLS)


class PongRally:
    """A rally of Pong in which both players are agents.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(PongRally, 4, engine="python")
        >>> envs.action_space.shape
        (4, 2)

    Action: one for the left paddle and one for the right, each 0 (stay), 1 (up) or 2 (down).
    Observation: ``uint8[30, 40]``, 0 empty, 1 paddle, 2 ball. Reward: 1 for each step in which the
    ball stays in play; a miss ends the game.
    """

    state = np.dtype(BALL_AND_PADDLES)
    observation_space = Pong.observation_space
    action_space = spaces.MultiDiscrete([3, 3])
    max_episode_steps = LIMIT
    metadata = METADATA
    # The left player has the keys w and s, the right player the arrows.
    keys_to_action = {  # noqa: RUF012
        LETTERS[left] + ARROWS[right]: np.array([left, right])
        for left, right in product((STAY, UP, DOWN), repeat=2)
        if left or right
    }
    reset = Pong.reset

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        point = play(state, action[0], action[1])
        return 1.0 - abs(point), point != 0

    observe = Pong.observe
    render = Pong.render


# ---------------------------------------------------------------- the rules


def play(state: Any, left_action: int, right_action: int) -> int:
    """Move paddles and ball; return the point as :func:`fly` does."""
    state.left = moved(state.left, left_action)
    state.right = moved(state.right, right_action)
    state.row, state.column, state.fall, state.run, point = fly(
        state.row, state.column, state.fall, state.run, state.left, state.right
    )
    return point


def moved(paddle: int, action: int) -> int:
    """Return a paddle's centre after an action.

    The paddle moves two rows up or down, or stays. A wall stops it, so it may move by one row only,
    or not at all.
    """
    # Without a branch, because a core cannot predict it for random actions.
    paddle += PACE * ((action == DOWN) - (action == UP))
    return min(max(paddle, TOP), BOTTOM)


def folded(row: int) -> int:
    """Return the row of the ball, given the row in which it would be without walls.

    Walls reflect the ball at the middle of rows 0 and 29. A ball that ends a step in row 0 or 29 is
    reflected in the next step.
    """
    if row < 0:
        row = -row
    if row > HEIGHT - 1:
        row = 2 * (HEIGHT - 1) - row
    return row


def fly(
    row: int, column: int, fall: int, run: int, left: int, right: int
) -> tuple[int, int, int, int, int]:
    """Move the ball by a step, after the paddles have moved.

    The ball moves ``run`` columns to the right and ``fall`` rows down; the walls reflect it. When
    it reaches the column next to a paddle, 1 or 38:

    - If the paddle covers the ball's row, the ball flies back with spin: ``fall`` grows by the
      number of rows that the ball is below the paddle's centre, or shrinks by the number that it is
      above, clipped to -3 to 3.
    - Otherwise, the other player gets a point.

    Args:
        row: Row of the ball.
        column: Column of the ball.
        fall: Rows that the ball moves down per step, -3 to 3.
        run: Columns that the ball moves to the right per step, -1 or 1.
        left: Row of the left paddle's centre.
        right: Row of the right paddle's centre.

    Returns:
        The new row, column, fall and run; then the point: 1 for the right player, -1 for the left
        player, or 0.
    """
    straight = row + fall
    row = folded(straight)
    if row != straight:
        fall = -fall
    column += run
    point = 0
    if not LEFT_END < column < RIGHT_END:
        offset = row - (left if run < 0 else right)
        run = -run
        if -HALF <= offset <= HALF:
            fall = min(max(fall + offset, -STEEPEST), STEEPEST)
        else:
            point = run
    return row, column, fall, run, point


def put_ball(state: Any, rng: Any) -> None:
    """Serve a ball."""
    state.row, state.column, state.fall, state.run = serve(rng.bits())


def serve(bits: int) -> tuple[int, int, int, int]:
    """Serve a ball from the middle, by random bits; return its row, column, fall and run.

    Both directions, all rows and all seven speeds are almost equally likely (the probabilities
    differ by less than 1 %). The ball takes 18 steps to the paddle, which can reach any row by
    then.
    """
    run = 1 if bits & 1 else -1
    column = RIGHT_SERVE if run > 0 else LEFT_SERVE
    row = (((bits >> 1) & 0xFFF) * HEIGHT) >> 12
    fall = ((((bits >> 13) & 0xFFF) * (2 * STEEPEST + 1)) >> 12) - STEEPEST
    return row, column, fall, run


def follow(row: int, run: int, paddle: int, bits: int, skill: int) -> int:
    """Return the action of the scripted opponent, on the left.

    While the ball approaches, the opponent moves towards the ball's current row, without predicting
    the path; it stays if it is within one row. It also stays while the ball flies away, and while
    it does not pay attention, which happens with probability ``1 - skill / 65536``, for several
    steps in a row.
    """
    if run > 0 or (bits & 0xFFFF) >= skill:
        return STAY
    if row < paddle - 1:
        return UP
    if row > paddle + 1:
        return DOWN
    return STAY
