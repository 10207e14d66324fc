"""The caller's own arrays for results, and step buffers.

A step buffer is an extension of the slot table, with a plane for each step. The workers write
its batches there directly, without a copy. Any other array is filled from the plane of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import ref

import numpy as np

from agym.core.backends.pool import Pool
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.table import FIRST_BUFFER, Plane, SlotTable
from agym.core.protocol.typing import Array
from agym.errors import UsageError


class OutTarget:
    """The arrays that receive a batch.

    Attributes:
        observations: Nested arrays ``[n, ...]``, which are returned to the caller.
        leaves: The same arrays, flat.
        rest: Arrays ``[n]`` for rewards and flags, empty if only observations are wanted.
        plane: The plane number of these arrays, if hosts can write here directly.
    """

    def __init__(self, layout: Layout, observations: Any, rest: Sequence[Array] = ()) -> None:
        self.observations = observations
        self.leaves = layout.flatten(observations)
        self.rest = rest
        self.plane: int | None = None

    def fill(self, columns: Sequence[Array]) -> list[Array]:
        """Copy a batch's columns into these arrays; return the columns of the result."""
        targets = [*self.leaves, *self.rest]
        for target, column in zip(targets, columns, strict=False):
            np.copyto(target, column, casting="same_kind")
        return [*targets, *(column.copy() for column in columns[len(targets) :])]


class RolloutSlice(OutTarget):
    """One step of a step buffer, for ``out=`` of ``step`` and ``reset``.

    Attributes:
        buffer: The buffer.
        observations: Nested NumPy arrays ``(N, *shape)``.
        rewards: ``float64[N]``.
        terminated: ``bool[N]``.
        truncated: ``bool[N]``.
    """

    def __init__(self, buffer: StepBuffer, index: int) -> None:
        self.buffer = buffer  # keeps the memory alive while a step writes here
        plane = buffer.stacked.at(index)
        rest = self.rewards, self.terminated, self.truncated = plane.columns[-3:]
        super().__init__(buffer.layout, buffer.layout.unflatten(plane.observations), rest)
        if buffer.planes is not None:
            self.plane = buffer.planes[index]


