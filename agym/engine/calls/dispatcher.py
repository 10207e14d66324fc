"""The dispatcher: sends operations to the backend, each as soon as its rows are free.

A call becomes a ticket. A ticket becomes one operation or several, which the backend completes. The
dispatcher knows which tickets are under way; ``engine/collector.py`` ends them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import count
from typing import Any

from agym.backends.base import Backend
from agym.engine.batches.leasing import Planes
from agym.engine.calls.deadlines import Deadlines
from agym.engine.calls.scheduler import Scheduler
from agym.engine.calls.ticket import Ticket
from agym.engine.status import EnvStatus
from agym.errors import AgymError
from agym.protocol.arguments import Ids
from agym.protocol.messages.operations import Make, Message, Operation, Step

# What the ticket of a step that has ended already says.
ENDED = Step(0)


class Dispatcher:
    """Sends the operations of tickets.

    Attributes:
        tickets: The tickets under way, by number.
        numbers: The numbers of operations.
        scheduler: Decides which operations may be sent now.
        deadlines: The deadlines of calls.
        in_place: The environments that a call of the backend is stepping at this moment, in any
            thread.
        watched: The step that the backend watches in such a call: number, plane, parts of actions.
        adopted: Its ticket, if one was made meanwhile.
    """

    in_place: Ids | None = None
    watched: tuple[int, int, list[Any] | None] | None = None
    adopted: Ticket | None = None

    def __init__(
        self, backend: Backend, num_envs: int, status: EnvStatus, deadlines: Deadlines
    ) -> None:
        self.tickets: dict[int, Ticket] = {}
        self.scheduler = Scheduler(num_envs)
        self.deadlines = deadlines
        self._backend = backend
        self._num_envs = num_envs
        self._status = status
        self._planes: Planes | None = None
        self.numbers = count(1)

    def open(self, planes: Planes) -> None:
        """Store what is known once the environments are made: the planes, and which are a group."""
        self._planes = planes
        groups = self._backend.groups
        if groups is not None:
            self.scheduler = Scheduler(self._num_envs, groups.env_groups)

    def close(self) -> None:
        """Drop the table and all tickets; completions that still arrive are ignored."""
        self.tickets.clear()
        self._planes = None

    def ticket(self, message: Message, ids: Ids) -> Ticket:
        """Make a ticket, which is not yet under way."""
        return Ticket(next(self.numbers), message, ids)

    # ---------------------------------------------------------------- sending

    def dispatch(self, ticket: Ticket) -> None:
        """Send a ticket's operation, or what of it has free rows."""
        self.tickets[ticket.number] = ticket
        operation = ticket.operation
        if self.scheduler.take_all(ticket):
            self._submit(operation, ticket)
        else:
            for part in self.scheduler.admit(ticket, operation):
                self._submit(part, ticket)

    def adopt(self, number: int, plane: int, parts: list[Any] | None) -> Ticket:
        """Make the ticket of a step of all environments that the backend has begun already."""
        adopted, self.adopted = self.adopted, None
        if adopted is not None:
            return adopted
        step = Step(plane, parts)
        ticket = self.tickets[number] = Ticket(number, step, range(self._num_envs))
        ticket.plane = plane
        self.scheduler.take_all(ticket)
        return ticket

    def adopt_watched(self) -> None:
        """Make the ticket of the step that the backend watches: a signal handler takes it in."""
        if self.watched is not None:
            (number, plane, parts), self.watched = self.watched, None
            self.adopted = self.adopt(number, plane, parts)

    def done(self, value: Any) -> Ticket:
        """Return the ticket of a step that has ended already."""
        ticket = self.ticket(ENDED, ())
        ticket.finish(value)
        return ticket

    def begin_internal(self, message: Message, ids: Ids) -> int:
        """Begin an internal operation on neighbours, ahead of all queued ones."""
        ticket = self.ticket(message, ids)
        self.tickets[ticket.number] = ticket
        if message.slow:
            self.deadlines.start_replacement(ticket)
        if not isinstance(message, Make):  # workers begin this themselves as they start
            try:
                self._backend.submit(ticket.operation)
            except BaseException:
                del self.tickets[ticket.number]
                raise
        return ticket.number

    def resend(self, ticket: Ticket, start: int, stop: int) -> None:
        """Send a part of a ticket's operation again."""
        message = ticket.message
        if message.values is not None:
            message = message.pick([ticket.ids.index(i) for i in range(start, stop)])
        if ticket.deadline is not None:
            ticket.suspend()
        self._submit(Operation(ticket.number, start, stop, message), ticket)

    def _submit(self, operation: Operation, ticket: Ticket) -> None:
        if ticket.kind is Step:
            self.in_place = ticket.ids
        try:
            self._backend.submit(operation)
        except BaseException as error:
            self.call_off(ticket, error)
            raise
        finally:
            self.in_place = None

    def call_off(self, ticket: Ticket, error: BaseException) -> None:
        """End a ticket after an error in ``submit``, or after Ctrl-C inside a serial step."""
        if ticket.message.writes_rows and not isinstance(error, AgymError):
            self._status.mark_unready(ticket.ids, f"was interrupted in {ticket.message.name}")
        ticket.finish(error=error)
        self.scheduler.forget(ticket)
        self.drop(ticket)

    # ---------------------------------------------------------------- the end of tickets

    def drop(self, ticket: Ticket) -> None:
        """Forget a ticket, and send the operations that waited for its rows."""
        self.tickets.pop(ticket.number, None)
        if self._planes is not None:
            self._planes.give_back(ticket.plane)  # unless its batch was leased
        if not self.scheduler.free_all(ticket):
            self.release(ticket, ticket.ids)

    def release(self, ticket: Ticket, ids: Ids) -> None:
        """Free some rows of a ticket, and send the operations that waited for them."""
        for part in self.scheduler.release(ticket, ids, self.tickets):
            waiting = self.tickets.get(part.number)
            if waiting is not None:
                if waiting.deadline is not None:  # time spent queueing does not count
                    waiting.suspend()
                self.deadlines.resume(waiting)
                with suppress(Exception):  # ``_submit`` has stored it in the waiting ticket
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

    # ---------------------------------------------------------------- rows

    def in_flight(self, slot: int) -> Ticket | None:
        """Return the ticket of an environment's current step or reset."""
        return self.scheduler.owner(slot)

    def seize(self, slot: int, message: Message) -> int | None:
        """Begin an operation and hold back all others of its environment.

        Returns:
            Its number; ``None`` if the environment is busy.
        """
        if not self.scheduler.is_free(slot):
            return None
        number = self.begin_internal(message, (slot,))
        self.scheduler.seize(slot, self.tickets[number])
        return number

    def unseize(self, slot: int, number: int) -> None:
        """Send the operations that were held back."""
        holder = self.scheduler.owner(slot)
        if holder is not None and holder.number == number:
            self.release(holder, (slot,))
