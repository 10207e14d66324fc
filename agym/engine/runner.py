"""Runner: tickets from their dispatch to their end, on one backend.

It decides and mutates state in this one place; it never awaits and never blocks, so that the
sync and the async face share all of it. A call becomes a ticket, a ticket one operation or
several, and outcomes bring the ticket to its end::

    engine -- Ticket --> order --- Operation(s) --> backend --> host
    engine <-- result -- collect <-- recovery <-- Completion(s) ---'

Each environment runs its operations in the order of dispatch (``engine/scheduler.py``); what a
fault means is recovery's to decide (``engine/faults/recovery.py``).
"""

from __future__ import annotations

import time
from bisect import bisect
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from gymnasium.vector import AutoresetMode

from agym._system.defer_signals import Uninterrupted
from agym.backends.options import Recycle
from agym.engine.batches.builder import BatchBuilder
from agym.engine.batches.debugging import is_debugging
from agym.engine.batches.out_target import Buffers, OutTarget
from agym.engine.batches.ready import ReadyQueue
from agym.engine.faults.recovery import Recovery
from agym.engine.hooks.hooks import Hooks
from agym.engine.receive import SentSteps
from agym.engine.scheduler import Scheduler
from agym.engine.stats import Traffic
from agym.engine.status import EnvStatus
from agym.engine.ticket import Ticket
from agym.errors import AgymError, SpaceMismatchError, UsageError
from agym.hosts.base import Factory
from agym.hosts.episode import name_of
from agym.hosts.rows import Rows
from agym.protocol.arguments import Ids
from agym.protocol.messages import (
    RECYCLING_KINDS,
    ROW_KINDS,
    SENT_PLANE,
    SIDE_PLANE,
    Completion,
    Description,
    Failure,
    Operation,
    Payload,
)
from agym.protocol.space_layout import Layout
from agym.protocol.table import Extension, SlotTable

if TYPE_CHECKING:
    from agym.engine.faults.recycling import Recycling


