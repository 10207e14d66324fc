"""Pong games as NumPy arrays, one per field: every operation works on many games at once.

The batch is cut into blocks small enough that their arrays stay in the cache of one core.
"""

from __future__ import annotations

import numpy as np

from agym.envs.pong.game import BEFORE, CELLS, FIELDS, NEXT_STEP, SAME_STEP
from agym.envs.pong.games import Games, Setup
from agym.envs.pong.rules import (
    BALL,
    BOTTOM,
    CENTRE,
    DOWN,
    EMPTY,
    HALF,
    HEIGHT,
    LEFT_END,
    LEFT_SERVE,
    PACE,
    PADDLE,
    RIGHT_END,
    SPAN,
    STEEPEST,
    TOP,
    UP,
    WIDTH,
)
from agym.protocol.typing import Array

BLOCK = 16_384

# Offsets of a paddle's cells from its centre.
PADDLE_CELLS = np.arange(-HALF, HALF + 1) * WIDTH

DTYPES = {"key": np.uint32, "draws": np.uint32, "over": np.bool_}

NONE = np.array([], np.intp)


class VectorisedGames(Games):
    """Runs the batch block by block."""

    def __init__(self, count: int, setup: Setup) -> None:
        super().__init__(count, setup)
        split = [slice(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK)]
        self._blocks = [
            (piece, GameBlock(self.cells[piece], self.finals[piece], setup)) for piece in split
        ]

    def begin(self, mask: Array, keys: Array, seeded: Array) -> None:
        for piece, block in self._blocks:
            block.begin(mask[piece], keys[piece], seeded[piece])

    def turn(self, actions: Array, rewards: Array, terminated: Array, truncated: Array) -> None:
        for piece, block in self._blocks:
            block.turn(actions[piece], rewards[piece], terminated[piece], truncated[piece])


