"""Output: the forms in which results come, each described once.

The engine gives NumPy arrays, nested as the space is nested. What becomes of them::

    list     a value per environment, cut from the arrays; numbers of Python
    array    as they are
    torch    tensors over the same memory
    jax      JAX arrays, over the same memory where they stay on the CPU

Values without a fixed size (texts, graphs) are no arrays: they come one per environment, as the
environment gave them, in every form; so do infos and frames. Torch and JAX are imported when their
form is asked for.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from agym._system.extras import require
from agym.engine.batches.results import Batch, ResetResult, StepResult
from agym.errors import UsageError
from agym.protocol.memory import Arena
from agym.protocol.space_layout import Layout
from agym.protocol.table import SlotTable
from agym.protocol.typing import Array

Output = Literal["list", "array", "torch", "jax"]


class ListSpace(spaces.Tuple):  # type: ignore[type-arg] # no generic class before Gymnasium 1.4
    """A space per environment; samples are lists, as agymc's were."""

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """One sample per environment."""
        return list(super().sample(*args, **kwargs))


class OutputFormat(ABC):
    """What becomes of the engine's arrays."""

    layout: Layout

    def attach(self, table: SlotTable) -> None:
        """Get to know the observations, before the first of them comes.

        Raises:
            UsageError: They cannot have this form.
        """
        self.layout = table.observation

    def space(self, space: Space[Any], num_envs: int) -> Space[Any]:
        """The space of a batch; what it samples is what ``step`` takes."""
        batched: Space[Any] = batch_space(space, num_envs)
        return batched

    def check_out(self, out: Any) -> Any:
        """See that results may be put into arrays that change later.

        Raises:
            UsageError: They may not.
        """
        return out

    @abstractmethod
    def column(self, array: Array) -> Any:
        """Rewards, flags or ids, one per environment."""

    @abstractmethod
    def observations(self, batch: Any, count: int) -> Any:
        """A batch of observations."""

    def observation(self, batch: Any) -> Any:
        """The observation in a batch of one: as the environment gave it."""
        return self.layout.rows(batch, 1)[0]

    def step(self, result: StepResult) -> StepResult[Any]:
        """What a step gave."""
        observations, rewards, terminated, truncated, infos = result
        return StepResult(
            self.observations(observations, len(infos)),
            self.column(rewards),
            self.column(terminated),
            self.column(truncated),
            infos,
        )

    def reset(self, result: ResetResult) -> ResetResult[Any]:
        """What a reset gave."""
        observations, infos = result
        return ResetResult(self.observations(observations, len(infos)), infos)

    def batch(self, batch: Batch) -> Batch[Any]:
        """What was received."""
        env_ids, *result = batch
        return Batch(self.column(env_ids), *self.step(StepResult(*result)))


class Lists(OutputFormat):
    """A value per environment."""

    def space(self, space: Space[Any], num_envs: int) -> Space[Any]:
        """A space per environment."""
        return ListSpace([space] * num_envs)

    def column(self, array: Array) -> Any:
        """Python's numbers."""
        return array.tolist()

    def observations(self, batch: Any, count: int) -> Any:
        """One by one, nested as the space is nested."""
        return self.layout.rows(batch, count)


class Arrays(OutputFormat):
    """NumPy arrays, as they are."""

    def column(self, array: Array) -> Any:
        """As it is."""
        return array

    def observations(self, batch: Any, count: int) -> Any:
        """As it is."""
        return batch

    def step(self, result: StepResult) -> StepResult[Any]:
        """As it is."""
        return result

    def reset(self, result: ResetResult) -> ResetResult[Any]:
        """As it is."""
        return result

    def batch(self, batch: Batch) -> Batch[Any]:
        """As it is."""
        return batch