class StepBuffer:
    """Memory for ``T`` steps of ``N`` environments; made by ``envs.step_buffer(T)``.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, output="array", autoreset="next_step") as envs:
        ...     buffer = envs.step_buffer(8)
        ...     observations, infos = envs.reset(seed=0)
        ...     for t in range(8):
        ...         result = envs.step([0, 1], out=buffer[t])
        >>> buffer.observations.shape, buffer.rewards.shape
        ((8, 2, 4), (8, 2))

    Pass ``buffer[t]`` as ``out=``. A step writes its whole result there, so that an action's reward
    is stored next to the observation that followed the action. A reset writes its observations,
    with reward 0 and no flags. (``buffer.observations[t]`` is an ordinary array, which would
    receive only a copy of the observations.) The arrays are NumPy's whatever ``output`` is, and
    stay valid after the environments are closed.

    Attributes:
        observations: ``(T, N, *shape)`` in the space's dtype, nested like the space.
        rewards: ``float64[T, N]``.
        terminated: ``bool[T, N]``.
        truncated: ``bool[T, N]``.
    """

    def __init__(self, layout: Layout, stacked: Plane, planes: range | None = None) -> None:
        self.layout = layout  # identifies the slot table
        self.stacked = stacked
        self.planes = planes
        self.observations = layout.unflatten(stacked.observations)
        self.rewards, self.terminated, self.truncated = stacked.columns[-3:]

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, index: int) -> RolloutSlice:
        """Return one step; negative indices count from the end.

        Raises:
            IndexError: There is no such step.
            UsageError: The index is not an integer.
        """
        if not isinstance(index, int | np.integer):
            raise UsageError(f"a step buffer returns one step at a time: buffer[t], not {index!r}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"step {index} of a step buffer of {len(self)}")
        return RolloutSlice(self, int(index) % len(self))

    def __iter__(self) -> Iterator[RolloutSlice]:
        return (self[t] for t in range(len(self)))


class Buffers:
    """The step buffers of an engine."""

    def __init__(self, table: SlotTable, backend: Pool, *, direct: bool) -> None:
        """Start with no buffers.

        Args:
            table: The slot table.
            backend: The backend whose hosts write into buffers.
            direct: Hosts may write into the caller's memory, because the engine never reads it.
        """
        self._table = table
        self._backend = backend
        self._direct = direct
        self._next = FIRST_BUFFER
        self._live: dict[int, ref[StepBuffer]] = {}

    def make(self, steps: int, in_use: set[int]) -> StepBuffer:
        """Make a buffer, and free buffers that the caller has dropped and no ticket uses.

        Raises:
            UsageError: Observations have no fixed size.
        """
        table = self._table
        _check_fixed(table.observation)
        for first, buffer in [*self._live.items()]:
            extension = table.extensions[first]
            # A host may still write into a dropped buffer: a call that was given up keeps its
            # ticket until its environments have ended. The memory stays until then.
            if buffer() is None and in_use.isdisjoint(extension.planes):
                del self._live[first]
                table.shrink(first)
                self._backend.shrink(extension)
        if not self._direct:
            return StepBuffer(table.observation, table.stack(steps)[0])
        planes = range(self._next, self._next + steps)
        self._next = planes.stop
        extension = table.extend(planes)
        self._backend.extend(extension)
        made = StepBuffer(table.observation, extension.stacked, planes)
        self._live[planes.start] = ref(made)
        return made

    def check(self, out: Any, rows: int) -> OutTarget:
        """Check the caller's ``out=`` for a batch of ``rows`` environments.

        Raises:
            UsageError: The batch does not fit.
        """
        layout = self._table.observation
        if isinstance(out, RolloutSlice):
            if out.buffer.layout is not layout:
                raise UsageError(
                    "out= is a step of a step buffer of other environments: use"
                    " envs.step_buffer(steps)[t] of these environments"
                )
            if rows != self._table.num_envs:
                raise UsageError(
                    "out= is a step of a step buffer, which is for all environments, but this"
                    f" call is for {rows}: omit env_ids, or use an array"
                )
            return out
        if isinstance(out, StepBuffer):
            raise UsageError("out= is a whole step buffer: use one step of it, out=buffer[t]")
        _check_fixed(layout)
        try:
            given = OutTarget(layout, out)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            paths = ", ".join(f"out{leaf.path}" for leaf in layout.leaves)
            raise UsageError(
                f"out= is not nested like the observations: pass arrays for {paths}"
            ) from error
        for array, leaf in zip(given.leaves, layout.leaves, strict=True):
            wanted = (rows, *leaf.shape)
            what = f"out{leaf.path}"
            if not isinstance(array, np.ndarray):
                raise UsageError(
                    f"{what} must be a NumPy array, not {type(array).__name__}: for a tensor, use"
                    " tensor.numpy()"
                )
            if array.shape != wanted:
                raise UsageError(f"{what} must have the shape {wanted}, not {array.shape}")
            if not array.flags.writeable:
                raise UsageError(f"{what} is read-only: use a writable array")
            assert leaf.dtype is not None
            floats = leaf.dtype.kind == array.dtype.kind == "f"
            if not np.can_cast(leaf.dtype, array.dtype, "same_kind" if floats else "safe"):
                raise UsageError(
                    f"{what} of dtype {array.dtype} cannot store {leaf.dtype} without loss: use an"
                    f" array of dtype {leaf.dtype}"
                )
        return given


def _check_fixed(layout: Layout) -> None:
    for i in layout.objects:
        name = layout.leaves[i].path or "they are objects"
        raise UsageError(f"observations have no fixed size ({name}), so no array can store them")
