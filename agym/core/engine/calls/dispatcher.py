"""The dispatcher: sends operations to the backend, each as soon as its rows are free.

A call becomes a ticket. A ticket becomes one operation or several, which the backend completes. The
dispatcher knows which tickets are under way; ``engine/calls/collector.py`` ends them.

Backends preserve the order of operations. The dispatcher delays only an operation that would
overwrite a row of the slot table before the row is read (a reset behind a step still in flight),
and operations that are queued behind it for the same environment. The environments of a group take
their rows together and share a queue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from agym.core.backends.pool import Pool
from agym.core.engine.batches.builder import BatchBuilder
from agym.core.engine.calls.ticket import Deadlines, Ticket
from agym.core.engine.status import EnvStatus
from agym.core.protocol.arguments import Ids, runs
from agym.core.protocol.messages.operations import Make, Message, Operation, Save, Step
from agym.core.protocol.table import BESIDE, PLANES
from agym.errors import AgymError


class RowQueues:
    """The ticket that owns each row, and the operations that wait for it.

    Attributes:
        idle: No row is owned and nothing waits.
    """

    def __init__(self, num_envs: int, env_groups: Sequence[range] = ()) -> None:
        """Start with no row owned.

        Args:
            num_envs: Number of environments.
            env_groups: The groups of environments that are one vector environment each.
        """
        self._groups = {i: ids for ids in env_groups for i in ids}
        # The ticket that owns all rows, as long as none was freed; else the owner of each row.
        self._whole: Ticket | None = None
        self._owners: list[Ticket | None] = [None] * num_envs
        self._owned = 0
        self._waiting: dict[int, deque[tuple[Ticket, int]]] = {}
        self._seized: set[int] = set()
        self.idle = True

    def stepping(self, ids: Ids) -> int | None:
        """Return an environment whose step is in flight or queued, preferably a running one."""
        stepping = None
        for i in ids:
            owner = self.owner(i)
            if owner is not None and owner.kind is Step:
                stepping = i
                if not owner.has_ended(i):
                    return i
            elif any(waiting.kind is Step for waiting, _ in self._queue(i)):
                return i
        return stepping

    def owner(self, slot: int) -> Ticket | None:
        """Return the ticket that owns an environment's row: its step, reset or move."""
        return self._whole or self._owners[slot]

    def waiting(self, ticket: Ticket) -> set[int]:
        """Return the environments whose part of a ticket still waits for a row."""
        return {i for i in ticket.ids if (ticket, i) in self._queue(i)}

    def is_free(self, slot: int) -> bool:
        """Whether no step or reset of an environment is under way or queued."""
        return self.owner(slot) is None and not self._queue(slot)

    def seize(self, slot: int, ticket: Ticket) -> None:
        """Delay all operations of a free environment until ``ticket`` is released."""
        self._set_owner(slot, ticket)
        self._seized.add(slot)
        self.idle = False

    def take_all(self, ticket: Ticket) -> bool:
        """Take all rows for a ticket, if none is owned and nothing waits."""
        if not self.idle or len(ticket.ids) < len(self._owners):
            return False
        if ticket.message.writes_rows:
            self._whole = ticket
            self.idle = False
        return True

    def free_all(self, ticket: Ticket) -> bool:
        """Undo :meth:`take_all`, if nothing waits for a row and none was freed before."""
        if self._whole is not ticket or self._waiting:
            return False
        self._whole = None
        self.idle = True
        return True

    def admit(self, ticket: Ticket) -> Iterator[Operation]:
        """Take the rows that are free and yield the operations to submit now; queue the rest."""
        ids, row = ticket.ids, ticket.message.writes_rows
        waiting = {
            i
            for i in ids
            if self._queue(i) or i in self._seized or (row and self.owner(i) is not None)
        }
        for i in ids:
            if i in waiting:
                self._waiting.setdefault(self._key(i), deque()).append((ticket, i))
            elif row:
                self._set_owner(i, ticket)
        self._note_idle()
        yield from map(ticket.part, runs(tuple(i for i in ids if i not in waiting)))

    def _key(self, slot: int) -> int:
        """Return the key of an environment's queue: the first of its group."""
        return self._groups[slot].start if self._groups else slot

    def _queue(self, slot: int) -> Collection[tuple[Ticket, int]]:
        return self._waiting.get(self._key(slot), ())

    def _set_owner(self, slot: int, ticket: Ticket) -> None:
        self._split()
        for i in self._groups.get(slot, (slot,)):
            if self._owners[i] is None:
                self._owners[i] = ticket
                self._owned += 1

    def _split(self) -> None:
        """Note the owner of each row instead of one owner of all rows."""
        if self._whole is not None:
            self._owned = len(self._owners)
            self._owners, self._whole = [self._whole] * self._owned, None

    def _note_idle(self) -> None:
        self.idle = self._whole is None and not self._owned and not self._waiting

    def forget(self, ticket: Ticket) -> None:
        """Remove a ticket's parts from the queues."""
        for slot in ticket.ids:
            key = self._key(slot)
            others = deque(entry for entry in self._queue(slot) if entry[0] is not ticket)
            if others:
                self._waiting[key] = others
            else:
                self._waiting.pop(key, None)

    def release(self, ticket: Ticket, ids: Ids) -> list[tuple[Ticket, Operation]]:
        """Free some rows of a ticket.

        Returns:
            The operations that may be submitted now, each with its ticket, the oldest ticket first.
        """
        self._split()
        if not (self._groups or self._waiting or self._seized):  # the usual case
            for i in ids:
                if self._owners[i] is ticket:
                    self._owners[i] = None
                    self._owned -= 1
            self._note_idle()
            return []
        ids = tuple(dict.fromkeys(j for i in ids for j in self._groups.get(i, (i,))))
        for i in ids:
            if self._owners[i] is ticket:
                self._owners[i] = None
                self._owned -= 1
                self._seized.discard(i)
        freed: dict[Ticket, list[int]] = {}
        for i in dict.fromkeys(map(self._key, ids)):
            if i in self._seized:
                continue
            queue = self._waiting.get(i)
            while queue:
                waiting, slot = queue[0]
                if waiting.message.writes_rows:
                    if self._owners[slot] not in (None, waiting):
                        break
                    self._set_owner(slot, waiting)
                freed.setdefault(waiting, []).append(slot)
                queue.popleft()
            if queue is not None and not queue:
                del self._waiting[i]
        self._note_idle()
        return [
            (waiting, waiting.part(run))
            for waiting in sorted(freed, key=lambda ticket: ticket.number)
            for run in runs(tuple(sorted(freed[waiting])))
        ]


