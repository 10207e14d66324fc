"""The slot table: rows of actions, observations, rewards and flags of n environments.

Struct of arrays: one array per leaf, a row per environment. What a step gives back exists
once per *plane*. Full batches alternate between the first two, so that the arrays of one batch
stay as they are until the next but one; what is about some environments goes to the third, and
steps that were sent wait in the fourth until they are received::

    actions          [leaf][n, ...]                     engine writes, host reads
    planes[0]   observations [leaf][n, ...]   rewards [n]   terminated [n]   truncated [n]
    planes[1]   (final       [leaf][n, ...]  only with same-step autoreset)   host writes
    planes[2]
    planes[3]

Infos that are numbers have room in each plane too (``core/info_table.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agym.core.arena import Arena, Field
from agym.core.gauges import Gauges, gauge_fields
from agym.core.info_table import InfoArea, info_fields
from agym.core.layout import Layout
from agym.core.operations import PLANES

Array = np.ndarray[Any, Any]


class Plane:
    """One set of results; each attribute is an array or a list of arrays, a row per slot.

    Infos have an area, and those of finished episodes another one; rows of either are found by
    slot, also in what :meth:`rows` gives.
    """

    __slots__ = (
        "final",
        "final_infos",
        "infos",
        "observations",
        "rewards",
        "terminated",
        "truncated",
    )

    def __init__(
        self,
        observations: list[Array],
        final: list[Array],
        rewards: Array,
        terminated: Array,
        truncated: Array,
        infos: InfoArea,
        final_infos: InfoArea,
    ) -> None:
        self.observations = observations
        self.final = final
        self.rewards = rewards
        self.terminated = terminated
        self.truncated = truncated
        self.infos = infos
        self.final_infos = final_infos

    def rows(self, start: int, stop: int) -> Plane:
        """Views of the rows ``start:stop``."""
        return Plane(
            [array[start:stop] for array in self.observations],
            [array[start:stop] for array in self.final],
            self.rewards[start:stop],
            self.terminated[start:stop],
            self.truncated[start:stop],
            self.infos,
            self.final_infos,
        )


class SlotTable:
    """The memory that engine and hosts share; see the module's drawing.

    Attributes:
        num_envs: Number of rows.
        observation: Layout of one observation.
        action: Layout of one action.
        actions: One array per fixed action leaf.
        planes: The :data:`PLANES` sets of results.
        gauges: What the hosts count.
        objects: Latest observation's object leaves by slot; these live in the
            engine's process; empty if there are none.
    """

    def __init__(
        self,
        observation: Layout,
        action: Layout,
        num_envs: int,
        *,
        final: bool,
        shared: bool = False,
        descriptor: int | None = None,
    ) -> None:
        """Lay the table out; both sides of a shared one do so from the same arguments.

        Args:
            observation: Layout of one observation.
            action: Layout of one action.
            num_envs: Number of rows.
            final: Keep final observations apart (same-step autoreset).
            shared: Take memory that other processes can map.
            descriptor: Map the memory that the other side took.
        """
        self.num_envs = num_envs
        self.observation = observation
        self.action = action
        self.final = final
        self.objects: list[list[Any]] = []
        if observation.objects:
            self.objects = [[None] * len(observation.objects) for _ in range(num_envs)]
        fields = self._fields()
        self.arena = Arena(Arena.size_of(fields), shared=shared, descriptor=descriptor)
        arrays = self.arena.carve(fields)
        self.actions = [arrays[f"action{i}"] for i in action.fixed]
        self.planes = [
            Plane(
                [arrays[f"{p}.observation{i}"] for i in observation.fixed],
                [arrays[f"{p}.final{i}"] for i in observation.fixed] if final else [],
                arrays[f"{p}.rewards"],
                arrays[f"{p}.terminated"],
                arrays[f"{p}.truncated"],
                InfoArea(arrays[f"{p}.infos.words"], arrays[f"{p}.infos.memory"]),
                InfoArea(arrays[f"{p}.final_infos.words"], arrays[f"{p}.final_infos.memory"]),
            )
            for p in range(PLANES)
        ]
        self.gauges = Gauges({name: arrays[name] for name in gauge_fields(num_envs)})

    def _fields(self) -> dict[str, Field]:
        n = self.num_envs

        def field(layout: Layout, i: int) -> Field:
            leaf = layout.leaves[i]
            assert leaf.dtype is not None
            return leaf.dtype, (n, *leaf.shape)

        fields = {f"action{i}": field(self.action, i) for i in self.action.fixed}
        for p in range(PLANES):
            fields[f"{p}.rewards"] = (np.dtype(np.float64), (n,))
            fields[f"{p}.terminated"] = (np.dtype(np.bool_), (n,))
            fields[f"{p}.truncated"] = (np.dtype(np.bool_), (n,))
            for i in self.observation.fixed:
                fields[f"{p}.observation{i}"] = field(self.observation, i)
                if self.final:
                    fields[f"{p}.final{i}"] = field(self.observation, i)
        fields.update(gauge_fields(n))
        for p in range(PLANES):  # last, since most of it is never touched
            fields.update(info_fields(f"{p}.infos", n))
            fields.update(info_fields(f"{p}.final_infos", n if self.final else 1))
        return fields

    def nest(self, arrays: list[Array], objects: Sequence[list[Any]]) -> Any:
        """Nest a batch of observations.

        Args:
            arrays: A batch of each fixed leaf.
            objects: The object leaves of each environment; they become tuples.
        """
        columns: list[Any] = list(zip(*objects, strict=True))
        if not objects:
            columns = [() for _ in self.observation.objects]
        return self.observation.join(arrays, columns)


def write_rows(block: Array, rows: Sequence[Any]) -> None:
    """Copy one value per row into ``block``, exactly: no broadcasting, no unsafe cast.

    Args:
        block: A contiguous array of shape ``(len(rows), *shape)``.
        rows: A value of the leaf's shape for each row.

    Raises:
        ValueError: A row has another shape.
        TypeError: A row cannot be cast to the block's dtype within its kind.
    """
    shape = block.shape[1:]
    first = rows[0]
    if type(first) is np.ndarray and first.shape == shape:
        if block.dtype == first.dtype and block.dtype.kind == "f":
            # NumPy sees to it that all rows have one shape; any real number may become a float.
            block[:] = rows
            return
        if {np.shape(row) for row in rows} == {shape} and shape:
            # One call for all rows: end to end along their first axis they fill the block.
            np.concatenate(rows, out=block.reshape(len(rows) * shape[0], *shape[1:]))
            return
    elif not shape:
        column = np.asarray(rows)
        if column.shape == block.shape and np.can_cast(column.dtype, block.dtype, "same_kind"):
            block[:] = column
            return
    for k, row in enumerate(rows):
        array = np.asarray(row)
        if array.shape != shape:
            raise ValueError(f"a value of shape {array.shape} where the space has {shape}")
        if not np.can_cast(array.dtype, block.dtype, "same_kind"):
            raise TypeError(f"a value of dtype {array.dtype} where the space has {block.dtype}")
        block[k] = array
