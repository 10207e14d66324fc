"""The slot table: rows of actions, observations, rewards and flags of n environments.

It is a struct of arrays: one array per leaf, one row per environment. The results of a step exist
once per *plane*. Batches of all environments alternate between the first two planes, so the arrays
of a batch stay unchanged until the batch after the next one. Operations on some environments write
to one of the next three planes: an environment may need its latest row and an unreceived row, and
the third is free::

    actions          [leaf][n, ...]                     engine writes, host reads
    planes[0:2]   observations [leaf][n, ...]   rewards [n]   terminated [n]   truncated [n]
    planes[2:5]   (final       [leaf][n, ...]  only with same-step autoreset)   host writes
    planes[5:9]     large whole batches, each leased by the caller
    planes[9:]      step buffers, one plane per step

``engine/batches/builder.py`` records the plane of each row, and decides which planes are leased. A
step buffer has separate memory, which is added while environments run
(``engine/batches/out_target.py``). Each of the first five planes has room for infos that are
numbers (``protocol/infos/info_table.py``). The other planes share the room of the first, because
infos are read as soon as a batch is returned.

Rows need no locks. The engine refuses a step while another step of the environment is in flight, so
hosts never read actions that are being written. It reads a result only after the completion, which
the mailbox, or the outbox of a thread, orders after the host's writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agym.core.protocol.infos.info_table import (
    FINAL_INFO,
    FINAL_OBSERVATION,
    InfoArea,
    info_fields,
)
from agym.core.protocol.memory import Arena, Field
from agym.core.protocol.metrics.gauges import Gauges, gauge_fields
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.typing import Array

# Planes: for batches of all environments, for operations on some, for batches that the caller may
# lease (the previous batch, the latest, the one being written, and a free one), for step buffers.
PARTIAL = range(2, 5)
PLANES = 5
LEASABLE = 4
FIRST_BUFFER = PLANES + LEASABLE

# In place of a plane: each environment writes to a plane without a row of it that is still needed.
BESIDE = -1

# Copying a smaller batch is as fast as leasing it: measured with pictures of Pong, x1 to x32.
LEASE_BYTES = 256 * 1024


@dataclass(slots=True, eq=False)
class Plane:
    """One set of results: arrays, or lists of arrays, with a row per slot.

    Infos are in an area of the whole plane, which is indexed by slot, even in views of some rows.

    Attributes:
        unflagged: A host's mark that no flag is set in these rows.
        blank: A host's mark that these rows have no infos.
    """

    observations: list[Array]
    final: list[Array]
    rewards: Array
    terminated: Array
    truncated: Array
    infos: InfoArea
    unflagged: int = 0
    blank: int = 0

    @property
    def columns(self) -> list[Array]:
        """The results of a step: observations (one per leaf), rewards and the two flags."""
        return [*self.observations, self.rewards, self.terminated, self.truncated]

    def at(self, index: int | slice) -> Plane:
        """Return views of the rows of a slice, or one of the planes stacked in this one."""
        observations = [array[index] for array in self.observations]
        final = [array[index] for array in self.final]
        scalars = self.rewards[index], self.terminated[index], self.truncated[index]
        return Plane(observations, final, *scalars, self.infos)


class PlanesByNumber(dict[int, Plane]):
    """Planes by number. The first replaces planes that exist only in the caller's own table."""

    def __missing__(self, plane: int) -> Plane:
        return self[0]


@dataclass(frozen=True)
class Extension:
    """Planes that were added to a table.

    ``stacked`` combines them in one plane, whose arrays have a row per plane: ``[plane][n, ...]``.
    """

    planes: range
    stacked: Plane
    arena: Arena


