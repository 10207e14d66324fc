"""Collects an actor's completions until they are sent to the driver as one reply."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Sequence
from itertools import chain
from pickle import PickleBuffer
from typing import Any, NamedTuple

from agym.backends.process.serialization import Sealed, seal
from agym.backends.process.worker_loop import pack_payload
from agym.protocol.messages.completions import Completion, Description
from agym.protocol.messages.operations import Load, Operation, Reset, Step
from agym.protocol.metrics.gauges import ENV_GAUGES, HOST_GAUGES, clock
from agym.protocol.table import SlotTable
from agym.protocol.transfer import RowTransfer, take_rows
from agym.protocol.typing import Array

# How often the gauges of single environments are sent.
GAUGE_SECONDS = 1.0


class Reply(NamedTuple):
    """A reply of an actor.

    Attributes:
        number: Replies of an actor are numbered from 0 on.
        completions: Number, start and stop of each, and its payload, if any, packed by itself.
        parcels: The rows that they wrote.
        pid: The actor's process.
        host: The actor's machine.
        clock: The actor's clock, to which ``began`` and ``ended`` among the gauges refer.
        gauges: Those of its (first) host.
        env_gauges: Those of its environments, every ``GAUGE_SECONDS``.
    """

    number: int
    completions: list[tuple[int, int, int, list[PickleBuffer] | None]]
    transfers: list[RowTransfer]
    pid: int
    host: str
    clock: int
    gauges: list[int]
    env_gauges: dict[str, Array] | None


class ReplyBuffer:
    """Collects completions; any thread adds, one waits.

    Attributes:
        ids: The actor's environments.
        firsts: The first environment of each of its hosts.
        table: The actor's table, once attached.
        description: What the environments are like, once made.
        opened: The environments are made, or could not be.
        report_each: Send each environment's completion as soon as possible.
    """

    report_each = False

    ids: range = range(0)
    firsts: Sequence[int] = (0,)
    table: SlotTable | None = None
    description: Description | None = None

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._rung = False
        self.opened = threading.Event()
        self._completions: list[Completion] = []
        # The parts of each operation that writes rows: environments, plane, and how many rows are
        # left.
        self._parts: dict[int, list[tuple[range, int, int]]] = {}
        # Completions held back until the last of their operation, and how many environments are
        # left: a message takes longer than many a step.
        self._held: dict[int, list[Completion]] = {}
        self._left: dict[int, int] = {}
        self._number = 0
        self._info_bytes = 0
        self._gauged = 0.0

    def expect(self, operation: Operation, actions: Sequence[Array]) -> None:
        """Prepare for an operation that is about to begin, and store its actions."""
        number, start, stop, message = operation
        if isinstance(message, Step) and self.table is not None:
            for block, rows in zip(self.table.actions, actions, strict=True):
                block[start:stop] = rows
        with self._news:
            if isinstance(message, Step | Reset | Load) and message.plane is not None:
                part = range(start, stop), message.plane, stop - start
                self._parts.setdefault(number, []).append(part)
            if not self.report_each and not (isinstance(message, Step) and message.sent):
                self._left[number] = self._left.get(number, 0) + stop - start

    def add(self, completions: Sequence[Completion]) -> None:
        """Add completions."""
        with self._news:
            for completion in completions:
                if completion.payload is not None:
                    self._learn(completion)
                number, start, stop, _ = completion
                if number not in self._left:
                    self._completions.append(completion)
                    continue
                self._held.setdefault(number, []).append(completion)
                self._left[number] -= stop - start
                if not self._left[number]:
                    del self._left[number]
                    self._completions += self._held.pop(number)
        self.opened.set()  # by the first completion, that of ``make``

    def _learn(self, completion: Completion) -> None:
        assert completion.payload is not None
        for schema in completion.payload.schemas.values():
            self._info_bytes = max(self._info_bytes, schema.size)
        if self.description is None:
            found = completion.payload.values.get(completion.start)
            self.description = found if isinstance(found, Description) else None

    def ring(self) -> None:
        """Wake the waiting thread, if there is something to take."""
        with self._news:
            if self._completions:
                self._rung = True
                self._news.notify()

    def wait(self) -> Sealed:
        """Wait for :meth:`ring`, and take everything."""
        with self._news:
            self._news.wait_for(lambda: self._rung)
        return self.take()

    def take(self) -> Sealed:
        """Take everything, as one message."""
        with self._news:
            self._rung = False
            completions, self._completions = self._completions, []
            number, self._number = self._number, self._number + 1
            transfers = self._pack_rows(completions)
        packed = [
            (
                n,
                start,
                stop,
                None if payload is None else [*map(PickleBuffer, pack_payload(payload))],
            )
            for n, start, stop, payload in _join(completions)
        ]
        gauges, env_gauges = self._read_gauges()
        sender = os.getpid(), platform.node()
        return seal(Reply(number, packed, transfers, *sender, clock(), gauges, env_gauges))

    def _pack_rows(self, completions: Sequence[Completion]) -> list[RowTransfer]:
        """Pack the rows of all completions, each plane once."""
        table = self.table
        if table is None:
            return []
        rows: dict[int, list[range]] = {}
        for number, start, stop, _ in completions:
            for part in self._parts.get(number, ()):
                ids, plane, left = part
                if start in ids:
                    rows.setdefault(plane, []).append(range(start, stop))
                    self._parts[number].remove(part)
                    if left > stop - start:
                        self._parts[number].append((ids, plane, left - (stop - start)))
                    elif not self._parts[number]:
                        del self._parts[number]
                    break
        return [
            take_rows(
                table, plane, runs[0] if len(runs) == 1 else sorted(chain(*runs)), self._info_bytes
            )
            for plane, runs in rows.items()
        ]

    def _read_gauges(self) -> tuple[list[int], dict[str, Array] | None]:
        if self.table is None:
            return [], None
        arrays, ids = self.table.gauges.arrays, self.ids
        now, every = time.monotonic(), None
        gauges = [int(arrays[name][ids.start]) for name in HOST_GAUGES]
        if now - self._gauged > GAUGE_SECONDS:
            self._gauged = now
            every = {name: arrays[name][ids.start : ids.stop].copy() for name in ENV_GAUGES}
            bounds = [*self.firsts, ids.stop]
            for first, stop in zip(self.firsts, bounds[1:], strict=True):
                # The driver adds the rounds of the actor's first host to all environments.
                every["steps"][first - ids.start : stop - ids.start] += (
                    arrays["rounds"][first] - gauges[0]
                )
        return gauges, every


def _join(completions: Sequence[Completion]) -> list[Completion]:
    """Join neighbours of one operation that have no payload."""
    joined: list[Completion] = []
    for completion in completions:
        last: Any = joined[-1] if joined else None
        if (
            last is not None
            and completion.payload is last.payload is None
            and (last.number, last.stop) == (completion.number, completion.start)
        ):
            joined[-1] = Completion(last.number, last.start, completion.stop)
        else:
            joined.append(completion)
    return joined
