"""Mending: deadlines, and what recovery and recycling have done by the runner.

They decide (``engine/faults/recovery.py``, ``engine/faults/recycling.py``); here it is carried out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from agym.engine.faults.policy import FaultPolicy
from agym.engine.faults.recovery import Recovery
from agym.engine.runner import Runner, Runs
from agym.engine.ticket import Ticket
from agym.hosts.base import Factory
from agym.protocol.arguments import Ids
from agym.protocol.copying import copy_value
from agym.protocol.messages import ROW_KINDS, Operation

# How many deadlines may pass until what takes another's place is made, and how long at least.
REMAKE_DEADLINES, REMAKE_SECONDS = 10, 10.0

# What they have time for, since an environment is made or closed in it.
PATIENT = frozenset({"recreate", "restart", "export", "import_env"})


class Mending(Runner):
    """A runner whose environments may fail, hang and leak."""

    def __init__(
        self,
        backend: Runs,
        num_envs: int,
        *,
        autoreset: AutoresetMode,
        timeout: float | None = None,
        copy: bool = True,
        policy: FaultPolicy | None = None,
    ) -> None:
        """Nothing starts yet; see :class:`~agym.engine.runner.Runner` for the rest.

        Args:
            backend: Where the environments live.
            num_envs: Number of environments.
            autoreset: What follows an episode's end.
            timeout: Deadline of one operation, in seconds.
            copy: Give batches away; else views of a plane.
            policy: What is done about faults.
        """
        super().__init__(backend, num_envs, autoreset=autoreset, timeout=timeout, copy=copy)
        policy = policy or FaultPolicy()
        self._recovery = Recovery(policy, self._status, self, backend)
        resend = policy.tolerant or policy.record_actions or backend.recycle is not None
        self._plain = timeout is None and not resend
        self._at_once = backend.immediate and self._plain
        self._leases = copy and not resend and autoreset is not AutoresetMode.DISABLED
        if backend.recycle is not None:
            # Late, since few programs recycle workers.
            from agym.engine.faults.recycling import Recycling

            self._recycling = recycling = Recycling(backend.recycle, self, backend, self._recovery)
            self._recovery.on_replace = recycling.release

    # ---------------------------------------------------------------- deadlines

    def expire(self) -> float | None:
        """Let tickets whose deadline has passed time out.

        Returns:
            Seconds until the next deadline, ``None`` if there is none.
        """
        if self._timeout is None and not self._sent.receivers:
            return None
        now = time.monotonic()
        waiting = [t for t in self._all_tickets() if t.deadline is not None and not t.done]
        for ticket in waiting:
            # One that was missed may have ended or suspended another.
            if ticket.deadline is None or ticket.deadline > now or ticket.done:
                continue
            if ticket.kind == "recv":
                ticket.finish()
            else:
                self._miss(ticket)
        return min((t.deadline - now for t in waiting if t.deadline and not t.done), default=None)

    def _miss(self, ticket: Ticket) -> None:
        """A deadline has passed: the call fails, or what keeps it waiting is replaced, or both."""
        recovery = self._recovery
        held = self._order.held(ticket)
        late = [i for i in ticket.late() if i not in held and i not in recovery.recovering]
        if ticket.kind in PATIENT:
            ticket.deadline = None
            reason = f"did not come up within {self._patience:g} s"
            for outcome in recovery.overdue(ticket, reason):
                self._account(outcome)
            self.poll()
            return
        if not late:  # it waits for others, which have deadlines too, or for what is replaced
            ticket.suspend()
            return
        forceable = self._backend.replaceable or self.coroutines
        if forceable and recovery.policy.tolerant and ticket.kind in ROW_KINDS:
            ticket.suspend()
        else:
            ticket.expire()
            self._give_up(ticket)
        if forceable:
            reason = f"missed the deadline of {ticket.kind} ({self._timeout:g} s)"
            for outcome in recovery.force(late, ticket, reason):
                self._account(outcome)
            self.poll()

    def _give_up(self, ticket: Ticket) -> None:
        """A deadline has passed: those that were in time go on, and nobody waits for the others."""
        if ticket.ready is None:
            for ids in ticket.ended or ():
                self._free(ticket, ids, ticket.extras)
        else:
            self._sent.drop(ticket.late(), ticket.ready, ticket.error)

    # ---------------------------------------------------------------- repairs

    @property
    def opened(self) -> bool:
        """Whether the environments are made."""
        return hasattr(self, "table")

    @property
    def coroutines(self) -> bool:
        """Whether they are coroutine environments."""
        return self.description.coroutines

    @property
    def factories(self) -> Sequence[Factory]:
        """What makes each environment."""
        return self._backend.factories

    def order(self, kind: str, ids: Ids, each: list[Any] | None = None) -> int:
        """Begin an operation of our own on neighbours, ahead of all that waits."""
        ticket = Ticket(next(self._numbers), kind, ids)
        self._tickets[ticket.number] = ticket
        ticket.operation = Operation(ticket.number, kind, ids[0], ids[-1] + 1, each=each)
        if kind in PATIENT:
            self._be_patient(ticket)
        if kind not in ("restart", "spare"):  # these come with the workers themselves
            try:
                self._backend.submit(ticket.operation)
            except BaseException:
                del self._tickets[ticket.number]
                raise
        return ticket.number

    def _be_patient(self, ticket: Ticket) -> None:
        """Give what takes another's place a deadline too: to be made takes longer than a step."""
        if self._timeout is not None:
            ticket.deadline, ticket.ended = time.monotonic() + self._patience, []

    @property
    def _patience(self) -> float:
        return max(REMAKE_SECONDS, REMAKE_DEADLINES * (self._timeout or 0.0))

    def resend(self, ticket: Ticket, start: int, stop: int) -> None:
        """Send a part of a ticket's operation once more."""
        each = ticket.operation.each
        if each is not None:
            each = [each[ticket.ids.index(i)] for i in range(start, stop)]
        if ticket.deadline is not None:
            ticket.suspend()
        self._submit(ticket.operation._replace(start=start, stop=stop, each=each), ticket)

    def rearm(self) -> None:
        """Set the deadlines anew that were suspended."""
        for ticket in self._tickets.values():
            self._resume(ticket)

    def last_row(self, slot: int) -> tuple[Any, tuple[bool, bool]]:
        """The last known observation and flags of an environment."""
        ticket = self._order.owner(slot)
        if ticket is None or ticket.ready is not None or not ticket.has_ended(slot):
            return self._collector.last(slot)
        objects = {} if ticket.extras is None else ticket.extras.objects
        return self._collector.row(slot, ticket.plane, objects.get(slot))

    def in_flight(self, slot: int) -> Ticket | None:
        """The step or reset that an environment is doing."""
        return self._order.owner(slot)

    def action(self, slot: int, ticket: Ticket) -> Any:
        """The action of an environment in a step, in the form that it takes."""
        each = ticket.operation.each
        part = each and [each[ticket.ids.index(slot)]]
        return copy_value(self._rows.actions(slot, slot + 1, part)[0])

    # ---------------------------------------------------------------- to other workers

    def ended_with(self, slot: int, plane: int) -> tuple[bool, bool]:
        """The flags of an environment's row."""
        row = self.table.planes[plane]
        return bool(row.terminated[slot]), bool(row.truncated[slot])

    def export(self, slot: int) -> int | None:
        """Begin to move an environment, and hold back what it is to do next; unless it is busy."""
        if not self._order.is_free(slot):
            return None
        number = self.order("export", (slot,))
        self._order.seize(slot, self._tickets[number])
        return number

    def release_env(self, slot: int, number: int) -> None:
        """Let it go on."""
        holder = self._order.owner(slot)
        if holder is not None and holder.number == number:
            self._release(holder, (slot,))
