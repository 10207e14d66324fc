"""A game of Pong as a record of integers, and its step in a batch, on top of the rules.

::

    game, actions --> take_turn --> game, reward, terminated, truncated
                          |
                        cells         updated in place

A record is a tuple of the fields below, always in the same order. A game is drawn as ``HEIGHT *
WIDTH`` cells, row by row, in an array that may hold those of many games: ``base`` is the index of
the game's first cell. As in the rules, numba can compile everything here.
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
# key, draws:             key of its random bits, and number of draws so far
# age, over:              steps of this episode, and whether it has ended
Game = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
FIELDS = (
    "row", "column", "fall", "run", "left", "right", "left_score", "right_score",
    "key", "draws", "age", "over",
)  # fmt: skip

# Cells of a game.
CELLS = HEIGHT * WIDTH

# Autoreset modes: what follows an episode's end.
NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2

# The record before the first game: a ball that does not move.
BEFORE: Game = (CENTRE, LEFT_SERVE, 0, -1, CENTRE, CENTRE, 0, 0, 0, 0, 0, 0)


def begin(key: int, draws: int) -> Game:
    """Return a new game: no points, both paddles in the middle, a new ball."""
    row, column, fall, run = serve(chance(key, draws))
    return row, column, fall, run, CENTRE, CENTRE, 0, 0, key, draws + 1, 0, 0


def play(
    game: Game, left_action: int, right_action: int, players: int, points: int, skill: int
) -> tuple[Game, int]:
    """Play a step; return the next record and the reward.

    With two players it is the rally: the first point ends the game, and every step before is
    rewarded with 1. With one player, who has the right paddle, each point is rewarded with 1 or -1,
    and the first side with ``points`` points ends the game. After any other point the ball is
    served anew in the same step and paddles stay where they are. After the last point the ball
    stays where it was missed.

    ``left_action`` counts only with two players. With one, a scripted opponent pays attention
    ``skill`` times in 65536.
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
    """Redraw a paddle that moved, writing only the cells that differ.

    ``base`` is the index of the cell in row 0 of the paddle's column; ``old`` and ``new`` are the
    rows of its centre.
    """
    way = WIDTH if new > old else -WIDTH
    tail, tip = base + old * WIDTH - HALF * way, base + new * WIDTH + HALF * way
    for _ in range(min(abs(new - old), 2 * HALF + 1)):
        cells[tail] = EMPTY
        cells[tip] = PADDLE
        tail += way
        tip -= way


def redraw(cells: Any, base: int, before: Game, after: Game) -> None:
    """Redraw a game, writing only the cells that differ."""
    cells[base + before[0] * WIDTH + before[1]] = EMPTY
    shift_paddle(cells, base, before[4], after[4])
    shift_paddle(cells, base + WIDTH - 1, before[5], after[5])
    cells[base + after[0] * WIDTH + after[1]] = BALL


def restart(game: Game, cells: Any, base: int) -> Game:
    """Replace a game by the next one."""
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
    """Play a step of one game of a batch, or replace the game by the next one.

    Besides the arguments of :func:`play`: an episode is truncated after ``limit`` steps (0: never),
    ``mode`` is the autoreset mode, ``finals`` receives the last cells of a game that is replaced in
    the same step, and ``base`` is the index of the game's first cell in both arrays.

    Returns:
        The next record, the reward, terminated, truncated.
    """
    if mode == NEXT_STEP and game[11] != 0:
        return restart(game, cells, base), 0, False, False
    after, reward = play(game, left_action, right_action, players, points, skill)
    redraw(cells, base, game, after)
    terminated, truncated = after[11] != 0, after[10] == limit
    if truncated:
        after = after[:11] + (1,)  # noqa: RUF005, which numba cannot compile
    if mode == SAME_STEP and after[11] != 0:
        for i in range(base, base + CELLS):
            finals[i] = cells[i]
        after = restart(after, cells, base)
    return after, reward, terminated, truncated


# All functions of a step, each after those it calls.
PARTS = (
    mix, chance, attention, moved, folded, fly, serve, follow,
    begin, play, shift_paddle, redraw, restart, take_turn,
)  # fmt: skip


def compile_game(compiler: Callable[[Any], Any]) -> dict[str, Any]:
    """Compile the functions above, and those of the rules, unchanged; return them by name.

    ``compiler`` compiles one function; the functions it calls are compiled already.
    """
    done: dict[str, Any] = {}
    for part in PARTS:
        done[part.__name__] = compiler(bound(part, done))
    return done


def bound(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """Return the same function with some of its global names replaced."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
