"""Collects an actor's completions until they are sent to the driver as one reply.

A reply has the rows that the operations wrote. A :class:`RowTransfer` contains the rows of some
environments as whole columns, so a batch is a few arrays, however many environments it has. Rows of
adjacent environments are slices. Final observations are included for environments whose episode
ended, and numeric infos as the bytes that were written.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pickle import PickleBuffer
from typing import NamedTuple

import numpy as np

from agym.core.backends.process.serialization import Sealed, seal
from agym.core.backends.process.worker_loop import pack_payload
from agym.core.protocol.infos.info_table import InfoRows
from agym.core.protocol.messages.completions import (
    Completion,
    Description,
    Payload,
    join_neighbours,
)
from agym.core.protocol.messages.operations import CLOSE, Operation, Step
from agym.core.protocol.metrics.gauges import ENV_GAUGES, HOST_GAUGES, clock
from agym.core.protocol.table import SlotTable
from agym.core.protocol.typing import Array


class RowTransfer(NamedTuple):
    """Rows of one plane.

    Attributes:
        plane: The plane to write.
        ids: Adjacent environments as a slice, others as an array of ids.
        columns: Observations (one per leaf), rewards and the two flags; a row per environment.
        infos: Infos that were written to the table, if any.
        ended: The environments whose final observations are included.
        final: Their final observations, one column per leaf.
    """

    plane: int
    ids: slice | Array
    columns: list[Array]
    infos: InfoRows | None
    ended: Array | None
    final: list[Array]


def take_rows(table: SlotTable, plane: int, ids: Sequence[int], info_bytes: int) -> RowTransfer:
    """Pack rows of a plane.

    Adjacent rows are views, which must not change before they are sent. ``info_bytes`` is the size
    of the largest info that hosts write.
    """
    rows = table.planes[plane]
    whole = ids[-1] - ids[0] + 1 == len(ids)
    index = slice(ids[0], ids[-1] + 1) if whole else np.array(ids)
    columns = [column[index] for column in rows.columns]
    infos = rows.infos.take(index, info_bytes) if info_bytes else None
    done = columns[-2] | columns[-1]
    if not table.final or not done.any():
        return RowTransfer(plane, index, columns, infos, None, [])
    ended = np.array(ids)[done]
    return RowTransfer(plane, index, columns, infos, ended, [block[ended] for block in rows.final])


def put_rows(table: SlotTable, transfer: RowTransfer) -> None:
    """Unpack rows into their plane."""
    rows = table.planes[transfer.plane]
    for block, column in zip(rows.columns, transfer.columns, strict=True):
        block[transfer.ids] = column
    rows.infos.put(transfer.ids, transfer.infos)
    if transfer.ended is not None:
        for block, column in zip(rows.final, transfer.final, strict=True):
            block[transfer.ended] = column


# How often, in seconds, the gauges of single environments are sent.
GAUGE_SECONDS = 1.0


class Reply(NamedTuple):
    """A reply of an actor.

    Attributes:
        number: Replies of an actor are numbered from 0 on.
        completions: Number, start and stop of each, and its payload, if any, packed separately.
        transfers: The rows that these operations wrote.
        pid: The actor's process.
        host: The actor's machine.
        clock: The actor's clock, to which ``began`` and ``ended`` among the gauges refer.
        gauges: The gauges of its (first) host.
        env_gauges: The gauges of its environments, every ``GAUGE_SECONDS``.
    """

    number: int
    completions: list[tuple[int, int, int, list[PickleBuffer] | None]]
    transfers: list[RowTransfer]
    pid: int
    host: str
    clock: int
    gauges: list[int]
    env_gauges: dict[str, Array] | None


@dataclass
class _Pending:
    """An operation that has started.

    Attributes:
        each: Send each completion as soon as possible. Otherwise completions wait until the last
            one: a message takes longer than a typical step.
        parts: The environments of its parts, each with the plane that they write, if any.
        remaining: How many environments have not completed it.
        done: The completions that wait.
    """

    each: bool
    parts: list[tuple[range, int | None]] = field(default_factory=list)
    remaining: int = 0
    done: list[Completion] = field(default_factory=list)


class ReplyBuffer:
    """Collects completions; any thread adds, one thread waits.

    Attributes:
        hosts: The environments of each of the actor's hosts.
        table: The actor's table, once attached.
        description: The description of the environments, once made.
        opened: Set when the environments have been made, or have failed.
        report_each: Send each environment's completion as soon as possible.
    """

    report_each = False

    hosts: Sequence[range] = ()
    table: SlotTable | None = None
    description: Description | None = None

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._rung = False
        self._error: BaseException | None = None
        self.opened = threading.Event()
        self._pending: dict[int, _Pending] = {}
        # The content of the next reply: completions, and by plane the rows that they wrote.
        self._completions: list[Completion] = []
        self._rows: dict[int, list[range]] = {}
        self._number = 0
        self._info_bytes = 0
        self._gauged = 0.0

    @property
    def ids(self) -> range:
        """The actor's environments."""
        return range(self.hosts[0].start, self.hosts[-1].stop)

    def expect(self, operation: Operation, actions: Sequence[Array]) -> None:
        """Prepare for an operation that is about to start, and store its actions."""
        number, start, stop, message = operation
        if isinstance(message, Step) and self.table is not None:
            for block, rows in zip(self.table.actions, actions, strict=True):
                block[start:stop] = rows
        sent = isinstance(message, Step) and message.sent
        # The driver ends the actor once it has closed any of its environments.
        each = sent or (self.report_each and number != CLOSE)
        with self._news:
            # Register before the operation starts: its first completion may come at once, from
            # another thread.
            pending = self._pending.setdefault(number, _Pending(each))
            pending.parts.append((range(start, stop), getattr(message, "plane", None)))
            pending.remaining += stop - start

    def add(self, completions: Sequence[Completion]) -> None:
        """Add completions."""
        with self._news:
            for completion in completions:
                number, start, stop, payload = completion
                if payload is not None:
                    self._learn(start, payload)
                pending = self._pending.get(number)
                if pending is None:  # a completion of ``make``, or a worker's death
                    self._completions.append(completion)
                    self.opened.set()
                    continue
                pending.remaining -= stop - start
                if pending.each:
                    # The latest part: an operation may have been sent again with another plane.
                    plane = next(plane for ids, plane in reversed(pending.parts) if start in ids)
                    self._release([completion], [(range(start, stop), plane)])
                else:
                    pending.done.append(completion)
                    if not pending.remaining:
                        self._release(pending.done, pending.parts)
                if not pending.remaining:
                    del self._pending[number]

    def _learn(self, start: int, payload: Payload) -> None:
        for schema in payload.schemas.values():
            self._info_bytes = max(self._info_bytes, schema.size)
        if self.description is None:
            description = payload.values.get(start)
            self.description = description if isinstance(description, Description) else None

    def _release(
        self, completions: Sequence[Completion], parts: Sequence[tuple[range, int | None]]
    ) -> None:
        """Add completions, and the rows that they wrote, to the next reply."""
        for ids, plane in parts:
            if plane is not None and self.table is not None:
                self._rows.setdefault(plane, []).append(ids)
        self._completions += completions

    def fail(self, error: BaseException) -> None:
        """Let :meth:`wait` raise an error, which ends the actor."""
        with self._news:
            self._error = error
            self._rung = True
            self._news.notify()

    def ring(self) -> None:
        """Wake the waiting thread, if there is something to send."""
        # No lock for this look: a thread rings after it has added, so it sees its own completions.
        # If another thread has taken them by then, there is nothing to wake for.
        if self._completions:
            with self._news:
                self._rung = True
                self._news.notify()

    def wait(self) -> Sealed:
        """Wait for :meth:`ring`, and return all completions."""
        with self._news:
            self._news.wait_for(lambda: self._rung or self._error is not None)
            if self._error is not None:
                raise self._error
        return self.take()

    def take(self) -> Sealed:
        """Return all completions as one message, which is empty if there are none."""
        with self._news:
            self._rung = False
            if not self._completions:
                return b""
            completions, self._completions = self._completions, []
            # Numbered under the lock and sealed outside of it, because sealing takes long. Replies
            # of two threads may therefore overtake each other; the driver sorts them by number.
            number, self._number = self._number, self._number + 1
            rows, self._rows = self._rows, {}
            transfers = [self._pack_rows(plane, runs) for plane, runs in rows.items()]
        joined = join_neighbours(completions)
        packed = [(n, start, stop, _pack(payload)) for n, start, stop, payload in joined]
        gauges, env_gauges = self._read_gauges()
        sender = os.getpid(), platform.node()
        return seal(Reply(number, packed, transfers, *sender, clock(), gauges, env_gauges))

    def _pack_rows(self, plane: int, runs: Sequence[range]) -> RowTransfer:
        assert self.table is not None
        ids = runs[0] if len(runs) == 1 else sorted(chain(*runs))
        return take_rows(self.table, plane, ids, self._info_bytes)

    def _read_gauges(self) -> tuple[list[int], dict[str, Array] | None]:
        if self.table is None:
            return [], None
        arrays, ids = self.table.gauges.arrays, self.ids
        now, every = time.monotonic(), None
        gauges = [int(arrays[name][ids.start]) for name in HOST_GAUGES]
        if now - self._gauged > GAUGE_SECONDS:
            self._gauged = now
            every = {name: arrays[name][ids.start : ids.stop].copy() for name in ENV_GAUGES}
            # The driver adds the steps of the actor's first host to all environments.
            totals = self.table.gauges.totals(self.hosts)
            every["steps"] = totals[ids.start : ids.stop] - gauges[0]
        return gauges, every


def _pack(payload: Payload | None) -> list[PickleBuffer] | None:
    return None if payload is None else [*map(PickleBuffer, pack_payload(payload))]