class SlotTable:
    """The memory that engine and hosts share.

    Attributes:
        actions: One array per fixed action leaf.
        stacked: The permanent planes in one, whose arrays are ``[plane][n, ...]``.
        planes: The permanent planes and those of step buffers, by number.
        leasable: The numbers of the planes that the caller may lease.
        extensions: Planes that were added, by the number of the first.
        shared: Other processes also map the memory.
        gauges: The hosts' counters.
        objects: Object leaves of the latest observations by slot, in the engine's process; empty if
            there are none.
    """

    def __init__(
        self,
        observation: Layout,
        action: Layout,
        num_envs: int,
        *,
        final: bool,
        leases: bool = False,
        shared: bool = False,
        descriptor: int | None = None,
    ) -> None:
        """Lay the table out; both sides of a shared table do this from the same arguments.

        Args:
            observation: Layout of one observation.
            action: Layout of one action.
            num_envs: Number of rows.
            final: Store final observations separately (same-step autoreset).
            leases: Add leasable planes, if batches are large.
            shared: Allocate memory that other processes can map.
            descriptor: Map the memory that the other side allocated.
        """
        self.num_envs = num_envs
        self.observation = observation
        self.action = action
        self.final = final
        self.shared = shared or descriptor is not None
        sizes = [num_envs * observation.leaves[i].nbytes for i in observation.fixed]
        large = max(sizes, default=0) >= LEASE_BYTES
        self.leasable = range(PLANES, PLANES + (LEASABLE if leases and large else 0))
        self.extensions: dict[int, Extension] = {}
        self.objects: list[list[Any]] = []
        if observation.objects:
            self.objects = [[None] * len(observation.objects) for _ in range(num_envs)]
        n = num_envs
        fields = {f"action{i}": _field(action, i, n) for i in action.fixed}
        fields.update(self._plane_fields(self.leasable.stop, n))
        fields.update(gauge_fields(n))
        fields.update(info_fields(PLANES, n))  # last, since most of it is never touched
        self.arena = Arena(fields, shared=shared, descriptor=descriptor)
        arrays = self.arena.arrays
        self.actions = [arrays[f"action{i}"] for i in action.fixed]
        self.stacked = self._plane(arrays, InfoArea(arrays, 0))
        self.planes = PlanesByNumber((p, self.stacked.at(p)) for p in range(self.leasable.stop))
        for p in range(1, PLANES):
            self.planes[p].infos = InfoArea(arrays, p)
        self.gauges = Gauges({name: arrays[name] for name in gauge_fields(n)})

    def _plane_fields(self, *rows: int) -> dict[str, Field]:
        fields: dict[str, Field] = {"rewards": (np.dtype(np.float64), rows)}
        fields["terminated"] = fields["truncated"] = np.dtype(np.bool_), rows
        for i in self.observation.fixed:
            fields[f"observation{i}"] = _field(self.observation, i, *rows)
            if self.final:
                fields[f"final{i}"] = fields[f"observation{i}"]
        return fields

    def _plane(self, arrays: Mapping[str, Array], infos: InfoArea) -> Plane:
        leaves = self.observation.fixed
        final = [arrays[f"final{i}"] for i in leaves] if self.final else []
        scalars = arrays["rewards"], arrays["terminated"], arrays["truncated"]
        return Plane([arrays[f"observation{i}"] for i in leaves], final, *scalars, infos)

    def stack(
        self, count: int, *, shared: bool = False, descriptor: int | None = None
    ) -> tuple[Plane, Arena]:
        """Create ``count`` planes outside the table, stacked in one; also return their memory.

        ``shared`` and ``descriptor`` are the arguments of the constructor.
        """
        fields = self._plane_fields(count, self.num_envs)
        arena = Arena(fields, shared=shared, descriptor=descriptor)
        return self._plane(arena.arrays, self.planes[0].infos), arena

    def extend(self, planes: range, descriptor: int | None = None) -> Extension:
        """Add planes with new numbers, in new memory or in the memory of a descriptor."""
        stacked, arena = self.stack(len(planes), shared=self.shared, descriptor=descriptor)
        self.planes.update((p, stacked.at(k)) for k, p in enumerate(planes))
        self.extensions[planes.start] = extension = Extension(planes, stacked, arena)
        return extension

    def shrink(self, first: int) -> None:
        """Remove added planes, given the number of the first."""
        extension = self.extensions.pop(first)
        for plane in extension.planes:
            del self.planes[plane]
        extension.arena.close()

    def row(self, plane: int, slot: int, objects: list[Any]) -> tuple[Any, tuple[bool, bool]]:
        """Return an environment's original observation in a plane, and its flags."""
        whole = self.planes[plane]
        rows = [block[slot : slot + 1] for block in whole.observations]
        flags = bool(whole.terminated[slot]), bool(whole.truncated[slot])
        return self.one(rows, objects), flags

    def one(self, rows: Sequence[Array], objects: list[Any]) -> Any:
        """Return the original observation of one environment from rows of length 1."""
        return self.observation.cut([row.copy() for row in rows], [objects], 1)[0]

    def put_finals(
        self,
        infos: Any,
        places: Mapping[int, tuple[int, int]],
        objects: Mapping[int, list[Any]],
    ) -> None:
        """Add ``final_obs`` and ``final_info`` to infos under same-step autoreset.

        Args:
            infos: A sequence of infos.
            places: By position in ``infos``, the environments whose episodes have ended, with the
                planes of their rows.
            objects: The object leaves of last observations, by environment.
        """
        in_rows = []
        for k in places:
            final = infos[k].pop(FINAL_INFO, {})
            if FINAL_OBSERVATION not in final:
                in_rows.append(k)
            infos[k]["final_obs"] = final.pop(FINAL_OBSERVATION, None)
            infos[k]["final_info"] = final
        for plane in {places[k][1] for k in in_rows}:
            here = [k for k in in_rows if places[k][1] == plane]
            slots = [places[k][0] for k in here]
            columns = [block[slots] for block in self.planes[plane].final]
            rest = [objects.get(slot, []) for slot in slots] if self.observation.objects else []
            for k, value in zip(here, self.observation.cut(columns, rest, len(slots)), strict=True):
                infos[k]["final_obs"] = value

    def nest(self, arrays: list[Array], objects: Sequence[list[Any]]) -> Any:
        """Nest a batch of each fixed leaf, and the object leaves of each environment as tuples."""
        columns: list[Any] = list(zip(*objects, strict=True))
        if not objects:
            columns = [() for _ in self.observation.objects]
        return self.observation.join(arrays, columns)


def _field(layout: Layout, leaf: int, *rows: int) -> Field:
    dtype, shape = layout.leaves[leaf].dtype, layout.leaves[leaf].shape
    assert dtype is not None
    return dtype, (*rows, *shape)
