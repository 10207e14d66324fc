"""A game of Pong as a record of integers, and its turn in a batch, on top of the rules.

::

    game, actions --> take_turn --> game, reward, terminated, truncated
                          |
                        cells         those that have changed since

A record is a tuple of the fields below, in the same order everywhere. What is seen of a game are
``HEIGHT * WIDTH`` cells, row by row, of an array that may hold those of many games: ``base`` is the
index of its first one. As in the rules there is nothing that numba could not compile.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from agym.envs.pong.rules import (
    BALL,
    CENTRE,
    EMPTY,
    HALF,
    HEIGHT,
    LEFT_SERVE,
    PADDLE,
    WIDTH,
    attention,
    chance,
    fly,
    folded,
    follow,
    mix,
    moved,
    serve,
)

# row, column, fall, run: of the ball, as in the rules
# left, right:            rows of the paddles' centres
# left_score, right_score
# key, draws:             the key of its random bits, and how many draws there have been
# age, over:              steps of this episode, and whether it has ended
Game = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
FIELDS = (
    "row", "column", "fall", "run", "left", "right", "left_score", "right_score",
    "key", "draws", "age", "over",
)  # fmt: skip

# Cells of a game.
CELLS = HEIGHT * WIDTH

# What follows an episode's end.
NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2

# What there is before the first game: somewhere a ball that does not move.
BEFORE: Game = (CENTRE, LEFT_SERVE, 0, -1, CENTRE, CENTRE, 0, 0, 0, 0, 0, 0)


def begin(key: int, draws: int) -> Game:
    """Begin a game: nothing scored, both paddles in the middle, a new ball."""
    row, column, fall, run = serve(chance(key, draws))
    return row, column, fall, run, CENTRE, CENTRE, 0, 0, key, draws + 1, 0, 0


def play(
    game: Game, left_action: int, right_action: int, players: int, points: int, skill: int
) -> tuple[Game, int]:
    """Play a step.

    With two players it is the rally: the game is over with the first point, and until then
    each step is rewarded with 1. With one, who has the right paddle, each point is 1 or -1, and the
    game is over when one has made ``points``. After any other point the ball is served anew in the
    same step, and paddles stay where they are; after the last one it stays where it was missed.

    Args:
        game: The record.
        left_action: Of the left player, if there are two.
        right_action: Of the right player.
        players: 1 or 2.
        points: As many points win.
        skill: Of the scripted opponent: so many times in 65536 it pays attention.

    Returns:
        The record after it, and the reward.
    """
    row, column, fall, run, left, right, left_score, right_score, key, draws, age, over = game
    if players == 1:
        left_action = follow(row, run, left, attention(key, draws), skill)
        draws += 1
    left, right = moved(left, left_action), moved(right, right_action)
    row, column, fall, run, point = fly(row, column, fall, run, left, right)
    reward = point if players == 1 else 1 - abs(point)
    if point != 0:
        if point > 0:
            right_score += 1
        else:
            left_score += 1
        over = 1 if max(left_score, right_score) >= points else 0
        if over == 0:
            row, column, fall, run = serve(chance(key, draws))
            draws += 1
    after = (
        row, column, fall, run, left, right, left_score, right_score, key, draws, age + 1, over,
    )  # fmt: skip
    return after, reward


def shift_paddle(cells: Any, base: int, old: int, new: int) -> None:
    """Redraw a paddle that has moved: only the cells that differ.

    Args:
        cells: Cells of many games.
        base: Index of the one in row 0 of the paddle's column.
        old: Where its centre was.
        new: Where it is.
    """
    way = WIDTH if new > old else -WIDTH
    tail, tip = base + old * WIDTH - HALF * way, base + new * WIDTH + HALF * way
    for _ in range(min(abs(new - old), 2 * HALF + 1)):
        cells[tail] = EMPTY
        cells[tip] = PADDLE
        tail += way
        tip -= way


def redraw(cells: Any, base: int, before: Game, after: Game) -> None:
    """Turn what was seen of a game into what is: only the cells that differ are written."""
    cells[base + before[0] * WIDTH + before[1]] = EMPTY
    shift_paddle(cells, base, before[4], after[4])
    shift_paddle(cells, base + WIDTH - 1, before[5], after[5])
    cells[base + after[0] * WIDTH + after[1]] = BALL


def restart(game: Game, cells: Any, base: int) -> Game:
    """Begin the next game in the place of another."""
    after = begin(game[8], game[9])
    redraw(cells, base, game, after)
    return after


def take_turn(
    game: Game,
    left_action: int,
    right_action: int,
    players: int,
    points: int,
    skill: int,
    limit: int,
    mode: int,
    cells: Any,
    finals: Any,
    base: int,
) -> tuple[Game, int, bool, bool]:
    """Play a step of one game of a batch, or begin the next one in its place.

    Args:
        game: The record.
        left_action: See :func:`play`, here and below.
        right_action: The same.
        players: The same.
        points: The same.
        skill: The same.
        limit: An episode is truncated after so many steps, never if 0.
        mode: What follows its end.
        cells: What is seen of the games of the batch.
        finals: Takes what was last seen of a game that is replaced in the same step.
        base: Index of the game's first cell, in both.

    Returns:
        The record after it, the reward, terminated, truncated.
    """
    if mode == NEXT_STEP and game[11] != 0:
        return restart(game, cells, base), 0, False, False
    after, reward = play(game, left_action, right_action, players, points, skill)
    redraw(cells, base, game, after)
    terminated, truncated = after[11] != 0, after[10] == limit
    if truncated:
        after = after[:11] + (1,)  # noqa: RUF005, as numba has it
    if mode == SAME_STEP and after[11] != 0:
        for i in range(base, base + CELLS):
            finals[i] = cells[i]
        after = restart(after, cells, base)
    return after, reward, terminated, truncated


# All that a turn is made of, each after what it calls.
PARTS = (
    mix, chance, attention, moved, folded, fly, serve, follow,
    begin, play, shift_paddle, redraw, restart, take_turn,
)  # fmt: skip


def compile_game(compiler: Callable[[Any], Any]) -> dict[str, Any]:
    """Compile the functions above, and those of the rules, as they stand.

    Args:
        compiler: Compiles one function, which finds those that it calls compiled already.

    Returns:
        The compiled functions by their names.
    """
    done: dict[str, Any] = {}
    for part in PARTS:
        done[part.__name__] = compiler(bound(part, done))
    return done


def bound(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """The same function, with another meaning of some names that are global to it."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
