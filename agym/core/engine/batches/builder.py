"""Writes actions to rows of the slot table, and builds results from them.

The builder records which plane holds the latest row of each environment: a single number while all
rows are in the same plane, otherwise a list. A batch whose rows are in one plane is leased
(``engine/batches/leases.py``), or copied whole. Other batches are gathered row by row.

A batch that is copied is written to a *pair* of planes, alternately. Without leases, all batches
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agym.core.engine.batches.actions import Cut, write_actions
from agym.core.engine.batches.leases import Planes
from agym.core.engine.batches.out_target import OutTarget
from agym.core.engine.batches.results import Batch, ResetResult, StepResult
from agym.core.engine.calls.ticket import Ticket
from agym.core.protocol.arguments import Ids
from agym.core.protocol.infos.info_table import InfoReader, merge_infos
from agym.core.protocol.infos.schema import Schema
from agym.core.protocol.infos.vector_infos import VectorInfos
from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.table import BESIDE, FIRST_BUFFER, PARTIAL, PLANES, SlotTable
from agym.core.protocol.typing import Array, Info


class BatchBuilder:
    """Writes actions, builds results, and records where the latest row of each environment is.

    Attributes:
        cut: Splits batches of actions that are passed on unchanged, as Gymnasium's vector
            environments do.
        leases: The planes that the caller leases.
    """

    cut: Cut | None = None

    def __init__(self, table: SlotTable, *, copy: bool, vector_infos: bool = False) -> None:
        """Build results from a table.

        Args:
            table: The slot table.
            copy: Return batches that the caller owns; otherwise whole batches are views of a plane.
            vector_infos: Return infos of steps in vector form, where that costs nothing.
        """
        self._table = table
        self._copy = copy
        self._vector_infos = vector_infos
        self.leases = Planes(table)
        self._all = range(table.num_envs)
        # The plane with the latest rows of all environments; ``None`` if the rows are in several
        # planes. ``_at`` then has the plane of each.
        self._common: int | None = 0
        self._at = [0] * table.num_envs
        # By environment, the plane of a sent step's row until the row is received.
        self._unread: dict[int, int] = {}
        self._turn = 0
        self._columns = {p: plane.columns for p, plane in table.planes.items()}
        self._stacked = table.stacked.columns
        # Whether a batch of observations is a single array.
        self._plain = table.observation.single and not table.observation.objects
        self._reader = InfoReader()

    def learn(self, schemas: dict[int, Schema]) -> None:
        """Add the schemas of infos that hosts write from now on."""
        self._reader.schemas.update(schemas)

    # ---------------------------------------------------------------- actions

    def write_all(self, actions: Any, *, here: bool = False) -> Any:
        """Write the actions of all environments; see :func:`write_actions`.

        With ``here``, an array that needs no conversion is not written but returned: environments
        in this thread may keep it.
        """
        table = self._table
        layout = table.action
        # Actions cut from zero-dimensional leaves have other types than the table's.
        exact = layout.single and (self.cut is None or not layout.leaves[0].zero_dim)
        if exact and type(actions) is np.ndarray:
            for block in table.actions:  # the common case: nothing to convert
                if actions.dtype == block.dtype and actions.shape == block.shape:
                    if here:  # iterating copies numbers, but rows would be views of the array
                        return actions if actions.ndim == 1 else actions.copy()
                    block[...] = actions
                    return None
        return write_actions(layout, table.actions, actions, self._all, self.cut)

    def write_some(self, actions: Any, given: Sequence[int], ids: Ids) -> list[Any] | None:
        """Write the actions of ``given``, the ids in any order; return parts in ascending order."""
        table, given = self._table, tuple(int(i) for i in given)
        parts = write_actions(table.action, table.actions, actions, given, self.cut)
        if parts is None or given == ids:
            return parts
        by_id = dict(zip(given, parts, strict=True))
        return [by_id[i] for i in ids]

    # ---------------------------------------------------------------- where rows are

    def choose_plane(self, ids: Ids, out: OutTarget | None = None) -> int:
        """Choose the plane for a batch, which may be the caller's own memory.

        ``BESIDE`` for part of the environments: the dispatcher then chooses a plane for each.
        """
        if len(ids) < self._table.num_envs:
            return BESIDE
        if out is not None:
            if out.plane is not None:
                return out.plane
        elif self._copy and self._table.leasable:
            plane = self.leases.take(self.in_use)
            if plane is not None:
                return plane
        self._turn = 1 - self._turn
        return self._turn

    def free_planes(self, ids: Ids) -> list[int]:
        """Return a plane for each row of an operation on some environments; one for all, if any."""
        unread, latest = self._unread, self._latest_planes(ids)
        used = {*latest, *(unread.get(i) for i in ids)} if unread else {*latest}
        for plane in PARTIAL:
            if plane not in used:
                return [plane] * len(ids)
        pairs = zip(latest, map(unread.get, ids), strict=True)
        return [next(plane for plane in PARTIAL if plane not in pair) for pair in pairs]

    def _latest_planes(self, ids: Ids) -> list[int]:
        if self._common is not None:
            return [self._common] * len(ids)
        return [*map(self._at.__getitem__, ids)]

    def plane_of(self, slot: int) -> int:
        """Return the plane of an environment's latest row."""
        return self._at[slot] if self._common is None else self._common

    @property
    def in_use(self) -> set[int]:
        """The planes that hold an environment's latest row."""
        return {*self._at} if self._common is None else {self._common}

    def note(self, ticket: Ticket, ids: Ids, payload: Payload | None) -> None:
        """Record the planes of a ticket's rows, and keep their object leaves."""
        if ticket.plane >= 0 and len(ids) == self._table.num_envs:
            self._common = ticket.plane
        else:
            if self._common is not None:
                self._at, self._common = [self._common] * self._table.num_envs, None
            for i, plane in zip(ids, ticket.planes_of(ids), strict=True):
                self._at[i] = plane
        if payload is not None and payload.objects:
            for slot in payload.objects.keys() & set(ids):
                self._table.objects[slot] = payload.objects[slot]

    def keep_unread(self, ids: Ids) -> None:
        """Keep the latest rows of environments with a sent step until :meth:`batch` reads them."""
        self._unread.update(zip(ids, self._latest_planes(ids), strict=True))

    def _gather(self, columns: int, ids: Sequence[int], planes: Sequence[int]) -> list[Array]:
        """Copy the rows of environments, each from its plane, in the first ``columns`` columns."""
        if max(planes, default=0) < FIRST_BUFFER:
            index = [*planes], [*ids]
            return [column[index] for column in self._stacked[:columns]]
        # Some rows are in a step buffer, which has separate memory.
        gathered = [column[0, [*ids]] for column in self._stacked[:columns]]
        for k, (i, plane) in enumerate(zip(ids, planes, strict=True)):
            rows = self._table.planes[plane].columns
            for target, source in zip(gathered, rows, strict=False):
                target[k] = source[i]
        return gathered

    # ---------------------------------------------------------------- steps

    def step(self, ticket: Ticket) -> StepResult:
        """Return the rows of the ticket's environments, in ascending order of their ids."""
        ids, plane, payload, out = ticket.ids, ticket.plane, ticket.payload, ticket.out
        if payload is None and out is None and plane >= 0:
            return self.whole(plane)
        self.note(ticket, ids, payload)
        planes = ticket.planes_of(ticket.ids)
        if out is not None and out.plane == plane >= 0:
            columns = [*out.leaves, *out.rest]
        elif plane < 0:
            columns = self._gather(len(self._stacked), ids, planes)
            if out is not None:
                columns = out.fill(columns)
        else:
            columns = self._whole_columns(plane) if out is None else out.fill(self._columns[plane])
        infos = self._step_infos(ids, planes, payload, columns)
        self._add_final(ids, planes, payload, infos, columns)
        return self._result(ids, columns, infos)

    def whole(self, plane: int, infos: list[Info] | None = None) -> StepResult:
        """Return the rows of all environments, if no part of the result travels as a message.

        Args:
            plane: The plane of the rows.
            infos: Infos that the caller may keep, with the final observations and infos; ``None``
                to read the infos in the rows.
        """
        self._common = plane
        columns, ids = self._whole_columns(plane), self._all
        if infos is None:
            if self._vector_infos or self._reader.schemas:
                infos = self._step_infos(ids, [plane] * len(ids), None, columns)
            else:
                infos = [{} for _ in ids]
            if self._table.final:
                self._add_final(ids, [plane] * len(ids), None, infos, columns)
        if self._plain:  # a single leaf, rewards and flags
            observations, rewards, terminated, truncated = columns
            return StepResult(observations, rewards, terminated, truncated, infos)
        return self._result(ids, columns, infos)

    def _result(self, ids: Ids, columns: list[Array], infos: list[Info]) -> StepResult:
        *arrays, rewards, terminated, truncated = columns
        objects = self._table.objects
        observations = self._table.nest(arrays, [objects[i] for i in ids] if objects else [])
        return StepResult(observations, rewards, terminated, truncated, infos)

    def _whole_columns(self, plane: int) -> list[Array]:
        """Return a plane as columns that the caller may keep."""
        columns = self._columns[plane]
        if not self._copy:
            # Hosts write a flag only when it changes. If the caller wrote into a view, hosts would
            # not repair it, so flags are copied.
            return [*columns[:-2], columns[-2].copy(), columns[-1].copy()]
        leased = None if plane < PLANES else self.leases.lease(plane)
        if leased is None:
            return [*map(np.ndarray.copy, columns)]
        return [*leased, *(column.copy() for column in columns[len(leased) :])]

    def batch(self, ids: list[int], payload: Payload) -> Batch:
        """Return the rows of environments whose step was sent, in any order."""
        unread = self._unread
        planes = [unread.pop(i) for i in ids]
        if ids and ids == [*range(ids[0], ids[0] + len(ids))] and len({*planes}) == 1:
            rows = slice(ids[0], ids[0] + len(ids))
            columns = [column[rows] for column in self._columns[planes[0]]]
            kept = 0 if self._copy else len(columns) - 2  # otherwise only flags are copied
            columns[kept:] = [column.copy() for column in columns[kept:]]
        else:
            columns = self._gather(len(self._stacked), ids, planes)
        infos = self._infos(ids, planes, payload)
        self._add_final(ids, planes, payload, infos, columns)
        *arrays, rewards, terminated, truncated = columns
        objects = [payload.objects[i] for i in ids if payload.objects]
        observations = self._table.nest(arrays, objects)
        env_ids = np.array(ids, np.int64)
        return Batch(env_ids, observations, rewards, terminated, truncated, infos)

    # ---------------------------------------------------------------- resets

    def reset(self, ticket: Ticket) -> ResetResult:
        """Return the latest observations, including those of environments that were not reset."""
        self.note(ticket, ticket.ids, ticket.payload)
        infos = self._infos(ticket.ids, ticket.planes_of(ticket.ids), ticket.payload)
        if ticket.about != ticket.ids:  # environments that were not reset get empty infos
            by_id = dict(zip(ticket.ids, infos, strict=True))
            infos = [by_id.get(slot, {}) for slot in ticket.about]
        out = ticket.out
        if out is not None and out.plane == ticket.plane >= 0:
            return ResetResult(out.observations, infos)
        latest = self._latest_observations(ticket.about)
        if out is not None:
            out.fill(self._table.observation.flatten(latest))
            for column in out.rest:
                column.fill(0)  # a reset has no rewards or flags
            latest = out.observations
        return ResetResult(latest, infos)

    def _latest_observations(self, ids: Ids) -> Any:
        table = self._table
        if self._common is None or len(ids) < table.num_envs:
            leaves = len(table.stacked.observations)  # the first columns
            arrays = self._gather(leaves, ids, self._latest_planes(ids))
        else:
            arrays = table.planes[self._common].observations
            if self._copy:
                arrays = [array.copy() for array in arrays]
        return table.nest(arrays, [table.objects[i] for i in ids] if table.objects else [])

    # ---------------------------------------------------------------- infos

    def _step_infos(
        self, ids: Ids, planes: Sequence[int], payload: Payload | None, columns: list[Array]
    ) -> Any:
        """Return infos in vector form if the caller and the infos allow it; else a list."""
        count = self._table.num_envs
        if self._vector_infos and len(ids) == count and (payload is None or not payload.infos):
            parts = [] if payload is None else [*payload.vector_infos.values()]
            if len(parts) == 1 and len(parts[0]) == count and not self._reader.schemas:
                return parts[0]
            if not parts and not self._has_final(columns) and planes.count(planes[0]) == count:
                area = self._table.planes[planes[0]].infos
                if not self._reader.schemas:
                    return VectorInfos(count, {})
                if (infos := self._reader.read_all(area, count)) is not None:
                    return infos
        return self._infos(ids, planes, payload)

    def _has_final(self, columns: list[Array]) -> bool:
        """Whether an episode has ended, so that infos need final observations."""
        return self._table.final and bool(columns[-2].any() or columns[-1].any())

    def _infos(
        self, ids: Sequence[int], planes: Sequence[int], payload: Payload | None
    ) -> list[dict[str, Any]]:
        """Return one dict per environment, from its row, its message, or both."""
        infos: list[dict[str, Any]] = [{} for _ in ids]
        for plane in {*planes} if self._reader.schemas else ():
            area = self._table.planes[plane].infos
            if planes.count(plane) == len(planes):
                infos = self._reader.read(area, ids)
                break
            places = [k for k, other in enumerate(planes) if other == plane]
            some = self._reader.read(area, [ids[k] for k in places])
            for k, info in zip(places, some, strict=True):
                infos[k] = info
        if payload is not None:
            for first, rows in payload.vector_infos.items():
                merge_infos(infos, ids, dict(enumerate(rows, first)))
            if payload.infos:
                merge_infos(infos, ids, payload.infos)
        return infos

    def _add_final(
        self,
        ids: Sequence[int],
        planes: Sequence[int],
        payload: Payload | None,
        infos: Any,
        columns: list[Array],
    ) -> None:
        """Add ``final_obs`` and ``final_info`` to infos under same-step autoreset."""
        table = self._table
        if not table.final or isinstance(infos, VectorInfos):
            return
        *_, terminated, truncated = columns
        places = {
            k: (ids[k], planes[k])
            for k in np.flatnonzero(terminated | truncated).tolist()
            # A batch of infos in vector form already has it.
            if not (self._vector_infos and "final_obs" in infos[k])
        }
        table.put_finals(infos, places, {} if payload is None else payload.final_objects)
