"""Pong compiled by numba: the functions of one game, looped over the batch on one core or all."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from agym._system.extras import require
from agym.envs.pong.game import BEFORE, CELLS, FIELDS, bound, compile_game, restart, take_turn
from agym.envs.pong.games import Games, Setup
from agym.envs.pong.prefetching import make_prefetch
from agym.envs.pong.rules import DOWN, FULL_SKILL, UP, WIDTH, follow
from agym.protocol.typing import Array

KEY, DRAWS = FIELDS.index("key"), FIELDS.index("draws")

# Cells are prefetched for the game AHEAD iterations later, if there are more games than fit into a
# core's L2 cache.
AHEAD, NEAR_GAMES = 12, 1024

# Minimum number of games per core.
SHARE = 512

# Reference counts of the array views passed from function to function would take half the time
# (hence `_nrt`). Nothing here allocates, so none are needed.
OPTIONS = {"nogil": True, "_nrt": False}

TURN = (
    "void(i4[:, ::1], u1[::1], u1[::1], i8[:, ::1], f8[::1], b1[::1], b1[::1], i8, i8, i8, i8,"
    " i8, i8)"
)
BEGIN = "void(i4[:, ::1], u1[::1], b1[::1])"


class CompiledGames(Games):
    """Keeps the games as an array of records, a row each."""

    parallel = False

    def __init__(self, count: int, setup: Setup) -> None:
        super().__init__(count, setup)
        self._turn, self._begin = compile_one()
        # The last two arguments: first game and end of the range, or first game and share count.
        last = count
        if self.parallel and count >= 2 * SHARE:
            threads, self._turn = compile_all()
            last = min(threads, count // SHARE)
        self._setup = (setup.points, setup.skill, setup.limit, setup.mode, 0, last)
        self._records = np.empty((count, len(FIELDS)), np.int32)
        self._records[:] = BEFORE
        self._cells, self._finals = self.cells.reshape(-1), self.finals.reshape(-1)

    def begin(self, mask: Array, keys: Array, seeded: Array) -> None:
        self._records[seeded, KEY] = keys[seeded].astype(np.uint32).view(np.int32)
        self._records[seeded, DRAWS] = 0
        self._begin(self._records, self._cells, mask)

    def turn(self, actions: Array, rewards: Array, terminated: Array, truncated: Array) -> None:
        self._turn(
            self._records, self._cells, self._finals, actions, rewards, terminated, truncated,
            *self._setup,
        )  # fmt: skip


class ParallelGames(CompiledGames):
    """The same, split among all cores if there are enough games."""

    parallel = True


@cache
def compile_one() -> tuple[Any, Any]:
    """Compile the loops that play and begin games, once per process; takes some seconds.

    Raises:
        MissingExtraError: numba is not installed.
    """
    numba = require("numba", "pong")
    inline = numba.njit(inline="always", **OPTIONS)
    names = {**compile_game(inline), "prefetch": make_prefetch()}
    names["fetch_paddle"] = inline(bound(fetch_paddle, names))
    names["fetch"] = inline(bound(fetch, names))
    return (
        numba.njit(TURN, **OPTIONS)(bound(turn, names)),
        numba.njit(BEGIN, **OPTIONS)(bound(begin, names)),
    )


@cache
def compile_all() -> tuple[int, Any]:
    """Compile the loop that splits games among the cores; return the number of shares and the loop.

    Raises:
        MissingExtraError: numba is not installed.
    """
    numba = require("numba", "pong")
    names = {"turn": compile_one()[0], "prange": numba.prange}
    loop = numba.njit(TURN, parallel=True, nogil=True)(bound(turn_shares, names))
    return numba.get_num_threads(), loop


# ---------------------------------------------------------------- compiled functions

# Stand-ins, replaced by compiled versions.
prange = range


def prefetch(cells: Any, index: int) -> None:
    """Prefetch a cell; see :mod:`agym.envs.pong.prefetching`."""


def fetch_paddle(cells: Any, base: int, paddle: int, action: int) -> None:
    """Prefetch the four cells that change if a paddle moves, ignoring walls."""
    way = 0
    if action == UP:
        way = -WIDTH
    if action == DOWN:
        way = WIDTH
    base += paddle * WIDTH
    prefetch(cells, base - 2 * way)
    prefetch(cells, base - way)
    prefetch(cells, base + 3 * way)
    prefetch(cells, base + 4 * way)


def fetch(records: Any, cells: Any, actions: Any, i: int) -> None:
    """Prefetch the cells of a game that are about to change, as far as they are known."""
    it, players, base = records[i], actions.shape[1], i * CELLS
    row, column, fall, run, left, right = it[0], it[1], it[2], it[3], it[4], it[5]
    prefetch(cells, base + row * WIDTH + column)
    prefetch(cells, base + (row + fall) * WIDTH + column + run)
    left_action = follow(row, run, left, 0, FULL_SKILL) if players == 1 else actions[i, 0]
    fetch_paddle(cells, base, left, left_action)
    fetch_paddle(cells, base + WIDTH - 1, right, actions[i, players - 1])


def turn(
    records: Any, cells: Any, finals: Any, actions: Any, rewards: Any, terminated: Any,
    truncated: Any, points: int, skill: int, limit: int, mode: int, first: int, stop: int,
) -> None:  # fmt: skip
    """Play a step of the games from ``first`` to ``stop``."""
    players = actions.shape[1]
    for i in range(first, stop):
        if i + AHEAD < stop and len(records) > NEAR_GAMES:
            fetch(records, cells, actions, i + AHEAD)
        it = records[i]
        game = (
            it[0], it[1], it[2], it[3], it[4], it[5],
            it[6], it[7], it[8], it[9], it[10], it[11],
        )  # fmt: skip
        after, rewards[i], terminated[i], truncated[i] = take_turn(
            game, actions[i, 0], actions[i, players - 1], players, points, skill,
            limit, mode, cells, finals, i * CELLS,
        )  # fmt: skip
        it[0], it[1], it[2], it[3], it[4], it[5] = after[:6]
        it[6], it[7], it[8], it[9], it[10], it[11] = after[6:]


def begin(records: Any, cells: Any, mask: Any) -> None:
    """Replace the games of a mask by new ones."""
    for i in range(len(records)):
        if mask[i]:
            it = records[i]
            game = (
                it[0], it[1], it[2], it[3], it[4], it[5],
                it[6], it[7], it[8], it[9], it[10], it[11],
            )  # fmt: skip
            after = restart(game, cells, i * CELLS)
            it[0], it[1], it[2], it[3], it[4], it[5] = after[:6]
            it[6], it[7], it[8], it[9], it[10], it[11] = after[6:]


def turn_shares(
    records: Any, cells: Any, finals: Any, actions: Any, rewards: Any, terminated: Any,
    truncated: Any, points: int, skill: int, limit: int, mode: int, first: int, shares: int,
) -> None:  # fmt: skip
    """Play a step of all games from ``first`` on, in parallel shares."""
    count = len(records) - first
    for k in prange(shares):
        turn(
            records, cells, finals, actions, rewards, terminated, truncated, points, skill,
            limit, mode, first + count * k // shares, first + count * (k + 1) // shares,
        )  # fmt: skip
