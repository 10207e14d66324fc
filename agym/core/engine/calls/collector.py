"""The collector: processes completions, and ends tickets when all their environments have ended.

::

    engine -- Ticket --> dispatcher -- Operation(s) --> backend --> host
    engine <-- result -- collector <-- recovery <-- Completion(s) ----'

Each environment runs its operations in the order of dispatch. Recovery decides what a fault means
(``engine/faults/recovery.py``). Nothing here awaits or blocks, so that the sync and the async API
share all of it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agym.core.engine.batches.sent_steps import Receive, SentSteps
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.calls.traffic import Traffic
from agym.core.engine.faults.recovery import Recovery
from agym.core.engine.hooks import Hooks
from agym.core.engine.opened import EnvRows
from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.completions import Completion, Payload, join_neighbours
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Close, Make, Step
from agym.errors import AgymError, BusyError

if TYPE_CHECKING:
    from agym.core.engine.faults.recycling import Recycling

STEPPING = (
    "environment {} is still stepping: wait for that step (await it, or let its thread finish)"
    " before the next"
)


class Collector:
    """Ends tickets.

    Attributes:
        backend: Runs the environments.
        dispatcher: Sends operations.
        rows: The rows of environments, and their descriptions once they are open.
        status: The state of each environment.
        recovery: Replaces environments and workers after a fault.
        hooks: The hooks.
        sent: The steps that were sent and not yet received.
        traffic: Times some steps.
        closing: The ticket of closing, once closing has started.
    """

    closing: Ticket | None = None

    def __init__(self, rows: EnvRows, recovery: Recovery, recycling: Recycling | None) -> None:
        self.rows = rows
        self.backend, self.dispatcher = rows.backend, rows.dispatcher
        self.status = rows.dispatcher.status
        self.recovery = recovery
        self._recycling = recycling
        self.hooks = Hooks()
        self.sent = SentSteps()
        self.traffic = Traffic(self.hooks)

    @property
    def tickets(self) -> list[Ticket]:
        """All tickets that are not done, with those of ``recv``."""
        return [*self.dispatcher.tickets.values(), *self.sent.receivers]

    def check_steppable(self, ids: Ids) -> None:
        """Refuse environments that still step, or that must be reset first."""
        self.sent.check(ids)
        queues = self.dispatcher.queues
        if not queues.idle:
            self.poll()
            busy = queues.stepping(ids)
            if busy is not None:
                # A worker that died may never have completed the step. Look before refusing.
                self.backend.check_workers()
                self.poll()
                busy = queues.stepping(ids)
            if busy is not None:
                raise BusyError(STEPPING.format(busy))
        self.status.check_ready(ids)

    # ---------------------------------------------------------------- completions

    def poll(self) -> None:
        """Take in all completions since the last call; tickets become done."""
        # Read ``ended`` before polling. A worker's last completions become readable before its end
        # is seen, so if ``ended`` is already true, the poll below gets them all. In the other
        # order, completions could arrive in between and closing would finish without them.
        ended = self.closing is not None and self.backend.ended
        recovery = self.recovery
        while completions := self.backend.poll():
            begins_more = self._recycling is not None or self.backend.runs_in_caller
            if len(completions) > len(self.backend.ranges):
                completions = join_neighbours(completions)
            for completion in completions:
                payload = completion.payload
                if payload is not None and payload.schemas and self.rows.opened is not None:
                    # Learn schemas even from a completion whose other parts are dropped: a host
                    # sends each schema once, and all later rows refer to it.
                    self.rows.opened.batches.learn(payload.schemas)
                wrong = payload is not None and payload.problems
                if (
                    wrong or recovery.follows or recovery.recovering or recovery.pending
                ) and self.closing is None:
                    begins_more = True
                    ticket = self.dispatcher.tickets.get(completion.number)
                    for part in recovery.filter(completion, ticket):
                        self._account(part)
                else:
                    self._account(completion)
            if not begins_more:
                break  # no operation was started here that could have ended by now
        if self.closing is None or self.closing.done:
            return
        if ended:
            payload = self.closing.payload
            self.closing.finish(
                error=None if payload is None else self.status.blame(Close, payload)
            )
        elif self.backend.ended:
            # The last worker ended during this call. A thread wakes the caller only once.
            self.poll()

    def poll_for(self, ticket: Ticket) -> None:
        """Do the same as :meth:`poll`, faster if ``ticket`` is a lone step that has just ended."""
        if ticket.alone and not ticket.done and self.backend.take_step(ticket.number):
            ticket.finish(*self._value(ticket))
            self.dispatcher.drop(ticket)
        else:
            self.poll()

    def _account(self, completion: Completion) -> None:
        """Record that some environments have completed their part of a ticket."""
        number, start, stop, payload = completion
        ticket = self.dispatcher.tickets.get(number)
        if ticket is None:
            return  # the call was cancelled, or its ticket dropped after a timeout
        if payload is not None and (ticket.ready is None or ticket.expired):
            if ticket.payload is None:
                ticket.payload = payload
            else:
                ticket.payload.merge(payload)
        ticket.remaining -= stop - start
        if ticket.expired:
            self._free(ticket, range(start, stop), payload)
        elif ticket.ready is not None:
            self._arrive(ticket, range(start, stop), payload)
        if ticket.remaining == 0 and ticket is not self.closing:
            self.end(ticket)
        elif ticket.ended is not None:
            ticket.ended.append(range(start, stop))

    def end(self, ticket: Ticket) -> None:
        """Finish a ticket whose environments have all ended."""
        kind, message = ticket.kind, ticket.message
        if kind is not Step and message.starts:
            recovering = self.recovery.recovering
            self.status.mark_ready(tuple(i for i in ticket.ids if i not in recovering))
        error = None if ticket.payload is None else self.status.blame(kind, ticket.payload)
        value: Any = None
        if kind is Make:
            error = self._open(ticket, error)
        elif ticket.expired or ticket.ready is not None:
            pass  # the results are dropped or received separately; ``blame`` still applies
        elif error is not None:
            if message.writes_rows and self.rows.opened is not None:
                self.rows.opened.batches.note(ticket, ticket.ids, ticket.payload)
        else:
            value, error = self._value(ticket)
        if error is not None and kind is Step and ticket.ready is None:
            for hook in self.hooks.all:
                hook.after_steps_lost(ticket.ids)
        ticket.finish(value, error)
        moves = kind is not Step and message.moves
        if moves:
            # The row keeps its owner until the move is over.
            del self.dispatcher.tickets[ticket.number]
        else:
            self.dispatcher.drop(ticket)
        if self._recycling is not None and self.closing is None:
            if moves:
                self._recycling.advance(ticket)
            elif kind is Step and ticket.ready is None and not ticket.expired:
                self._recycling.on_steps_ended(ticket.ids, ticket)

    def _value(self, ticket: Ticket) -> tuple[Any, BaseException | None]:
        """Build a ticket's value, or return the error that prevented it."""
        opened = self.rows.opened
        try:
            if ticket.kind is Step and opened is not None:
                value = opened.batches.step(ticket)
                number, followed = self.traffic.following
                if number == ticket.number:
                    self.traffic.settle(followed, opened.table.gauges, self.backend.ranges)
                for hook in self.hooks.all if ticket.ids else ():
                    hook.after_step(ticket.number, ticket.ids, value)
                return value, None
            if ticket.message.starts and opened is not None:
                return opened.batches.reset(ticket), None
        except Exception as error:  # the caller's array became read-only, or memory ran out
            return None, error
        values = {} if ticket.payload is None else ticket.payload.values
        return [values.get(i) for i in ticket.ids], None

    def _free(self, ticket: Ticket, ids: Ids, payload: Payload | None) -> None:
        """Release environments that have ended, without waiting for the rest of their ticket."""
        if ticket.message.writes_rows and self.rows.opened is not None:
            self.rows.opened.batches.note(ticket, ids, payload)
        self.dispatcher.release(ticket, ids)

    def _arrive(self, ticket: Ticket, ids: range, payload: Payload | None) -> None:
        """Move ended environments of a sent step to their queue."""
        ready = ticket.ready
        assert ready is not None
        failed: set[int] = set()
        error = None
        if payload is not None and payload.problems:
            for problem in payload.problems:
                failed.update(problem.env_ids)
            error = self.status.blame(Step, payload)
            # A dead worker fails several environments; ``recv`` raises its error once.
            (*_, problem) = payload.problems
            if not isinstance(problem, Failure):
                error = None if problem in ready.losses else error
                ready.losses.append(problem)
            payload.problems.clear()
            payload.take(failed)
        well = tuple(i for i in ids if i not in failed) if failed else ids
        if self.rows.opened is not None:
            self.rows.opened.batches.note(ticket, ids, payload)
            # Before ``release``, which may start the next operation of these environments.
            self.rows.opened.batches.keep_unread(well)
        self.dispatcher.release(ticket, ids)
        if self._recycling is not None:
            self._recycling.on_steps_ended(well, ticket)
        self.sent.arrive(well, ready, payload)
        self.sent.drop(failed.intersection(ids), ready, error)

    def _open(self, ticket: Ticket, error: BaseException | None) -> BaseException | None:
        """Open the environments once they are made, or return why that is impossible."""
        assert ticket.payload is not None
        try:
            self.rows.describe(ticket.payload.values)
            if error is not None:
                return error
            opened = self.rows.open()
        except AgymError as misfit:
            return misfit
        self.dispatcher.open(opened.batches)
        self.backend.attach(opened.table)
        self.traffic.opened = time.monotonic()
        return None

    # ---------------------------------------------------------------- deadlines

    def expire(self) -> float | None:
        """Expire the tickets whose deadline has passed.

        Returns:
            Seconds until the next deadline, ``None`` if there is none.
        """
        if self.dispatcher.deadlines.timeout is None and not self.sent.receivers:
            return None
        now = time.monotonic()
        waiting = [t for t in self.tickets if t.deadline is not None and not t.done]
        for ticket in waiting:
            # An earlier iteration may have ended or suspended this ticket.
            if ticket.deadline is None or ticket.deadline > now or ticket.done:
                continue
            if ticket.kind is Receive:
                ticket.finish()
            else:
                self._miss(ticket)
        ends = [t.deadline for t in waiting if t.deadline is not None and not t.done]
        return min(ends) - time.monotonic() if ends else None

    def _miss(self, ticket: Ticket) -> None:
        """Fail a call that missed its deadline, replace the environments that are late, or both."""
        recovery, deadlines = self.recovery, self.dispatcher.deadlines
        late = ticket.late()
        if ticket.message.slow:
            ticket.deadline = None
            reason = f"did not start within {deadlines.replacement_seconds:g} s"
        else:
            queued = self.dispatcher.queues.waiting(ticket)
            late = [i for i in late if i not in queued and i not in recovery.recovering]
            late, wait = self._without_waiting(late)
            if wait is not None:
                ticket.deadline = wait
                return
            if not late:  # it waits for other operations, which have deadlines, or a replacement
                ticket.suspend()
                return
            can_force = recovery.timeout_ends is not None
            if can_force and recovery.policy.tolerant and ticket.message.writes_rows:
                ticket.suspend()
            else:
                ticket.expire()
                self._give_up(ticket)
            if not can_force:
                return
            reason = f"missed the deadline of {ticket.message.name} ({deadlines.timeout:g} s)"
        for completion in recovery.force(late, ticket, reason):
            self._account(completion)
        self.poll()

    def _without_waiting(self, late: list[int]) -> tuple[list[int], float | None]:
        """Remove environments that the rate limit released less than a timeout ago.

        Returns:
            The late environments; and, if there are none, the time until which to wait.
        """
        timeout = self.dispatcher.deadlines.timeout
        assert timeout is not None  # otherwise nothing can be late
        ends = {i: turn + timeout for i in late if (turn := self.rows.latest_turn(i))}
        now = time.monotonic()
        overdue = [i for i in late if ends.get(i, now) <= now]
        return overdue, None if overdue or not late else min(ends.values())

    def _give_up(self, ticket: Ticket) -> None:
        """Release the environments that met the deadline, and stop waiting for the others."""
        if ticket.ready is None:
            for ids in ticket.ended or ():
                self._free(ticket, ids, ticket.payload)
        else:
            self.sent.drop(ticket.late(), ticket.ready, ticket.error)