class GameBlock:
    """Some games, played together. Its fields are those of a game's record."""

    def __init__(self, cells: Array, finals: Array, setup: Setup) -> None:
        """Keep views of the games' cells, which are updated in place."""
        count = len(cells)
        self.setup = setup
        self.cells, self.finals = cells, finals
        self.flat = cells.reshape(-1)
        for name, value in zip(FIELDS, BEFORE, strict=True):
            setattr(self, name, np.full(count, value, DTYPES.get(name, np.int64)))
        self.base = np.arange(count) * CELLS
        self.right_base = self.base + (WIDTH - 1)
        self.ball = self.base + BEFORE[0] * WIDTH + BEFORE[1]

    row: Array
    column: Array
    fall: Array
    run: Array
    left: Array
    right: Array
    left_score: Array
    right_score: Array
    key: Array
    draws: Array
    age: Array
    over: Array

    def begin(self, mask: Array, keys: Array, seeded: Array) -> None:
        self.key[seeded] = keys[seeded]
        self.draws[seeded] = 0
        self._restart(np.flatnonzero(mask))

    def turn(self, actions: Array, rewards: Array, terminated: Array, truncated: Array) -> None:
        """Play a step; see :meth:`Games.turn`.

        Games that restart are played with the others first; the result of that is discarded.
        """
        setup, flat = self.setup, self.flat
        begun = np.flatnonzero(self.over) if setup.mode == NEXT_STEP else NONE
        flat[self.ball] = EMPTY
        change = self._follow() if setup.players == 1 else changes(actions[:, 0])
        self.left = self._shift(self.base, self.left, change)
        self.right = self._shift(self.right_base, self.right, changes(actions[:, -1]))
        ended, points = self._fly()
        if len(begun):
            counts = self.over[ended] == 0
            ended, points = ended[counts], points[counts]
        rewards[:] = setup.players - 1
        rewards[ended] = points if setup.players == 1 else 0
        terminated[:] = False
        terminated[self._metrics(ended, points)] = True
        self.age += 1
        np.equal(self.age, setup.limit, out=truncated)
        np.multiply(self.row, WIDTH, out=self.ball)
        self.ball += self.column
        self.ball += self.base
        flat[self.ball] = BALL
        if len(begun):
            rewards[begun], terminated[begun], truncated[begun] = 0, False, False
            self.draws[begun] -= setup.players == 1
            self._restart(begun)
        np.logical_or(terminated, truncated, out=self.over)
        if setup.mode == SAME_STEP:
            over = np.flatnonzero(self.over)
            self.finals[over] = self.cells[over]
            self._restart(over)

    def _follow(self) -> Array:
        """Return the moves of the scripted opponents; see :func:`agym.envs.pong.rules.follow`."""
        attentive = (chances(self.key, ~(self.draws >> SPAN)) & 0xFFFF) < self.setup.skill
        attentive &= self.run < 0
        self.draws += 1
        distance = self.row - self.left
        change = (distance > 1) * PACE
        change -= (distance < -1) * PACE
        change *= attentive
        return change

    def _shift(self, base: Array, old: Array, change: Array) -> Array:
        """Move paddles and redraw those that moved; see ``moved`` and ``shift_paddle``."""
        new = old + change
        np.maximum(new, TOP, out=new)
        np.minimum(new, BOTTOM, out=new)
        changed = np.flatnonzero(new != old)
        base, tail, tip = base[changed], old[changed], new[changed]
        change = tip - tail
        way = np.sign(change) * WIDTH
        tail = tail * WIDTH + base - HALF * way
        tip = tip * WIDTH + base + HALF * way
        flat = self.flat
        # A paddle that moved by one row has the same cell written twice.
        inward = change * WIDTH - way
        flat[tail] = EMPTY
        flat[tail + inward] = EMPTY
        flat[tip] = PADDLE
        flat[tip - inward] = PADDLE
        return new

    def _fly(self) -> tuple[Array, Array]:
        """Move the balls; see :func:`agym.envs.pong.rules.fly`.

        Returns the games in which a point was made, and whose it is.
        """
        straight = self.row + self.fall
        row = np.abs(straight)
        np.subtract(HEIGHT - 1, row, out=row)
        np.abs(row, out=row)
        np.subtract(HEIGHT - 1, row, out=row)
        bounced = np.flatnonzero(row != straight)
        self.fall[bounced] *= -1
        self.row = row
        self.column += self.run
        met = np.flatnonzero((self.column == LEFT_END) | (self.column == RIGHT_END))
        run = self.run[met]
        offset = row[met] - np.where(run < 0, self.left[met], self.right[met])
        self.run[met] = -run
        hit = np.abs(offset) <= HALF
        back = met[hit]
        self.fall[back] = np.clip(self.fall[back] + offset[hit], -STEEPEST, STEEPEST)
        return met[~hit], -run[~hit]

    def _metrics(self, ended: Array, points: Array) -> Array:
        """Count points, and serve unless a point ended its game; return the games that are over."""
        if not len(ended):
            return ended
        self.right_score[ended] += points > 0
        self.left_score[ended] += points < 0
        over = np.maximum(self.left_score[ended], self.right_score[ended]) >= self.setup.points
        self._serve(ended[~over])
        return ended[over]

    def _serve(self, games: Array) -> None:
        """Bring balls into play; see :func:`agym.envs.pong.rules.serve`."""
        bits = chances(self.key[games], self.draws[games]).astype(np.int64)
        self.draws[games] += 1
        self.run[games] = 2 * (bits & 1) - 1
        self.column[games] = LEFT_SERVE + (bits & 1)
        self.row[games] = ((bits >> 1 & 0xFFF) * HEIGHT) >> 12
        self.fall[games] = ((bits >> 13 & 0xFFF) * (2 * STEEPEST + 1) >> 12) - STEEPEST

    def _restart(self, games: Array) -> None:
        """Replace some games by new ones; see :func:`agym.envs.pong.game.restart`."""
        if not len(games):
            return
        base, flat = self.base[games], self.flat
        sides = (base, self.left), (base + WIDTH - 1, self.right)
        flat[self.ball[games]] = EMPTY
        for column, paddles in sides:
            flat[(column + paddles[games] * WIDTH)[:, None] + PADDLE_CELLS] = EMPTY
            flat[(column + CENTRE * WIDTH)[:, None] + PADDLE_CELLS] = PADDLE
            paddles[games] = CENTRE
        self.left_score[games] = self.right_score[games] = self.age[games] = self.over[games] = 0
        self._serve(games)
        ball = base + self.row[games] * WIDTH + self.column[games]
        self.ball[games] = ball
        flat[ball] = BALL


def changes(actions: Array) -> Array:
    """Return by how many rows paddles move."""
    assert (UP, DOWN) == (1, 2)
    change = actions >> 1
    change -= actions & 1
    change *= PACE
    return change


def chances(keys: Array, draws: Array) -> Array:
    """Return 32 random bits for each key and draw number; see ``chance`` in the rules."""
    bits = mixed(draws)
    bits ^= keys
    return mixed(bits)


def mixed(x: Array) -> Array:
    """Hash 32 bits to 32 bits, as :func:`agym.envs.pong.rules.mix` does."""
    x = x ^ (x >> 16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> 15
    x *= np.uint32(0x846CA68B)
    x ^= x >> 16
    return x
