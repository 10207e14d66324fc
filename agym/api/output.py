"""The output formats: they convert results to lists, tensors or JAX arrays.

The engine builds NumPy arrays, nested as the space is nested. Each format converts them::

    list     a value per environment, cut from the arrays; Python numbers
    array    unchanged
    torch    tensors over the same memory
    jax      JAX arrays, over the same memory if they stay on the CPU

No format converts values without a fixed size (texts, graphs), infos and frames: they are lists
with a value per environment, as the environment returned it. Torch and JAX are imported only for
their own format.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from agym.core._system.extras import require
from agym.core.engine.batches.results import Batch, ResetResult, StepResult
from agym.core.protocol.arguments import check_choice
from agym.core.protocol.memory import Arena
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.table import SlotTable
from agym.core.protocol.typing import Array
from agym.errors import UsageError

Output = Literal["list", "array", "torch", "jax"]

# What NumPy's arrays have and lists lack; NumPy itself asks for the names with underscores.
ARRAY_ATTRIBUTES = frozenset(name for name in dir(np.ndarray) if not name.startswith("_"))


class ListSpace(spaces.Tuple):  # type: ignore[type-arg] # no generic class before Gymnasium 1.4
    """A tuple of one space per environment, whose samples are lists."""

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Return a list with one sample per environment."""
        return list(super().sample(*args, **kwargs))


class OutputFormat(ABC):
    """Converts the engine's arrays.

    Attributes:
        converts: Whether the format changes the engine's arrays.
    """

    converts: ClassVar[bool] = True
    layout: Layout

    def attach(self, table: SlotTable) -> None:
        """Prepare for the observations of a table.

        Raises:
            UsageError: The observations cannot be converted.
        """
        self.layout = table.observation

    def space(self, space: Space[Any], num_envs: int) -> Space[Any]:
        """Return the space of a batch; ``step`` accepts its samples."""
        batched: Space[Any] = batch_space(space, num_envs)
        return batched

    def check_out(self, out: Any) -> Any:
        """Check that the format can write results into the caller's arrays.

        Raises:
            UsageError: It cannot.
        """
        return out

    @abstractmethod
    def column(self, array: Array) -> Any:
        """Convert rewards, flags or ids, one per environment."""

    @abstractmethod
    def observations(self, batch: Any, count: int) -> Any:
        """Convert a batch of observations."""

    def observation(self, batch: Any) -> Any:
        """Return the observation in a batch of one, as the environment returned it."""
        return self.layout.rows(batch, 1)[0]

    def step(self, result: StepResult) -> StepResult[Any]:
        observations, rewards, terminated, truncated, infos = result
        return StepResult(
            self.observations(observations, len(infos)),
            self.column(rewards),
            self.column(terminated),
            self.column(truncated),
            infos,
        )

    def reset(self, result: ResetResult) -> ResetResult[Any]:
        observations, infos = result
        return ResetResult(self.observations(observations, len(infos)), infos)

    def batch(self, batch: Batch) -> Batch[Any]:
        env_ids, *result = batch
        return Batch(self.column(env_ids), *self.step(StepResult(*result)))