class Dispatcher:
    """Sends the operations of tickets.

    Attributes:
        status: The state of each environment.
        tickets: The tickets under way, by number.
        numbers: The numbers of operations.
        queues: Decide which operations may be sent now.
        deadlines: The deadlines of calls.
        in_place: The environments that a call of the backend is stepping right now. Other threads
            read it without a lock, see ``Engine.refuse_in_place``.
    """

    in_place: Ids | None = None

    def __init__(self, backend: Pool, timeout: float | None) -> None:
        self._all = range(len(backend.options.factories))
        self.status = EnvStatus(len(self._all))
        self.tickets: dict[int, Ticket] = {}
        self.queues = RowQueues(len(self._all), backend.env_groups)
        self.deadlines = Deadlines(timeout)
        self.numbers = count(1)
        self._backend = backend
        self._batches: BatchBuilder | None = None

    def open(self, batches: BatchBuilder) -> None:
        """Store the batch builder, once the environments are made."""
        self._batches = batches

    def close(self) -> None:
        """Drop the table and all tickets; completions that still arrive are ignored."""
        self.tickets.clear()
        self._batches = None

    # ---------------------------------------------------------------- sending

    def dispatch(self, ticket: Ticket) -> None:
        """Send a ticket's operation, or the parts whose rows are free."""
        self.tickets[ticket.number] = ticket
        if self.queues.take_all(ticket):
            ids = ticket.ids
            self._submit(Operation(ticket.number, ids[0], ids[-1] + 1, ticket.message), ticket)
        else:
            for part in self.queues.admit(ticket):
                self._submit(part, ticket)

    def start_alone(self, number: int, message: Step) -> Ticket:
        """Send a step of all environments, while nothing else is under way."""
        ticket = self.tickets[number] = Ticket(number, message, self._all)
        ticket.plane, ticket.alone = message.plane, True
        self.queues.take_all(ticket)
        # A backend in this thread runs environments inside ``start_step``, with user code that
        # may call the engine again or raise Ctrl-C. So the ticket and its rows are set before.
        self.in_place = self._all
        try:
            self._backend.start_step(number, message)
        except BaseException as error:
            self.call_off(ticket, error)
            raise
        finally:
            self.in_place = None
        return ticket

    def adopt(self, number: int, plane: int, parts: list[Any] | None) -> Ticket:
        """Make the ticket of a step of all environments that the backend has already run."""
        ticket = self.tickets[number] = Ticket(number, Step(plane, parts), self._all)
        ticket.plane, ticket.ended = plane, []
        self.queues.take_all(ticket)
        return ticket

    def start_internal(self, message: Message, ids: Ids) -> int:
        """Start an internal operation on neighbours, ahead of all queued operations."""
        ticket = Ticket(next(self.numbers), message, ids)
        self.tickets[ticket.number] = ticket
        if message.slow:
            self.deadlines.start_replacement(ticket)
        if not isinstance(message, Make):  # a starting worker runs it by itself
            try:
                self._backend.submit(Operation(ticket.number, ids[0], ids[-1] + 1, message))
            except BaseException:
                del self.tickets[ticket.number]
                raise
        return ticket.number

    def resend(self, ticket: Ticket, ids: Ids) -> None:
        """Send the parts of some environments again, joined for neighbours."""
        if ticket.deadline is not None:
            ticket.suspend()
        for run in runs(ids):
            self._submit(ticket.part(run), ticket)

    def _submit(self, operation: Operation, ticket: Ticket) -> None:
        if ticket.kind is Step:
            self.in_place = ticket.ids
        try:
            if ticket.plane == BESIDE:
                for part in self._placed(operation, ticket):
                    self._backend.submit(part)
            else:
                self._backend.submit(operation)
        except BaseException as error:
            self.call_off(ticket, error)
            raise
        finally:
            self.in_place = None

    def _placed(self, operation: Operation, ticket: Ticket) -> Iterator[Operation]:
        """Split an operation by the planes of its rows, or fill in the planes of a ``Save``."""
        assert self._batches is not None
        number, start, stop, message = operation
        if isinstance(message, Save):
            planes = [self._latest_plane(i) for i in range(start, stop)]
            yield Operation(number, start, stop, replace(message, planes=planes))
            return
        ids = range(start, stop)
        ticket.planes.update(zip(ids, self._batches.free_planes(ids), strict=True))
        for plane, group in groupby(ids, ticket.planes.__getitem__):
            run = tuple(group)
            part = operation.part(run[0], run[-1] + 1)
            yield part._replace(message=part.message.at(plane))

    def _latest_plane(self, slot: int) -> int:
        """Return the plane of an environment's row after all operations submitted so far."""
        owner = self.queues.owner(slot)
        if owner is not None and owner.message.writes_rows and slot in owner.ids:
            return owner.plane_of(slot)
        assert self._batches is not None
        return self._batches.plane_of(slot)

    def call_off(self, ticket: Ticket, error: BaseException) -> None:
        """End a ticket after an error in ``submit``, or Ctrl-C inside a step in this thread."""
        if ticket.message.writes_rows and not isinstance(error, AgymError):
            self.status.mark_unready(ticket.ids, f"was interrupted in {ticket.message.name}")
        ticket.finish(error=error)
        self.queues.forget(ticket)
        self.drop(ticket)

    # ---------------------------------------------------------------- the end of tickets

    def drop(self, ticket: Ticket) -> None:
        """Forget a ticket, and send the operations that waited for its rows."""
        self.tickets.pop(ticket.number, None)
        if ticket.plane >= PLANES and self._batches is not None:
            self._batches.leases.give_back(ticket.plane)  # unless its batch was leased
        if not self.queues.free_all(ticket):
            self.release(ticket, ticket.ids)

    def release(self, ticket: Ticket, ids: Ids) -> None:
        """Free some rows of a ticket, and send the operations that waited for them."""
        for waiting, part in self.queues.release(ticket, ids):
            # An error while submitting an earlier part may have ended this ticket.
            if waiting.number in self.tickets:
                if waiting.deadline is not None:  # time spent queueing does not count
                    waiting.suspend()
                self.deadlines.resume(waiting)
                # ``_submit`` has already stored the error in the waiting ticket, for its caller.
                # It may even be Ctrl-C in an environment that runs in this thread. Raising it here
                # would blame the wrong call and drop the other parts.
                with suppress(BaseException):
                    self._submit(part, waiting)

    def rearm(self) -> None:
        """Start the deadlines that were suspended."""
        for ticket in self.tickets.values():
            self.deadlines.resume(ticket)

    def suspend_during(self, ticket: Ticket) -> None:
        """Suspend the caller's deadlines until a render for an observer has ended."""
        if ticket.deadline is not None and not ticket.done:
            ticket.deadline = time.monotonic() + self.deadlines.replacement_seconds
            self.deadlines.asides += 1
            ticket.on_done(self._end_aside)

    def _end_aside(self) -> None:
        self.deadlines.asides -= 1
        if not self.deadlines.asides:
            self.rearm()

    # ---------------------------------------------------------------- moves

    def seize(self, slot: int, message: Message) -> bool:
        """Start an operation and delay all others of its environment, unless it is busy."""
        if not self.queues.is_free(slot):
            return False
        number = self.start_internal(message, (slot,))
        self.queues.seize(slot, self.tickets[number])
        return True

    def unseize(self, slot: int) -> None:
        """Send the operations that :meth:`seize` has delayed."""
        holder = self.queues.owner(slot)
        if holder is not None:
            self.release(holder, (slot,))
