"""The CUDA engine: compiled rules on a GPU, a thread per game.

States, headers and the results of steps are on the device. The results of a step are copied to the
host, or stay on the device with ``copy=False``.

Integers are the same as with the other engines. Floats may differ in their last bits: CUDA fuses
multiplications with additions, and has its own ``sin``.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from agym.core._system.extras import require
from agym.core.protocol.typing import Array
from agym.errors import UsageError
from agym.rules.arithmetic import EXTRA, as_python
from agym.rules.binding import Binder
from agym.rules.compiling import install_rng, kernels_of, refusal
from agym.rules.contract import RuleBook, no_actions
from agym.rules.engines import Engine, Outputs, shaped
from agym.rules.kernels import NEXT_STEP, SAME_STEP, begin, play, show
from agym.rules.records import Table

# Maximum number of threads per block.
THREADS = 64


class CudaEngine(Engine):
    """Keeps the games on a device."""

    def __init__(self, book: RuleBook, num_envs: int, blanks: Array, *rest: Any) -> None:
        super().__init__(book, num_envs, blanks, *rest)
        self._cuda = cuda = require("numba.cuda", EXTRA)
        if not cuda.is_available():
            raise UsageError("engine='cuda' needs an NVIDIA GPU and driver: use engine='compiled'")
        threads = min(num_envs, THREADS)
        self._launch = -(-num_envs // threads), threads
        try:
            self._begin, self._play, self._show = kernels_of(book, compile_kernels)
        except require("numba", EXTRA).core.errors.NumbaError as error:
            raise refusal(book, error) from error
        self.states, self.games = cuda.to_device(self.states), cuda.to_device(self.games)
        self._tables = self.states, cuda.to_device(blanks), self.games
        self._actions = cuda.to_device(no_actions(book, num_envs))
        self._mask = cuda.to_device(np.zeros(num_envs, bool))
        self._own = self.own_outputs()

    def own_outputs(self) -> Outputs:
        return Outputs(*map(self._cuda.to_device, self.outputs()))

    def seed(self, chosen: Array, keys: Array) -> None:
        games = self.games.copy_to_host()
        games["key"][chosen] = keys
        games["draws"][chosen] = 0
        self.games.copy_to_device(games)

    def get_state(self, i: int) -> tuple[bytes, bytes]:
        states, games = (table[i : i + 1].copy_to_host() for table in (self.states, self.games))
        return states.tobytes(), games.tobytes()

    def set_state(self, i: int, state: tuple[bytes, bytes]) -> None:
        for table, record in zip((self.states, self.games), state, strict=True):
            table[i : i + 1].copy_to_device(np.frombuffer(record, table.dtype))

    def get_states(self) -> tuple[Array, Array]:
        return self.states.copy_to_host(), self.games.copy_to_host()

    def set_states(self, states: tuple[Array, Array]) -> None:
        for table, records in zip((self.states, self.games), states, strict=True):
            table.copy_to_device(records)

    def begin(self, mask: Array) -> None:
        self._mask.copy_to_device(np.ascontiguousarray(mask))
        self._run(self._begin, self._mask)

    def play(self, actions: Any) -> None:
        if hasattr(actions, "__cuda_array_interface__"):
            on_device = self._cuda.as_cuda_array(actions)
        else:
            self._actions.copy_to_device(actions)
            on_device = self._actions
        self._run(self._play, on_device, self._limit, self._mode)

    def show(self, out: Outputs) -> Array | None:
        self._write(out)
        if self._mode == NEXT_STEP:
            return None
        over: Array = np.asarray(out.terminated) | np.asarray(out.truncated)
        return over

    def _write(self, out: Outputs) -> None:
        on_host = isinstance(out.observations, np.ndarray)
        device_out = self._own if on_host else out
        self._run(self._show, *shaped(device_out), self._mode)
        if on_host:
            names = ["observations", "rewards", "terminated", "truncated"]
            names += ["infos"] if self._book.info_dtype.names else []
            names += ["finals", "final_infos"] if self._mode == SAME_STEP else []
            for name in names:
                getattr(device_out, name).copy_to_host(getattr(out, name))

    def _run(self, kernel: Any, *arguments: Any) -> None:
        kernel[self._launch](*self._tables, *arguments)

    def close(self) -> None:
        """Free the memory on the device, except arrays that the caller uses."""
        for name in ("_tables", "_actions", "_mask", "_own", "states", "games"):
            self.__dict__.pop(name, None)


def compile_kernels(book: RuleBook, _: str | None) -> tuple[Any, Any, Any]:
    """Compile the kernels of a rule book; numba has no cache for their fingerprint."""
    cuda = require("numba.cuda", EXTRA)
    config = require("numba", EXTRA).config
    replaced: dict[Any, Any] = {**book.replaced}
    if config.ENABLE_CUDASIM:
        replaced[plain] = plain_table
        binder = Binder(replaced, None)
    else:
        install_rng(book.rng)  # type: ignore[arg-type] # mypy takes classes for unhashable
        replaced[plain] = same
        compile_one = cuda.jit(device=True)
        binder = Binder(replaced, lambda function: compile_one(as_python(function)))
    kernels = [binder.copy(kernel) for kernel in (begin_one, play_one, show_one)]
    for kernel in kernels:
        kernel.__globals__["cuda"] = cuda
    begin, play, show = map(cuda.jit, kernels)
    return begin, play, show


# ---------------------------------------------------------------- compiled functions

# A stand-in; kernels are compiled with numba.cuda in its place.
cuda: Any = None


def plain(array: Any) -> NoReturn:
    """Stand-in for ``same`` (on a GPU) or ``plain_table`` (in the simulator)."""
    raise NotImplementedError


def same(array: Any) -> Any:
    """Return an array on a device as it is."""
    return array


def plain_table(array: Any) -> Any:
    """Return an array of numba's simulator as a table of Python numbers."""
    return Table(array._item._ary)


def begin_one(states: Any, blanks: Any, games: Any, mask: Any) -> None:
    """Start an episode of the thread's game, if the mask selects it."""
    i = cuda.grid(1)
    if i < len(games) and mask[i]:
        begin(plain(states), plain(blanks), plain(games), i)


def play_one(
    states: Any, blanks: Any, games: Any, actions: Any, limit: int, mode: int
) -> None:  # fmt: skip
    """Play a step of the thread's game."""
    i = cuda.grid(1)
    if i < len(games):
        play(plain(states), plain(blanks), plain(games), i, plain(actions)[i], limit, mode)


def show_one(
    states: Any, blanks: Any, games: Any, observations: Any, rewards: Any, terminated: Any,
    truncated: Any, infos: Any, finals: Any, final_infos: Any, mode: int,
) -> None:  # fmt: skip
    """Write the results of the thread's game."""
    i = cuda.grid(1)
    if i < len(games):
        show(
            plain(states), plain(blanks), plain(games), i, plain(observations), rewards,
            terminated, truncated, plain(infos), plain(finals), plain(final_infos), mode,
        )  # fmt: skip
