"""Runner: tickets from their dispatch to their end, on one executor.

It decides and mutates state in this one place; it never awaits and never blocks, so that the
sync and the async face share all of it. A call becomes a ticket, a ticket one operation or
several, and outcomes bring the ticket to its end::

    engine -- Ticket --> order --- Operation(s) --> executor --> host
    engine <-- result -- collect <-- recovery <-- Outcome(s) ---'

Each environment runs its operations in the order of dispatch (``core/order.py``); what a fault
means is recovery's to decide (``core/recovery.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from agym.core.arguments import Ids
from agym.core.autoreset import name_of
from agym.core.collect import Collector
from agym.core.health import Health
from agym.core.layout import Layout
from agym.core.making import Factory
from agym.core.operations import (
    ROW_KINDS,
    SENT_PLANE,
    SIDE_PLANE,
    Description,
    Extras,
    Failure,
    Operation,
    Outcome,
    Revival,
)
from agym.core.order import Order
from agym.core.owning import own
from agym.core.ready import Ready
from agym.core.recovery import FaultPolicy, Recovery
from agym.core.recycling import KINDS as RECYCLING_KINDS
from agym.core.recycling import RecyclePolicy, Recycling
from agym.core.rows import Rows
from agym.core.sent import Sent
from agym.core.slots import SlotTable
from agym.core.stats import Traffic
from agym.core.ticket import Ticket
from agym.errors import AgymError, UsageError

# How many deadlines may pass until what takes another's place is made, and how long at least.
REMAKE_DEADLINES, REMAKE_SECONDS = 10, 10.0


class Runs(Protocol):
    """What an engine needs of an executor; see :class:`agym.executors.base.Executor`."""

    @property
    def shared(self) -> bool: ...
    @property
    def replaceable(self) -> bool: ...
    @property
    def factories(self) -> Sequence[Factory]: ...
    @property
    def ranges(self) -> Sequence[range]: ...
    def start(self) -> None: ...
    def attach(self, table: SlotTable) -> None: ...
    def submit(self, operation: Operation) -> None: ...
    def poll(self) -> Sequence[Outcome]: ...
    @property
    def pids(self) -> Sequence[int | None]: ...
    def look(self) -> None: ...
    def end_worker(self, worker: int, reason: str) -> None: ...
    def replace_worker(self, worker: int, number: int) -> None: ...
    def prepare(self, worker: int, number: int) -> None: ...
    def discard(self, worker: int) -> None: ...
    def move(self, worker: int, slot: int, *, back: bool = False) -> None: ...
    def finish(self, worker: int) -> None: ...
    def close(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def disown(self) -> bool: ...
    @property
    def ended(self) -> bool: ...


class Runner:
    """Runs the operations of ``num_envs`` environments.

    Attributes:
        num_envs: Number of environments.
        description: What the environments are like; set when the opening ticket is done.
        table: The slot table; likewise.
        before_step: Called with the ids of a step before it is dispatched, if there is one.
    """

    description: Description
    table: SlotTable
    before_step: Callable[[Ids], None] | None = None

    def __init__(
        self,
        executor: Runs,
        num_envs: int,
        *,
        autoreset: AutoresetMode,
        timeout: float | None = None,
        copy: bool = True,
        policy: FaultPolicy | None = None,
        recycle: RecyclePolicy | None = None,
    ) -> None:
        """Nothing starts before :meth:`open`.

        Args:
            executor: Where the environments live.
            num_envs: Number of environments.
            autoreset: What follows an episode's end.
            timeout: Deadline of one operation, in seconds.
            copy: Give batches away; else views of a plane.
            policy: What is done about faults.
            recycle: When workers are replaced that did nothing wrong.
        """
        self.num_envs = num_envs
        self.autoreset = name_of(autoreset)
        self._executor = executor
        self._timeout = timeout
        self._copy = copy
        self._numbers = count(1)
        self._tickets: dict[int, Ticket] = {}
        self._closing: Ticket | None = None
        self._all = range(num_envs)
        # The plane of the latest full batch; full batches alternate.
        self._plane = 0
        self._order = Order(num_envs)
        self._health = Health(num_envs)
        self._sent = Sent()
        self._traffic = Traffic()
        self._recycling = None if recycle is None else Recycling(recycle, self)
        self._recovery = Recovery(policy or FaultPolicy(), self._health, self)

    # ---------------------------------------------------------------- dispatch

    def _dispatch(
        self,
        kind: str,
        ids: Ids,
        each: list[Any] | None,
        shared: Any = None,
        ready: Ready | None = None,
    ) -> Ticket:
        ticket = Ticket(next(self._numbers), kind, ids)
        if self._timeout is not None:
            ticket.deadline = time.monotonic() + self._timeout
        if self._timeout is not None or self._recovery.policy.tolerant:
            ticket.ended = []
        if kind == "step" and self.before_step is not None:
            self.before_step(ids)
        if ready is not None:
            ticket.plane, ticket.ready = SENT_PLANE, ready
        elif kind in ROW_KINDS:
            if len(ids) == self.num_envs:
                self._plane = 1 - self._plane
                ticket.plane = self._plane
            else:
                ticket.plane = SIDE_PLANE
        self._tickets[ticket.number] = ticket
        operation = Operation(ticket.number, kind, ids[0], ids[-1] + 1, ticket.plane, each, shared)
        ticket.operation = operation
        if kind == "step" and self._order.idle and ready is None:
            self._traffic.dispatch(ticket)
        if ticket.plane >= SIDE_PLANE and self._recovery.policy.tolerant:
            self._collector.keep(ids, ticket.plane)
        if self._order.take_all(ticket):
            self._submit(operation, ticket)
        else:
            for part in self._order.admit(ticket, operation):
                self._submit(part, ticket)
        return ticket

    def _submit(self, operation: Operation, ticket: Ticket) -> None:
        try:
            self._executor.submit(operation)
        except BaseException as error:
            # Arguments that cannot be sent, or Ctrl-C inside a serial step: the call is off.
            if operation.kind in ROW_KINDS and not isinstance(error, AgymError):
                why = f"was interrupted in {operation.kind}"
                self._health.mark_unready(ticket.ids, why)
            ticket.finish(error=error)
            self._order.forget(ticket)
            self._drop(ticket)
            raise

    # ---------------------------------------------------------------- outcomes

    def poll(self) -> None:
        """Take in whatever has ended since; tickets become done."""
        # Asked before the last outcomes are taken: these come first.
        ended = self._closing is not None and self._executor.ended
        recovery, again = self._recovery, True
        while again:
            for outcome in self._executor.poll():
                extras = outcome.extras
                wrong = extras is not None and extras.problems
                if (recovery.attentive or wrong) and self._closing is None:
                    for part in recovery.screen(outcome, self._tickets.get(outcome.number)):
                        self._account(part)
                else:
                    self._account(outcome)
            again, recovery.acted = recovery.acted, False
        if ended and self._closing is not None and not self._closing.done:
            extras = self._closing.extras
            self._closing.finish(
                error=None if extras is None else self._health.blame("close", extras)
            )

    def _account(self, outcome: Outcome) -> None:
        """Some environments have ended their part of a ticket."""
        number, start, stop, extras = outcome
        ticket = self._tickets.get(number)
        if ticket is None:
            return  # its call was off
        if extras is not None and (ticket.ready is None or ticket.expired):
            if ticket.extras is None:
                ticket.extras = extras
            else:
                ticket.extras.merge(extras)
        ticket.remaining -= stop - start
        if ticket.expired:
            self._free(ticket, range(start, stop), extras)
        elif ticket.ready is not None:
            self._arrive(ticket, range(start, stop), extras)
        if ticket.remaining == 0 and ticket is not self._closing:
            self._end(ticket)
        elif ticket.ended is not None:
            ticket.ended.append(range(start, stop))

    def _end(self, ticket: Ticket) -> None:
        """Every environment has ended its part."""
        if ticket.kind == "reset":
            recovering = self._recovery.recovering
            self._health.mark_ready(tuple(i for i in ticket.ids if i not in recovering))
        error = None if ticket.extras is None else self._health.blame(ticket.kind, ticket.extras)
        value: Any = None
        if ticket.expired or ticket.ready is not None:
            pass  # dropped, but what it means for the environments is not; or received apart
        elif ticket.kind == "step":
            value = self._collector.step(ticket)
            if ticket.followed:
                self._traffic.settle(ticket, self.table.gauges, self.ranges)
        elif ticket.kind == "reset":
            value = self._collector.reset(ticket)
        elif ticket.kind == "make":
            error = self._describe(ticket, error)
        elif ticket.extras is not None:
            value = [ticket.extras.values.get(i) for i in ticket.ids]
        ticket.finish(value, error)
        if ticket.kind in RECYCLING_KINDS:
            del self._tickets[ticket.number]  # its row is let go when the move is over
        else:
            self._drop(ticket)
        if self._recycling is not None and self._closing is None:
            if ticket.kind in RECYCLING_KINDS:
                self._recycling.advance(ticket)
            elif ticket.kind == "step" and ticket.ready is None and not ticket.expired:
                self._recycling.settled(ticket.ids, ticket.plane)

    def _drop(self, ticket: Ticket) -> None:
        """Forget a ticket; what waited for its rows goes on."""
        del self._tickets[ticket.number]
        if not self._order.free_all(ticket):
            self._release(ticket, ticket.ids)

    def _release(self, ticket: Ticket, ids: Ids) -> None:
        for part in self._order.release(ticket, ids, self._tickets):
            waiting = self._tickets.get(part.number)
            if waiting is not None:
                with suppress(Exception):  # it is the error of the ticket that waited
                    self._submit(part, waiting)

    def _free(self, ticket: Ticket, ids: Ids, extras: Extras | None) -> None:
        """Environments that have ended need not wait for the others of their ticket."""
        if ticket.kind in ROW_KINDS:
            self._collector.note_some(ticket, ids, extras)
        self._release(ticket, ids)

    def _arrive(self, ticket: Ticket, ids: range, extras: Extras | None) -> None:
        """A part of a step that was sent has ended."""
        ready = ticket.ready
        assert ready is not None
        failed: set[int] = set()
        error = None
        if extras is not None and extras.problems:
            for problem in extras.problems:
                failed.update(problem.env_ids)
            error = self._health.blame("step", extras)
            # A worker that died is told once, not for each of its environments.
            (*_, problem) = extras.problems
            if not isinstance(problem, Failure):
                error = None if problem in ready.losses else error
                ready.losses.append(problem)
            extras.problems.clear()
            extras.take(failed)
        self._free(ticket, ids, extras)
        if self._recycling is not None:
            well = tuple(i for i in ids if i not in failed)
            self._recycling.settled(well, ticket.plane)
        self._sent.arrive([i for i in ids if i not in failed], ready, extras)
        self._sent.drop(failed.intersection(ids), ready, error)

    def _describe(self, ticket: Ticket, error: BaseException | None) -> BaseException | None:
        """All workers have made their environments: compare, and lay out the table."""
        assert ticket.extras is not None
        by_start = sorted(ticket.extras.values.items())
        for start, other in by_start:
            mismatch = by_start[0][1].mismatch(other)
            if mismatch is not None:
                return UsageError(f"environment {start} does not fit: {mismatch}")
        if error is not None:
            return error
        if self._recycling is not None and by_start[0][1].coroutines:
            return UsageError(
                "recycle_episodes and recycle_rss_mb move environments between worker processes,"
                " which coroutine environments cannot do: leave these options out"
            )
        self.description = description = by_start[0][1]
        self.table = SlotTable(
            Layout(description.observation_space),
            Layout(description.action_space),
            self.num_envs,
            final=self.autoreset == "same_step",
            shared=self._executor.shared,
        )
        self._collector = Collector(self.table, copy=self._copy)
        self._rows = Rows(self.table, 0, self.num_envs)
        self._executor.attach(self.table)
        self._traffic.opened = time.monotonic()
        return None

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
        late = recovery.late(ticket)
        if ticket.kind in ("remake", "restart"):
            ticket.deadline = None
            reason = f"did not come up within {self._patience:g} s"
            replaceable = self._executor.replaceable
            for outcome in recovery.overdue(ticket, reason, replaceable=replaceable):
                self._account(outcome)
            self.poll()
            return
        if not late:  # it waits for what is being replaced
            ticket.suspend()
            return
        forceable = self._executor.replaceable or self.coroutines
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

    def _all_tickets(self) -> list[Ticket]:
        return [*self._tickets.values(), *(receiver.ticket for receiver in self._sent.receivers)]

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
    def ranges(self) -> Sequence[range]:
        """The environments of each worker."""
        return self._executor.ranges

    @property
    def factories(self) -> Sequence[Factory]:
        """What makes each environment."""
        return self._executor.factories

    def order(self, kind: str, ids: Ids, each: list[Any] | None = None) -> int:
        """Begin an operation of our own on neighbours, ahead of all that waits."""
        ticket = Ticket(next(self._numbers), kind, ids)
        self._tickets[ticket.number] = ticket
        ticket.operation = Operation(ticket.number, kind, ids[0], ids[-1] + 1, each=each)
        if kind in ("remake", "restart"):
            self._be_patient(ticket)
        if kind not in ("restart", "spare"):  # these come with the worker itself
            self._executor.submit(ticket.operation)
        return ticket.number

    def _be_patient(self, ticket: Ticket) -> None:
        """Give what takes another's place a deadline too: to be made takes longer than a step."""
        if self._timeout is not None:
            ticket.deadline, ticket.ended = time.monotonic() + self._patience, []

    @property
    def _patience(self) -> float:
        return max(REMAKE_SECONDS, REMAKE_DEADLINES * (self._timeout or 0.0))

    def replace_worker(self, worker: int, number: int) -> None:
        """Put another worker in the place of one."""
        if self._recycling is not None:
            self._recycling.forget(worker)
        self._executor.replace_worker(worker, number)

    def end_worker(self, worker: int, reason: str) -> None:
        """End a worker by force."""
        self._executor.end_worker(worker, reason)

    def again(self, ticket: Ticket, start: int, stop: int) -> None:
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
            if ticket.suspended and self._timeout is not None:
                ticket.suspended = False
                ticket.deadline = time.monotonic() + self._timeout

    def last_observation(self, slot: int) -> Any:
        """The last known observation of an environment."""
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
        return own(self._rows.actions(slot, slot + 1, part)[0])

    # ---------------------------------------------------------------- recycling

    @property
    def pids(self) -> Sequence[int | None]:
        """The process of each worker."""
        return self._executor.pids

    def ended_with(self, slot: int, plane: int) -> tuple[bool, bool]:
        """The flags of an environment's row."""
        row = self.table.planes[plane]
        return bool(row.terminated[slot]), bool(row.truncated[slot])

    def seize(self, slot: int, number: int) -> bool:
        """Hold back what an environment is to do next, unless it has begun."""
        if slot in self._recovery.recovering or slot in self._recovery.pending:
            return False
        return self._order.seize(slot, self._tickets[number])

    def let_go(self, slot: int, number: int) -> None:
        """Let it go on."""
        holder = self._order.owner(slot)
        if holder is not None and holder.number == number:
            self._release(holder, (slot,))

    def prepare(self, worker: int, number: int) -> None:
        """Start a spare for a worker."""
        self._executor.prepare(worker, number)

    def discard(self, worker: int) -> None:
        """End a spare that took nothing over."""
        self._executor.discard(worker)

    def move(self, worker: int, slot: int, *, back: bool = False) -> None:
        """What is sent to an environment from now on goes to the spare."""
        self._executor.move(worker, slot, back=back)

    def finish(self, worker: int) -> None:
        """The spare is the worker now."""
        self._recovery.restarts[worker] += 1
        self._executor.finish(worker)

    def takeover(self, slot: int) -> Revival:
        """What the new environment takes over, whatever comes next."""
        return self._recovery.takeover(slot)

    def not_taken_over(self, failure: Failure) -> None:
        """The new environment failed; the old one is gone."""
        self._recovery.mend(failure)

    def warn(self, notice: str) -> None:
        """Warn the caller."""
        self._recovery.incidents.notices.append(notice)