class Runs(Protocol):
    """What an engine needs of an backend; see :class:`agym.backends.base.Backend`."""

    @property
    def shared(self) -> bool: ...
    @property
    def replaceable(self) -> bool: ...
    @property
    def env_groups(self) -> Sequence[range]: ...
    @property
    def recycle(self) -> Recycle | None: ...
    def reason_unsupported(
        self, kind: str, ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> str | None: ...
    @property
    def factories(self) -> Sequence[Factory]: ...
    @property
    def ranges(self) -> Sequence[range]: ...
    def start(self) -> None: ...
    def attach(self, table: SlotTable) -> None: ...
    @property
    def extensible(self) -> bool: ...
    @property
    def immediate(self) -> bool: ...
    def step(self, number: int, plane: int, each: list[Any] | None = None) -> bool: ...
    def extend(self, extension: Extension) -> None: ...
    def shrink(self, extension: Extension) -> None: ...
    def submit(self, operation: Operation) -> None: ...
    def poll(self) -> Sequence[Completion]: ...
    @property
    def pids(self) -> Sequence[int | None]: ...
    def check_workers(self) -> None: ...
    def end_worker(self, worker: int, reason: str) -> None: ...
    def replace_worker(self, worker: int, number: int) -> None: ...
    def running(self, worker: int) -> int | None: ...
    def prepare(self, worker: int, number: int) -> None: ...
    def discard(self, worker: int) -> None: ...
    def move(self, worker: int, slot: int, *, back: bool = False) -> None: ...
    def finish(self, worker: int) -> None: ...
    def close(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def abandon(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    @property
    def forgotten(self) -> bool: ...


class Runner:
    """Runs the operations of ``num_envs`` environments.

    Attributes:
        num_envs: Number of environments.
        description: What the first environment is like; set when the opening ticket is done.
        table: The slot table; likewise.
        listeners: Who is told of steps and resets.
    """

    description: Description
    _described: list[tuple[int, Description]]
    table: SlotTable
    _recovery: Recovery
    _recycling: Recycling | None = None

    # Whether steps of all environments can be done by ``_run_at_once``.
    _at_once = False

    # What is being stepped at this moment, before the call that does so returns.
    in_place: Ids | None = None

    # Whether the caller may have the memory that hosts write into: nobody else reads it again.
    _leases = False

    def __init__(
        self,
        backend: Runs,
        num_envs: int,
        *,
        autoreset: AutoresetMode,
        timeout: float | None = None,
        copy: bool = True,
    ) -> None:
        """Nothing starts before :meth:`open`.

        Args:
            backend: Where the environments live.
            num_envs: Number of environments.
            autoreset: What follows an episode's end.
            timeout: Deadline of one operation, in seconds.
            copy: Give batches away; else views of a plane.
        """
        self.num_envs = num_envs
        self.autoreset = name_of(autoreset)
        self._backend = backend
        self._timeout = timeout
        self._copy = copy
        self._debug = is_debugging()
        self._numbers = count(1)
        self._tickets: dict[int, Ticket] = {}
        self._closing: Ticket | None = None
        self._all = range(num_envs)
        self._order = Scheduler(num_envs)
        self._status = EnvStatus(num_envs)
        self._sent = SentSteps()
        self._traffic = Traffic()
        self.listeners = Hooks()
        self._looks = 0

    # ---------------------------------------------------------------- dispatch

    def _dispatch(
        self,
        kind: str,
        ids: Ids,
        each: list[Any] | None,
        shared: Any = None,
        ready: ReadyQueue | None = None,
        out: OutTarget | None = None,
    ) -> Ticket:
        if self.listeners and kind == "step":
            self.listeners.before_step(ids)  # what it begins is older
        ticket = Ticket(next(self._numbers), kind, ids)
        tolerant = self._recovery.policy.tolerant
        if self._timeout is not None or tolerant:
            ticket.ended = []
            if self._timeout is not None:
                ticket.deadline = time.monotonic() + self._timeout
                if self._looks:
                    ticket.suspend()
        if ready is not None:
            ticket.plane, ticket.ready = self._collector.place_sent(ids), ready
        elif kind in ROW_KINDS:
            if out is not None:
                ticket.out = out
            if len(ids) == self.num_envs:
                ticket.plane = self._collector.place(out)
            else:
                ticket.plane = SIDE_PLANE
        if self.listeners and kind == "reset":
            self.listeners.after_reset_sent(ticket.number, ids)
        self._tickets[ticket.number] = ticket
        operation = Operation(ticket.number, kind, ids[0], ids[-1] + 1, ticket.plane, each, shared)
        ticket.operation = operation
        if kind == "step" and self._order.idle and ready is None:
            self._traffic.dispatch(ticket)
        if tolerant and ticket.plane >= SIDE_PLANE:
            self._collector.keep(ids, ticket.plane)
        if self._order.take_all(ticket):
            self._submit(operation, ticket)
        else:
            for part in self._order.admit(ticket, operation):
                self._submit(part, ticket)
        return ticket

    def _ask_nobody(self, kind: str, about: Ids = (), out: OutTarget | None = None) -> Ticket:
        """Give the empty result of a call with ``env_ids=[]``; no environment notices it."""
        ticket = Ticket(next(self._numbers), kind, ())
        ticket.about, ticket.out, ticket.plane = about, out, SIDE_PLANE
        collect = {"step": self._collector.step, "reset": self._collector.reset}.get(kind)
        ticket.finish([] if collect is None else collect(ticket))
        return ticket

    def _run_at_once(self, each: list[Any] | None) -> Ticket:
        """Step all environments, whose actions are in the table or in ``each``."""
        ticket = Ticket(next(self._numbers), "step", self._all)
        try:
            ticket.plane = plane = self._collector.place(None)
            self._traffic.dispatch(ticket)
            self.in_place = self._all
            over = self._backend.step(ticket.number, plane, each)
            self.in_place = None
            if over:
                ticket.value, ticket.error = self._value(ticket)
                ticket.done = True
                if plane > SENT_PLANE:
                    self._collector.planes.give_back(plane)
            else:
                with Uninterrupted():
                    self._tickets[ticket.number] = ticket
                    ticket.operation = Operation(
                        ticket.number, "step", 0, self.num_envs, plane, each
                    )
                    self._order.take_all(ticket)
                    self.poll()
        except BaseException as error:
            with Uninterrupted():
                self.in_place = None
                self._call_off(ticket, error)
            raise
        return ticket

    def _submit(self, operation: Operation, ticket: Ticket) -> None:
        if operation.kind == "step":
            self.in_place = ticket.ids
        try:
            self._backend.submit(operation)
        except BaseException as error:
            self._call_off(ticket, error)
            raise
        finally:
            self.in_place = None

    def _call_off(self, ticket: Ticket, error: BaseException) -> None:
        """Arguments that cannot be sent, or Ctrl-C inside a serial step."""
        if ticket.kind in ROW_KINDS and not isinstance(error, AgymError):
            self._status.mark_unready(ticket.ids, f"was interrupted in {ticket.kind}")
        ticket.finish(error=error)
        self._order.forget(ticket)
        self._drop(ticket)

    # ---------------------------------------------------------------- outcomes

    def poll(self) -> None:
        """Take in whatever has ended since; tickets become done."""
        # Asked before the last outcomes are taken: these come first.
        ended = self._closing is not None and self._backend.ended
        recovery, resend = self._recovery, True
        while resend:
            for outcome in self._backend.poll():
                extras = outcome.extras
                wrong = extras is not None and extras.problems
                if extras is not None and extras.schemas:  # whatever becomes of the rest
                    self._collector.learn(extras.schemas)
                if (recovery.active or wrong) and self._closing is None:
                    for part in recovery.filter(outcome, self._tickets.get(outcome.number)):
                        self._account(part)
                else:
                    self._account(outcome)
            resend, recovery.dirty = recovery.dirty, False
        if ended and self._closing is not None and not self._closing.done:
            extras = self._closing.extras
            self._closing.finish(
                error=None if extras is None else self._status.blame("close", extras)
            )

    def _account(self, outcome: Completion) -> None:
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
            self._status.mark_ready(tuple(i for i in ticket.ids if i not in recovering))
        error = None if ticket.extras is None else self._status.blame(ticket.kind, ticket.extras)
        value: Any = None
        if ticket.kind == "make":
            error = self._describe(ticket, error)
        elif ticket.expired or ticket.ready is not None:
            pass  # dropped, but what it means for the environments is not; or received apart
        elif error is not None:
            if ticket.kind in ROW_KINDS:
                self._collector.note(ticket)
        else:
            value, error = self._value(ticket)
        ticket.finish(value, error)
        if ticket.kind in RECYCLING_KINDS:
            del self._tickets[ticket.number]  # its row is let go when the move is over
        else:
            self._drop(ticket)
        if self._recycling is not None and self._closing is None:
            if ticket.kind in RECYCLING_KINDS:
                self._recycling.advance(ticket)
                self._recovery.dirty = True  # what it began may have ended
            elif ticket.kind == "step" and ticket.ready is None and not ticket.expired:
                self._recycling.settled(ticket.ids, ticket.plane)

    def _value(self, ticket: Ticket) -> tuple[Any, BaseException | None]:
        """What a ticket gives, or why that cannot be had; in either case it has ended."""
        try:
            if ticket.kind == "step":
                value = self._collector.step(ticket)
                if ticket.followed:
                    self._traffic.settle(ticket, self.table.gauges, self._backend.ranges)
                if self.listeners:
                    self.listeners.after_step(ticket.number, ticket.ids, value)
                return value, None
            if ticket.kind == "reset":
                return self._collector.reset(ticket), None
        except Exception as error:  # the caller's array went read-only, or no memory is left
            return None, error
        extras = ticket.extras
        return None if extras is None else [extras.values.get(i) for i in ticket.ids], None

    def _drop(self, ticket: Ticket) -> None:
        """Forget a ticket; what waited for its rows goes on."""
        self._tickets.pop(ticket.number, None)
        if ticket.plane > SENT_PLANE:
            self._collector.planes.give_back(ticket.plane)
        if not self._order.free_all(ticket):
            self._release(ticket, ticket.ids)

    def _release(self, ticket: Ticket, ids: Ids) -> None:
        for part in self._order.release(ticket, ids, self._tickets):
            waiting = self._tickets.get(part.number)
            if waiting is not None:
                if waiting.deadline is not None:  # what it has waited for is not its own delay
                    waiting.suspend()
                self._resume(waiting)
                with suppress(Exception):  # it is the error of the ticket that waited
                    self._submit(part, waiting)

    def _resume(self, ticket: Ticket) -> None:
        """Set a deadline anew that was suspended."""
        if ticket.suspended and self._timeout is not None:
            ticket.suspended = False
            ticket.deadline = time.monotonic() + self._timeout

    def _free(self, ticket: Ticket, ids: Ids, extras: Payload | None) -> None:
        """Environments that have ended need not wait for the others of their ticket."""
        if ticket.kind in ROW_KINDS:
            self._collector.note_some(ticket, ids, extras)
        self._release(ticket, ids)

    def _arrive(self, ticket: Ticket, ids: range, extras: Payload | None) -> None:
        """A part of a step that was sent has ended."""
        ready = ticket.ready
        assert ready is not None
        failed: set[int] = set()
        error = None
        if extras is not None and extras.problems:
            for problem in extras.problems:
                failed.update(problem.env_ids)
            error = self._status.blame("step", extras)
            # A worker that died is told once, not for each of its environments.
            (*_, problem) = extras.problems
            if not isinstance(problem, Failure):
                error = None if problem in ready.losses else error
                ready.losses.append(problem)
            elif problem.echo:
                error = None
            extras.problems.clear()
            extras.take(failed)
        self._free(ticket, ids, extras)
        if self._recycling is not None:
            well = tuple(i for i in ids if i not in failed)
            self._recycling.settled(well, ticket.plane)
        self._sent.arrive([i for i in ids if i not in failed], ready, extras)
        self._sent.drop(failed.intersection(ids), ready, error)

    def description_of(self, env_id: int) -> Description:
        """What an environment is like; the rest of those that read alike have the first's."""
        return self._described[bisect(self._described, env_id, key=itemgetter(0)) - 1][1]

    def _describe(self, ticket: Ticket, error: BaseException | None) -> BaseException | None:
        """All workers have made their environments: compare, and lay out the table."""
        assert ticket.extras is not None
        by_start = sorted(ticket.extras.values.items())
        for start, other in by_start:
            mismatch = by_start[0][1].mismatch(other)
            if mismatch is not None:
                return SpaceMismatchError(f"environment {start} does not fit: {mismatch}")
        if error is not None:
            return error
        if self._recycling is not None and by_start[0][1].coroutines:
            return UsageError(
                "recycle= moves environments between worker processes, which coroutine environments"
                " cannot do: leave it out"
            )
        self._described = by_start
        self.description = description = by_start[0][1]
        self.table = SlotTable(
            Layout(description.observation_space),
            Layout(description.action_space),
            self.num_envs,
            final=self.autoreset == "same_step",
            leases=self._leases,
            shared=self._backend.shared,
        )
        self._collector = BatchBuilder(self.table, copy=self._copy, debug=self._debug)
        self._order = Scheduler(self.num_envs, self._backend.env_groups)
        self._rows = Rows(self.table, 0, self.num_envs)
        self._buffers = Buffers(self.table, self._backend, direct=self._leases)
        self._backend.attach(self.table)
        self._traffic.opened = time.monotonic()
        return None

    def _all_tickets(self) -> list[Ticket]:
        return [*self._tickets.values(), *(receiver.ticket for receiver in self._sent.receivers)]
