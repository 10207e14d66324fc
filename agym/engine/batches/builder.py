"""Builds results from the rows of the slot table."""

from __future__ import annotations

from typing import Any

import numpy as np

from agym.engine.batches.debugging import Views
from agym.engine.batches.leasing import Planes
from agym.engine.batches.out_target import OutTarget
from agym.engine.batches.results import Batch, ResetResult, StepResult
from agym.engine.calls.ticket import Ticket
from agym.protocol.arguments import Ids
from agym.protocol.infos.schema import Schema
from agym.protocol.infos.table import FINAL_OBSERVATION, InfoReader, merge_infos
from agym.protocol.infos.vector import VectorInfos
from agym.protocol.messages.completions import Payload
from agym.protocol.table import PLANES, SENT_PLANE, Plane, SlotTable
from agym.protocol.typing import Array, Info

# Terminated, truncated.
Flags = tuple[bool, bool]


class BatchBuilder:
    """Builds results, and tracks where the latest observation of each environment is.

    Attributes:
        planes: Chooses the planes for whole batches.
    """

    def __init__(
        self, table: SlotTable, *, copy: bool, vector_infos: bool = False, debug: bool = False
    ) -> None:
        """Build results from a table.

        Args:
            table: The slot table.
            copy: Give batches away; else whole batches are views of their plane.
            vector_infos: Give infos of steps in vector form, where that costs nothing.
            debug: Poison views that have expired.
        """
        self._table = table
        self._copy = copy
        self._vector_infos = vector_infos
        self._views = Views() if debug and not copy else None
        self.planes = Planes(table)
        self._latest = 0
        self._turn = 0
        self._all = range(table.num_envs)
        self._step_columns = {p: _columns(plane) for p, plane in table.planes.items()}
        # Whether a batch of observations is a single array.
        self._plain = table.observation.single and not table.observation.objects
        # The plane of each environment whose latest row is not in the plane of the latest batch.
        self._strays: dict[int, int] = {}
        # Copies of their rows, where an operation under way may overwrite these.
        self._kept: dict[int, tuple[list[Array], Flags]] = {}
        self._reader = InfoReader()

    def learn(self, schemas: dict[int, Schema]) -> None:
        """Add the schemas by which infos are written from now on."""
        self._reader.schemas.update(schemas)

    def reset(self, ticket: Ticket) -> ResetResult:
        """Return the latest observations, including those of environments that were not reset."""
        self.note(ticket)
        infos = self._reset_infos(ticket)
        out = ticket.out
        if out is not None and out.plane == ticket.plane:
            return ResetResult(out.observations, infos)
        whole = len(ticket.ids) == self._table.num_envs
        latest = self._latest_observations(ticket.about, whole=whole)
        if out is not None:
            out.fill(self._table.observation.flatten(latest))
            for column in out.rest:
                column.fill(0)  # a reset has no rewards or flags
            latest = out.observations
        return ResetResult(latest, infos)

    def step(self, ticket: Ticket) -> StepResult:
        """Return the rows of the ticket's environments, in ascending order of their ids."""
        self.note(ticket)
        infos = self._step_infos(ticket.ids, ticket.plane, ticket.payload)
        columns = self._columns_of(ticket)
        self._add_final(ticket.ids, ticket.plane, ticket.payload, infos, columns)
        return self._result(ticket.ids, columns, infos)

    def whole(self, plane: int, infos: list[Info] | None = None) -> StepResult:
        """Return the rows of all environments, of which nothing travels as messages.

        Args:
            plane: The plane of the rows.
            infos: Infos that the caller may keep, with what ended an episode; ``None`` for those
                in the rows.
        """
        self._latest = plane
        if self._strays:
            self._strays.clear()
            self._kept.clear()
        columns = self._whole_columns(plane)
        if infos is None:
            infos = self._step_infos(self._all, plane, None)
            self._add_final(self._all, plane, None, infos, columns)
        return self._result(self._all, columns, infos)

    def _result(self, ids: Ids, columns: list[Array], infos: list[Info]) -> StepResult:
        if self._plain:
            observations, rewards, terminated, truncated = columns
        else:
            *arrays, rewards, terminated, truncated = columns
            objects = self._table.objects
            observations = self._table.nest(arrays, [objects[i] for i in ids] if objects else [])
        return StepResult(observations, rewards, terminated, truncated, infos)

    def _columns_of(self, ticket: Ticket) -> list[Array]:
        """Return the rows of a ticket as columns that the caller may keep."""
        ids, out = ticket.ids, ticket.out
        if out is not None and out.plane == ticket.plane:
            return [*out.leaves, *out.rest]
        whole = len(ids) == self._table.num_envs
        if whole and out is None:
            return self._whole_columns(ticket.plane)
        columns = self._step_columns[ticket.plane]
        if not whole:
            index = list(ids)
            columns = [column[index] for column in columns]
        if out is not None:
            if self._views is not None and whole:
                self._views.of_batch(())  # a batch in ``out`` counts as a view
            return out.fill(columns)
        return columns

    def _whole_columns(self, plane: int) -> list[Array]:
        columns = self._step_columns[plane]
        if self._views is not None:
            return self._views.of_batch(columns)
        if not self._copy:
            # Hosts write flags only when these change, so the caller must not write into them.
            return [*columns[:-2], columns[-2].copy(), columns[-1].copy()]
        leased = None if plane < PLANES else self.planes.lease(plane)
        if leased is None:
            return [*map(np.ndarray.copy, columns)]
        return [*leased, *(column.copy() for column in columns[len(leased) :])]

    def batch(self, ids: list[int], payload: Payload) -> Batch:
        """Return the rows of environments whose step was sent, in any order.

        The rows are gathered once. A contiguous range is a view if ``copy`` is off.
        """
        index: Any = ids
        if ids and ids == [*range(ids[0], ids[0] + len(ids))]:
            index = slice(ids[0], ids[0] + len(ids))
        columns = [column[index] for column in self._step_columns[SENT_PLANE]]
        if self._views is not None:
            columns = self._views.of_rows(ids, columns)
        elif isinstance(index, slice):
            kept = 0 if self._copy else len(columns) - 2
            columns[kept:] = [column.copy() for column in columns[kept:]]
        *arrays, rewards, terminated, truncated = columns
        infos = self._infos(tuple(ids), SENT_PLANE, payload)
        self._add_final(tuple(ids), SENT_PLANE, payload, infos, columns)
        observations = self._table.nest(
            arrays, [payload.objects[i] for i in ids if payload.objects]
        )
        env_ids = np.array(ids, np.int64)
        return Batch(env_ids, observations, rewards, terminated, truncated, infos)

    def note(self, ticket: Ticket) -> None:
        """Track a ticket's rows, and keep its object leaves."""
        if len(ticket.ids) == self._table.num_envs:
            self._latest = ticket.plane
            if self._strays:
                self._strays.clear()
                self._kept.clear()
            if ticket.payload is not None:
                self._keep_objects(ticket.payload, ticket.ids)
        else:
            self.note_some(ticket, ticket.ids, ticket.payload)

    def note_some(self, ticket: Ticket, ids: Ids, payload: Payload | None) -> None:
        """Track the rows of some of a ticket's environments."""
        self._strays.update(dict.fromkeys(ids, ticket.plane))
        if self._kept:
            for slot in ids:
                self._kept.pop(slot, None)
        if payload is not None:
            self._keep_objects(payload, ids)

    def _keep_objects(self, payload: Payload, ids: Ids) -> None:
        if payload.objects:
            for slot in payload.objects.keys() & set(ids):
                self._table.objects[slot] = payload.objects[slot]

    def choose_plane(self, out: OutTarget | None) -> int:
        """Choose the plane for a whole batch, which may be the caller's own memory."""
        if out is not None and out.plane is not None:
            return out.plane
        if out is None and self._copy and self._table.leasable:
            plane = self.planes.take(self.in_use)
            if plane is not None:
                return plane
        elif self._views is not None:
            self._views.next_batch()
        self._turn = 1 - self._turn  # the two planes whose batches are copied, or are views
        return self._turn

    def choose_sent_plane(self, ids: Ids) -> int:
        if self._views is not None:
            self._views.next_rows(ids)
        return SENT_PLANE

    @property
    def in_use(self) -> set[int]:
        """The planes that hold an environment's latest row."""
        return {self._latest, *self._strays.values()}

    def keep(self, ids: Ids, at: int) -> None:
        """Copy the latest rows of environments before they are overwritten in plane ``at``."""
        for slot in ids:
            if self._strays.get(slot) == at and slot not in self._kept:
                rows = self._table.planes[at].observations
                copies = [array[slot : slot + 1].copy() for array in rows]
                self._kept[slot] = copies, self._flags(slot, at)

    def last(self, slot: int) -> tuple[Any, Flags]:
        """Return an environment's latest observation, as it was given, and its flags."""
        table = self._table
        if slot not in self._kept:
            return self.row(slot, self.plane_of(slot))
        rows, flags = self._kept[slot]
        return self._table.one(rows, table.objects[slot] if table.objects else []), flags

    def plane_of(self, slot: int) -> int:
        """Return the plane of an environment's latest row."""
        return self._strays.get(slot, self._latest)

    def row(self, slot: int, at: int, objects: list[Any] | None = None) -> tuple[Any, Flags]:
        """Return an observation and flags from a plane, with the latest or given object leaves."""
        table = self._table
        rows = [array[slot : slot + 1] for array in table.planes[at].observations]
        objects = objects or (table.objects[slot] if table.objects else [])
        return self._table.one(rows, objects), self._flags(slot, at)

    def _flags(self, slot: int, at: int) -> Flags:
        plane = self._table.planes[at]
        return bool(plane.terminated[slot]), bool(plane.truncated[slot])

    def _latest_observations(self, ids: Ids, *, whole: bool) -> Any:
        table = self._table
        arrays = table.planes[self._latest].observations
        if len(ids) < table.num_envs:
            arrays = [array[list(ids)] for array in arrays]
        elif self._views is not None and whole:
            arrays = self._views.of_batch(arrays)
        elif self._copy or self._strays or self._views is not None:
            arrays = [array.copy() for array in arrays]
        if self._strays:
            for k, slot in enumerate(ids):
                if slot in self._strays:
                    plane = table.planes[self._strays[slot]]
                    for target, source in zip(arrays, plane.observations, strict=True):
                        target[k] = source[slot]
        return table.nest(arrays, [table.objects[i] for i in ids] if table.objects else [])

    def _add_final(
        self,
        ids: Ids,
        at: int,
        payload: Payload | None,
        infos: Any,
        columns: list[Array],
    ) -> None:
        """Add ``final_obs`` and ``final_info`` to infos under same-step autoreset."""
        table = self._table
        if not table.final or isinstance(infos, VectorInfos):
            return
        payload = payload or Payload()
        plane = table.planes[at]
        *_, terminated, truncated = columns
        for k in np.flatnonzero(terminated | truncated).tolist():
            slot = ids[k]
            if self._vector_infos and "final_obs" in infos[k]:
                continue  # it came with a batch of infos in vector form
            info = payload.final_infos.get(slot) or self._reader.one(plane.final_infos, slot)
            if FINAL_OBSERVATION in info:
                observation = info.pop(FINAL_OBSERVATION)
            else:
                rows = [block[slot : slot + 1] for block in plane.final]
                observation = self._table.one(rows, payload.final_objects.get(slot, []))
            infos[k]["final_obs"], infos[k]["final_info"] = observation, info

    def _step_infos(self, ids: Ids, at: int, payload: Payload | None) -> Any:
        """Return infos in vector form, if the caller takes it and they have it; else a list."""
        count = self._table.num_envs
        plain = not self._reader.schemas and (payload is None or not payload.infos)
        if self._vector_infos and plain and len(ids) == count:
            parts = [] if payload is None else [*payload.vector_infos.values()]
            if len(parts) == 1 and len(parts[0]) == count:
                return parts[0]
            if not parts and not self._table.final:
                return VectorInfos(count, {})
        return self._infos(ids, at, payload)

    def _infos(self, ids: Ids, at: int, payload: Payload | None) -> list[dict[str, Any]]:
        """Return one dict per environment, from its row, its message, or both."""
        infos: list[dict[str, Any]]
        if self._reader.schemas:
            infos = self._reader.read(self._table.planes[at].infos, ids)
        else:
            infos = [{} for _ in ids]
        if payload is not None:
            for first, rows in payload.vector_infos.items():
                merge_infos(infos, ids, dict(enumerate(rows, first)))
            if payload.infos:
                merge_infos(infos, ids, payload.infos)
        return infos

    def _reset_infos(self, ticket: Ticket) -> list[dict[str, Any]]:
        """Return the infos of a reset; environments that were not reset have empty ones."""
        infos = self._infos(ticket.ids, ticket.plane, ticket.payload)
        if ticket.about == ticket.ids:
            return infos
        by_id = dict(zip(ticket.ids, infos, strict=True))
        return [by_id.get(slot, {}) for slot in ticket.about]


def _columns(plane: Plane) -> list[Array]:
    return [*plane.observations, plane.rewards, plane.terminated, plane.truncated]
