"""A runner with deadlines, which also carries out what recovery and recycling decide.

The decisions are made in ``engine/faults/recovery.py`` and ``engine/faults/recycling.py``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from agym.backends.base import Backend
from agym.engine.faults.policy import FaultPolicy
from agym.engine.faults.recovery import Recovery
from agym.engine.runner import Runner
from agym.engine.ticket import Receive, Ticket
from agym.hosts.base import Factory
from agym.protocol.arguments import Ids
from agym.protocol.messages.operations import Export, Make, Message, Operation
from agym.protocol.value_copies import copy_value

# A replacement may take this many deadlines, and at least this many seconds, to be made.
RECREATE_DEADLINES, RECREATE_SECONDS = 10, 10.0


class RunnerWithDeadlines(Runner):
    """A runner whose environments may fail, hang and leak memory."""

    def __init__(
        self,
        backend: Backend,
        num_envs: int,
        *,
        autoreset: AutoresetMode,
        timeout: float | None = None,
        copy: bool = True,
        policy: FaultPolicy | None = None,
    ) -> None:
        """Prepare as :class:`Runner` does, with a ``policy`` for faults."""
        super().__init__(backend, num_envs, autoreset=autoreset, timeout=timeout, copy=copy)
        policy = policy or FaultPolicy()
        self._recovery = Recovery(policy, self._status, self, backend)
        resend = policy.tolerant or policy.record_actions or backend.recycle is not None
        self._plain = timeout is None and not resend
        self._at_once = backend.immediate and self._plain
        self._leases = copy and not resend and autoreset is not AutoresetMode.DISABLED
        if backend.recycle is not None:
            # A late import, because few programs recycle workers.
            from agym.engine.faults.recycling import Recycling

            self._recycling = recycling = Recycling(backend.recycle, self, backend, self._recovery)
            self._recovery.on_replace = recycling.forget_worker

    # ---------------------------------------------------------------- deadlines

    def expire(self) -> float | None:
        """Expire the tickets whose deadline has passed.

        Returns:
            Seconds until the next deadline, ``None`` if there is none.
        """
        if self._timeout is None and not self._sent.receivers:
            return None
        now = time.monotonic()
        waiting = [t for t in self._all_tickets() if t.deadline is not None and not t.done]
        for ticket in waiting:
            # An earlier iteration may have ended or suspended this ticket.
            if ticket.deadline is None or ticket.deadline > now or ticket.done:
                continue
            if ticket.kind is Receive:
                ticket.finish()
            else:
                self._miss(ticket)
        return min((t.deadline - now for t in waiting if t.deadline and not t.done), default=None)

    def _miss(self, ticket: Ticket) -> None:
        """Fail a call that missed its deadline, replace the environments that are late, or both."""
        recovery = self._recovery
        held = self._scheduler.held(ticket)
        late = [i for i in ticket.late() if i not in held and i not in recovery.recovering]
        if ticket.kind.slow:
            ticket.deadline = None
            reason = f"did not come up within {self._replacement_seconds:g} s"
            for completion in recovery.overdue(ticket, reason):
                self._account(completion)
            self.poll()
            return
        if not late:  # it waits for other operations, which have deadlines, or for a replacement
            ticket.suspend()
            return
        forceable = self._backend.replaceable or self.coroutines
        if forceable and recovery.policy.tolerant and ticket.kind.writes_rows:
            ticket.suspend()
        else:
            ticket.expire()
            self._give_up(ticket)
        if forceable:
            reason = f"missed the deadline of {ticket.kind.name} ({self._timeout:g} s)"
            for completion in recovery.force(late, ticket, reason):
                self._account(completion)
            self.poll()

    def _give_up(self, ticket: Ticket) -> None:
        """Release the environments that met the deadline, and stop waiting for the others."""
        if ticket.ready is None:
            for ids in ticket.ended or ():
                self._free(ticket, ids, ticket.payload)
        else:
            self._sent.drop(ticket.late(), ticket.ready, ticket.error)

    # ---------------------------------------------------------------- repairs

    @property
    def opened(self) -> bool:
        return hasattr(self, "table")

    @property
    def coroutines(self) -> bool:
        return self.description.coroutines

    @property
    def factories(self) -> Sequence[Factory]:
        return self._backend.factories

    def dispatch_internal(self, message: Message, ids: Ids) -> int:
        """Begin an internal operation on neighbours, ahead of all queued ones."""
        ticket = Ticket(next(self._numbers), type(message), ids)
        self._tickets[ticket.number] = ticket
        ticket.operation = Operation(ticket.number, ids[0], ids[-1] + 1, message)
        if message.slow:
            self._set_replacement_deadline(ticket)
        if not isinstance(message, Make):  # workers begin this themselves as they start
            try:
                self._backend.submit(ticket.operation)
            except BaseException:
                del self._tickets[ticket.number]
                raise
        return ticket.number

    def _set_replacement_deadline(self, ticket: Ticket) -> None:
        """Give a replacement its own, longer deadline: making an environment outlasts a step."""
        if self._timeout is not None:
            ticket.deadline, ticket.ended = time.monotonic() + self._replacement_seconds, []

    @property
    def _replacement_seconds(self) -> float:
        return max(RECREATE_SECONDS, RECREATE_DEADLINES * (self._timeout or 0.0))

    def resend(self, ticket: Ticket, start: int, stop: int) -> None:
        """Send a part of a ticket's operation again."""
        message = ticket.operation.message
        if message.values is not None:
            message = message.pick([ticket.ids.index(i) for i in range(start, stop)])
        if ticket.deadline is not None:
            ticket.suspend()
        self._submit(Operation(ticket.number, start, stop, message), ticket)

    def rearm(self) -> None:
        """Restart the deadlines that were suspended."""
        for ticket in self._tickets.values():
            self._resume(ticket)

    def last_row(self, slot: int) -> tuple[Any, tuple[bool, bool]]:
        """Return the last known observation and flags of an environment."""
        ticket = self._scheduler.owner(slot)
        if ticket is None or ticket.ready is not None or not ticket.has_ended(slot):
            return self._batches.last(slot)
        objects = {} if ticket.payload is None else ticket.payload.objects
        return self._batches.row(slot, ticket.plane, objects.get(slot))

    def in_flight(self, slot: int) -> Ticket | None:
        """Return the ticket of an environment's current step or reset."""
        return self._scheduler.owner(slot)

    def action(self, slot: int, ticket: Ticket) -> Any:
        """Return an environment's action in a step, in the form that the environment takes."""
        parts = ticket.operation.message.values
        part = parts and [parts[ticket.ids.index(slot)]]
        return copy_value(self._rows.actions(slot, slot + 1, part)[0])

    # ---------------------------------------------------------------- moves to other workers

    def ended_with(self, slot: int, plane: int) -> tuple[bool, bool]:
        """Return the flags of an environment's row."""
        row = self.table.planes[plane]
        return bool(row.terminated[slot]), bool(row.truncated[slot])

    def export(self, slot: int) -> int | None:
        """Begin to move an environment and hold back its operations; ``None`` if it is busy."""
        if not self._scheduler.is_free(slot):
            return None
        number = self.dispatch_internal(Export(), (slot,))
        self._scheduler.seize(slot, self._tickets[number])
        return number

    def release_env(self, slot: int, number: int) -> None:
        """Release the operations that a move held back."""
        holder = self._scheduler.owner(slot)
        if holder is not None and holder.number == number:
            self._release(holder, (slot,))
