"""The engines, which play the games of a batch.

::

    python     the rules as they are written: slow, and the oracle of the tests
    compiled   the same functions, compiled by numba, on one core
    parallel   compiled, the games divided among all cores
    cuda       compiled for a CUDA device, a thread per game (``cuda.py``)
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from agym.core._system.cpus import available_cores
from agym.core.protocol.typing import Array
from agym.rules.binding import Binder
from agym.rules.compiling import Kernels, kernels_of
from agym.rules.contract import RuleBook, no_actions
from agym.rules.kernels import GAME, NEXT_STEP, SAME_STEP, begin_some, play_some, show_some
from agym.rules.records import Table

# Minimum number of games per core. Waking the other threads twice per step takes 0.1 to 0.2 ms.
SHARE = 8192


class Outputs(NamedTuple):
    """Where the results of a step are written.

    Attributes:
        observations: ``(n, *shape)``.
        rewards: ``float64[n]``.
        terminated: ``bool[n]``.
        truncated: ``bool[n]``.
        infos: ``(n,)`` of the rule book's ``info_dtype``.
        finals: The last observations of episodes that ended, under same-step autoreset.
        final_infos: The last infos of these episodes.
    """

    observations: Any
    rewards: Array
    terminated: Array
    truncated: Array
    infos: Any
    finals: Any
    final_infos: Any


def shaped(out: Outputs) -> Outputs:
    """Give observations of one number a last axis of 1, so that rules can write ``out[0]``."""
    if out.observations.ndim > 1:
        return out
    return out._replace(
        observations=out.observations.reshape(-1, 1), finals=out.finals.reshape(-1, 1)
    )


class Engine(ABC):
    """A batch of games.

    Attributes:
        states: A record of the rule book's ``state`` per game.
        games: A record of ``GAME`` per game.
    """

    def __init__(
        self, book: RuleBook, num_envs: int, blanks: Array, limit: int | None, mode: int
    ) -> None:
        """Make games, which must be reset before the first step.

        Args:
            book: The rules.
            num_envs: Number of games.
            blanks: States before an episode; see :meth:`RuleBook.blanks`.
            limit: Steps after which an episode is truncated, ``None`` for no limit.
            mode: Autoreset mode, as a number of ``kernels.py``.
        """
        self.states: Any = np.empty(num_envs, book.state)
        self.states[:] = blanks
        self.games: Any = np.zeros(num_envs, GAME)
        self._blanks = blanks
        self._limit = limit or 0
        self._mode = mode
        self._num_envs = num_envs
        self._book = book
        self._no_infos = np.zeros(num_envs, bool)

    def outputs(self) -> Outputs:
        """Return new arrays for the results of a step."""
        n, space, infos = self._num_envs, self._book.observation_space, self._no_infos
        observations = np.empty((n, *(space.shape or ())), space.dtype)
        if self._book.info_dtype.names:
            infos = np.empty(n, self._book.info_dtype)
        finals, final_infos = observations, infos
        if self._mode == SAME_STEP:
            finals, final_infos = np.empty_like(observations), np.empty_like(infos)
        return Outputs(
            observations, np.empty(n), np.empty(n, bool), np.empty(n, bool), infos, finals,
            final_infos,
        )  # fmt: skip

    def own_outputs(self) -> Outputs:
        """Return arrays into which the engine writes without a copy."""
        return self.outputs()

    def seed(self, chosen: Array, keys: Array) -> None:
        """Set new keys of random numbers; ``chosen`` are the indices of the games."""
        self.games["key"][chosen] = keys
        self.games["draws"][chosen] = 0

    def get_state(self, i: int) -> tuple[bytes, bytes]:
        """Return the state of one game, with its header."""
        return self.states[i].tobytes(), self.games[i].tobytes()

    def set_state(self, i: int, state: tuple[bytes, bytes]) -> None:
        """Continue one game from a state."""
        for table, record in zip((self.states, self.games), state, strict=True):
            table[i] = np.frombuffer(record, table.dtype)[0]

    def get_states(self) -> tuple[Array, Array]:
        """Return copies of the records of all games, on the host."""
        return self.states.copy(), self.games.copy()

    def set_states(self, states: tuple[Array, Array]) -> None:
        """Continue all games from a result of :meth:`get_states`."""
        self.states[:], self.games[:] = states

    @abstractmethod
    def begin(self, mask: Array) -> None:
        """Start episodes of the games of a mask, ``bool[n]``."""

    @abstractmethod
    def play(self, actions: Array) -> None:
        """Play a step of all games."""

    def show(self, out: Outputs) -> Array | None:
        """Write the results of the last step; with same-step autoreset, start the next episodes.

        Returns:
            Whether each episode has ended with the step, ``bool[n]``; ``None`` with next-step
            autoreset, which does not need it.
        """
        self._write(out)
        return None if self._mode == NEXT_STEP else out.terminated | out.truncated

    @abstractmethod
    def _write(self, out: Outputs) -> None:
        """Write the results of the last step."""

    def close(self) -> None:
        """Free threads and memory on devices."""


class PythonEngine(Engine):
    """Runs the rules as they are written, one game after the other."""

    def __init__(self, book: RuleBook, num_envs: int, *rest: Any) -> None:
        super().__init__(book, num_envs, *rest)
        self._tables = Table(self.states), self._blanks, Table(self.games)
        binder = Binder(book.replaced, None)
        self._begin, self._play, self._show = map(binder.bind, (begin_some, play_some, show_some))

    def begin(self, mask: Array) -> None:
        self._begin(*self._tables, mask, 0, self._num_envs)

    def play(self, actions: Array) -> None:
        self._play(*self._tables, Table(actions), self._limit, self._mode, 0, self._num_envs)

    def _write(self, out: Outputs) -> None:
        tables = map(Table, shaped(out))
        self._show(*self._tables, *tables, self._mode, 0, self._num_envs)


class CompiledEngine(Engine):
    """Runs compiled rules on one core."""

    def __init__(self, book: RuleBook, num_envs: int, *rest: Any) -> None:
        super().__init__(book, num_envs, *rest)
        self._kernels = kernels = kernels_of(book, Kernels)
        tables = self._arrays = self.states, self._blanks, self.games
        out = shaped(self.outputs())
        mask, actions = np.zeros(num_envs, bool), no_actions(book, num_envs)
        kernels.compile(kernels.begin, (*tables, mask, 0, 1))
        kernels.compile(kernels.play, (*tables, actions, 0, 0, 0, 1))
        kernels.compile(kernels.show, (*tables, *out, 0, 0, 1))

    def begin(self, mask: Array) -> None:
        self._run(self._kernels.begin, mask)

    def play(self, actions: Array) -> None:
        self._run(self._kernels.play, actions, self._limit, self._mode)

    def _write(self, out: Outputs) -> None:
        self._run(self._kernels.show, *shaped(out), self._mode)

    def _run(self, kernel: Any, *arguments: Any) -> None:
        try:
            self._run_ranges(kernel, arguments)
        except Exception as error:
            error.add_note(
                f"raised by the compiled rules of {self._book.name}: engine='python' shows the"
                " line; reset all games before the next step"
            )
            raise

    def _run_ranges(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        kernel(*self._arrays, *arguments, 0, self._num_envs)


class ParallelEngine(CompiledEngine):
    """Runs compiled rules on all cores, if there are enough games."""

    def __init__(self, book: RuleBook, num_envs: int, *rest: Any) -> None:
        super().__init__(book, num_envs, *rest)
        shares = max(1, min(available_cores(), num_envs // SHARE))
        cuts = [num_envs * k // shares for k in range(shares + 1)]
        self._ranges = [*pairwise(cuts)]
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(max(1, len(self._ranges) - 1), "agym-parallel")

    def _run_ranges(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        if os.getpid() != self._process:  # a forked child does not have its parent's threads
            self._start()
        first, *others = self._ranges
        running = [self._pool.submit(kernel, *self._arrays, *arguments, *each) for each in others]
        try:
            kernel(*self._arrays, *arguments, *first)
        finally:
            wait(running)  # also after an exception, because the other threads still write
        for future in running:
            future.result()

    def close(self) -> None:
        self._pool.shutdown()