class _OfLibrary(OutputFormat):
    """Arrays of another library, leaf by leaf."""

    name: str

    def attach(self, table: SlotTable) -> None:
        """See that the library has the dtypes of all leaves."""
        super().attach(table)
        for leaf in self.layout.leaves:
            try:
                if leaf.dtype is not None:
                    self.column(np.empty(0, leaf.dtype))
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"output={self.name!r} has nothing like observations{leaf.path} of dtype"
                    f" {leaf.dtype}: take output='array'"
                ) from error

    def observations(self, batch: Any, count: int) -> Any:
        """Nested as the space is nested."""
        if self.layout.single:
            return self._leaf(batch)
        return self.layout.unflatten([self._leaf(leaf) for leaf in self.layout.flatten(batch)])

    def observation(self, batch: Any) -> Any:
        """The first row of each leaf."""
        leaves = self.layout.flatten(batch)
        return self.layout.unflatten(
            [self.column(leaf[0, ...]) if _is_array(leaf) else leaf[0] for leaf in leaves]
        )

    def _leaf(self, leaf: Any) -> Any:
        return self.column(leaf) if _is_array(leaf) else leaf


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray)  # else the values of an object leaf


class Tensors(_OfLibrary):
    """Tensors of torch, over the same memory."""

    name = "torch"

    def __init__(self) -> None:
        """Import torch."""
        torch = require("torch", "torch")
        self._from_numpy = torch.from_numpy
        self._cuda = torch.cuda

    def attach(self, table: SlotTable) -> None:
        """Have the table pinned if there is a GPU."""
        super().attach(table)
        pin(table.arena, self._cuda)

    def column(self, array: Array) -> Any:
        """A tensor over an array; over a copy of one that is read-only, as no tensor is."""
        return self._from_numpy(array if array.flags.writeable else array.copy())


class JaxArrays(_OfLibrary):
    """Arrays of JAX: on its default device, and over the same memory if that is the CPU.

    JAX takes over memory that is aligned to 64 bytes, and copies other. ``device_put`` does the
    same as dlpack here, but leaves the array free to go where the others of a computation are,
    where dlpack would commit it, and so the computation, to the CPU.
    """

    name = "jax"

    def __init__(self) -> None:
        """Import JAX."""
        self._put = require("jax", "jax").device_put

    def check_out(self, out: Any) -> Any:
        """An array of JAX never changes, so none can be over the caller's own."""
        if out is not None:
            raise UsageError(
                "output='jax' gives arrays of its own: leave out= out, or take 'array'"
            )
        return None

    def column(self, array: Array) -> Any:
        """An array on the default device."""
        return self._put(array)


FORMS: dict[str, type[OutputFormat]] = {
    "list": Lists,
    "array": Arrays,
    "torch": Tensors,
    "jax": JaxArrays,
}


def make_output_format(output: str, *, copy: bool = True) -> OutputFormat:
    """Find a form by its name.

    Args:
        output: The name.
        copy: Whether arrays stay as they are for ever.

    Raises:
        UsageError: There is no such form, or it needs arrays that stay as they are.
        MissingExtraError: Its library is not installed.
    """
    if not isinstance(output, str) or output not in FORMS:
        raise UsageError(f"output={output!r} is unknown: take one of {', '.join(FORMS)}")
    if output == "jax" and not copy:
        raise UsageError(
            "copy=False gives views that change, which an array of JAX never may: leave it out"
            " with output='jax'"
        )
    return FORMS[output]()


# For every GPU, not only the current one (cudaHostRegisterPortable).
PORTABLE = 1


def pin(arena: Arena, cuda: Any) -> bool:
    """Pin the memory of an arena until the arena is gone; arrays over it may live on, unpinned.

    Args:
        arena: The memory.
        cuda: The module ``torch.cuda``.

    Returns:
        Whether it is pinned: not without a GPU, nor where CUDA refuses, which does no harm.
    """
    if not cuda.is_available():
        return False
    try:
        runtime = cuda.cudart()
    except RuntimeError:  # this process was forked from one that uses the GPU, or may not use it
        return False
    memory = arena.memory
    address = memory.ctypes.data
    if int(runtime.cudaHostRegister(address, memory.nbytes, PORTABLE)):
        return False
    # The arena goes before its memory does. With the process all ends by itself.
    weakref.finalize(arena, _unpin, cuda, address, os.getpid()).atexit = False
    return True


def _unpin(cuda: Any, address: int, pid: int) -> None:
    if os.getpid() != pid:
        return  # a forked child has a copy of the arena, and no CUDA
    with suppress(RuntimeError):  # a GPU that failed, which is told where it is used
        cuda.synchronize()  # copies from it that are under way
        cuda.cudart().cudaHostUnregister(address)