class ListOfValues(list[Any]):
    """A list with a value per environment, which says how to get an array instead."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        hint = ""
        if name in ARRAY_ATTRIBUTES:
            hint = f": pass output='array' to agym.make for NumPy arrays, which have {name!r}"
        raise AttributeError(f"'list' object has no attribute {name!r}{hint}")

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        """Pickle and copy it as a plain list."""
        return list, ([*self],)


class Lists(OutputFormat):
    """Lists with a value per environment."""

    def space(self, space: Space[Any], num_envs: int) -> Space[Any]:
        return ListSpace([space] * num_envs)

    def column(self, array: Array) -> Any:
        return ListOfValues(array.tolist())

    def observations(self, batch: Any, count: int) -> Any:
        return ListOfValues(self.layout.rows(batch, count))


class Arrays(OutputFormat):
    """NumPy arrays, unchanged."""

    converts = False

    def column(self, array: Array) -> Any:
        return array

    def observations(self, batch: Any, count: int) -> Any:
        return batch

    def batch(self, batch: Batch) -> Batch[Any]:
        return batch


class _LibraryFormat(OutputFormat):
    """Arrays of another library, converted leaf by leaf."""

    name: str

    def attach(self, table: SlotTable) -> None:
        """Check that the library has the dtypes of all leaves."""
        super().attach(table)
        for leaf in self.layout.leaves:
            try:
                if leaf.dtype is not None:
                    self.column(np.empty(0, leaf.dtype))
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"output={self.name!r} has no dtype for observations{leaf.path} of dtype"
                    f" {leaf.dtype}: use output='array'"
                ) from error

    def observations(self, batch: Any, count: int) -> Any:
        if self.layout.single:
            return self._leaf(batch)
        return self.layout.unflatten([self._leaf(leaf) for leaf in self.layout.flatten(batch)])

    def observation(self, batch: Any) -> Any:
        """Return the first row of each leaf."""
        leaves = self.layout.flatten(batch)
        return self.layout.unflatten(
            [self.column(leaf[0, ...]) if _is_array(leaf) else leaf[0] for leaf in leaves]
        )

    def _leaf(self, leaf: Any) -> Any:
        return self.column(leaf) if _is_array(leaf) else leaf


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray)  # else the leaf is a list of values without a fixed size


class Tensors(_LibraryFormat):
    """Torch tensors over the same memory."""

    name = "torch"

    def __init__(self) -> None:
        torch = require("torch", "torch")
        self._from_numpy = torch.from_numpy
        self._cuda = torch.cuda

    def attach(self, table: SlotTable) -> None:
        """Pin the table's memory if there is a GPU."""
        super().attach(table)
        pin(table.arena, self._cuda)

    def column(self, array: Array) -> Any:
        """Return a tensor over an array, or over a copy if it is read-only: tensors are not."""
        return self._from_numpy(array if array.flags.writeable else array.copy())


class JaxArrays(_LibraryFormat):
    """JAX arrays on the default device, over the same memory if that device is the CPU.

    JAX uses memory in place if it is aligned to 64 bytes, and copies it otherwise. ``device_put``
    leaves the array uncommitted, so that a computation can move it to the device of its other
    arguments. dlpack would commit the array, and with it the computation, to the CPU.
    """

    name = "jax"

    def __init__(self) -> None:
        self._put = require("jax", "jax").device_put

    def check_out(self, out: Any) -> Any:
        """Refuse ``out=``, because a JAX array never changes."""
        if out is not None:
            raise UsageError(
                "JAX arrays can't be written into: leave out= out, or use output='array'"
            )
        return None

    def column(self, array: Array) -> Any:
        return self._put(array)


FORMS: dict[str, type[OutputFormat]] = {
    "list": Lists,
    "array": Arrays,
    "torch": Tensors,
    "jax": JaxArrays,
}


def make_output_format(output: str, *, copy: bool = True) -> OutputFormat:
    """Make an output format by its name.

    Args:
        output: The name.
        copy: Whether the engine's arrays never change.

    Raises:
        UsageError: There is no such format, or it needs arrays that never change.
        MissingExtraError: Its library is not installed.
    """
    check_choice("output", output, [*FORMS])
    if output == "jax" and not copy:
        raise UsageError(
            "copy=False returns views that change, and a JAX array must not change: leave copy= out"
            " with output='jax'"
        )
    return FORMS[output]()


# Pinned for all GPUs, not only the current one (cudaHostRegisterPortable).
PORTABLE = 1


def pin(arena: Arena, cuda: Any) -> bool:
    """Pin the memory of an arena until the arena is gone; arrays over it may live on, unpinned.

    Args:
        arena: The memory.
        cuda: The module ``torch.cuda``.

    Returns:
        Whether it is pinned. Without a GPU, or if CUDA refuses, it is not, which is harmless.
    """
    if not cuda.is_available():
        return False
    try:
        runtime = cuda.cudart()
    except RuntimeError:  # a fork of a process that uses the GPU, or access is denied
        return False
    memory = arena.memory
    address = memory.ctypes.data
    if int(runtime.cudaHostRegister(address, memory.nbytes, PORTABLE)):
        return False
    # The arena is finalized before its memory is freed. At exit both go with the process.
    weakref.finalize(arena, _unpin, cuda, address, os.getpid()).atexit = False
    return True


def _unpin(cuda: Any, address: int, pid: int) -> None:
    if os.getpid() != pid:
        return  # a forked child, which has a copy of the arena and cannot use CUDA
    with suppress(RuntimeError):  # a GPU that failed, which other uses of it report
        cuda.synchronize()  # wait for copies from this memory
        cuda.cudart().cudaHostUnregister(address)
