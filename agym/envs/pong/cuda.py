"""Pong on a CUDA device: the functions of one game, compiled for it, with a thread per game.

Records and cells live on the device. A step sends actions there and fetches rewards, flags and
cells.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from agym._system.extras import require
from agym.envs.pong.game import (
    BEFORE,
    CELLS,
    FIELDS,
    SAME_STEP,
    bound,
    compile_game,
    restart,
    take_turn,
)
from agym.envs.pong.games import Games, Setup
from agym.errors import UsageError
from agym.protocol.typing import Array

KEY, DRAWS = FIELDS.index("key"), FIELDS.index("draws")

# Maximum number of threads per block.
THREADS = 64


class CudaGames(Games):
    """Keeps the games as an array of records on the device, a row each.

    Attributes:
        device_cells: Cells of all games, on the device, flat. Torch and other libraries read it
            through its ``__cuda_array_interface__``.
        fetch: Whether a step copies the cells into ``cells``.
    """

    def __init__(self, count: int, setup: Setup) -> None:
        super().__init__(count, setup)
        cuda = require("numba.cuda", "pong")
        if not cuda.is_available():
            raise UsageError("engine='cuda' needs an NVIDIA card and its driver: take 'compiled'")
        self._turn, self._begin = compile_kernels()
        threads = min(count, THREADS)
        self._launch = -(-count // threads), threads
        self._records = cuda.to_device(np.tile(np.array(BEFORE, np.int64), (count, 1)))
        self.device_cells = cuda.to_device(self.cells.reshape(-1))
        self._device_finals = self.device_cells
        if setup.mode == SAME_STEP:
            self._device_finals = cuda.device_array(count * CELLS, np.uint8)
        self._rewards = cuda.device_array(count, np.float64)
        self._flags = cuda.device_array((2, count), np.bool_)
        self._actions = cuda.device_array((count, setup.players), np.int64)
        self._seeding = [
            cuda.device_array(count, dtype) for dtype in (np.bool_, np.int64, np.bool_)
        ]
        self.fetch = True

    def begin(self, mask: Array, keys: Array, seeded: Array) -> None:
        for there, here in zip(self._seeding, (mask, keys, seeded), strict=True):
            there.copy_to_device(np.ascontiguousarray(here))
        self._begin[self._launch](self._records, self.device_cells, *self._seeding)
        self._fetch_cells()

    def turn(self, actions: Array, rewards: Array, terminated: Array, truncated: Array) -> None:
        setup = self.setup
        self._actions.copy_to_device(actions)
        self._turn[self._launch](
            self._records, self.device_cells, self._device_finals, self._actions, self._rewards,
            self._flags, setup.points, setup.skill, setup.limit, setup.mode,
        )  # fmt: skip
        self._rewards.copy_to_host(rewards)
        terminated[:], truncated[:] = self._flags.copy_to_host()
        self._fetch_cells()
        if setup.mode == SAME_STEP and (terminated.any() or truncated.any()):
            self._device_finals.copy_to_host(self.finals.reshape(-1))

    def _fetch_cells(self) -> None:
        if self.fetch:
            self.device_cells.copy_to_host(self.cells.reshape(-1))

    def close(self) -> None:
        for name in ("_records", "_device_finals", "_rewards", "_flags", "_actions", "_seeding"):
            self.__dict__.pop(name, None)


@cache
def compile_kernels() -> tuple[Any, Any]:
    """Compile the kernels that play and begin games, once per process."""
    cuda = require("numba.cuda", "pong")
    names = {"cuda": cuda, **compile_game(cuda.jit(device=True))}
    return cuda.jit(bound(turn, names)), cuda.jit(bound(begin, names))


# ---------------------------------------------------------------- compiled functions

# Stand-in, replaced by numba.cuda when compiled.
cuda: Any = None


def turn(
    records: Any, cells: Any, finals: Any, actions: Any, rewards: Any, flags: Any,
    points: int, skill: int, limit: int, mode: int,
) -> None:  # fmt: skip
    """Play a step of the thread's game."""
    i = cuda.grid(1)
    if i < len(records):
        it = records[i]
        players = actions.shape[1]
        game = (
            it[0], it[1], it[2], it[3], it[4], it[5],
            it[6], it[7], it[8], it[9], it[10], it[11],
        )  # fmt: skip
        after, rewards[i], flags[0, i], flags[1, i] = take_turn(
            game, actions[i, 0], actions[i, players - 1], players, points, skill,
            limit, mode, cells, finals, i * CELLS,
        )  # fmt: skip
        it[0], it[1], it[2], it[3], it[4], it[5] = after[:6]
        it[6], it[7], it[8], it[9], it[10], it[11] = after[6:]


def begin(records: Any, cells: Any, mask: Any, keys: Any, seeded: Any) -> None:
    """Replace the thread's game by a new one."""
    i = cuda.grid(1)
    if i < len(records) and mask[i]:
        it = records[i]
        if seeded[i]:
            it[KEY], it[DRAWS] = keys[i], 0
        game = (
            it[0], it[1], it[2], it[3], it[4], it[5],
            it[6], it[7], it[8], it[9], it[10], it[11],
        )  # fmt: skip
        after = restart(game, cells, i * CELLS)
        it[0], it[1], it[2], it[3], it[4], it[5] = after[:6]
        it[6], it[7], it[8], it[9], it[10], it[11] = after[6:]
