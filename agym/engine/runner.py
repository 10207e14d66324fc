"""The runner: takes each call from its dispatch to its result, on one backend.

A call becomes a ticket. A ticket becomes one operation or several, and their completions end it::

    engine -- Ticket --> scheduler - Operation(s) --> backend --> host
    engine <-- result -- builder <-- recovery <-- Completion(s) ---'

Each environment runs its operations in the order of dispatch (``engine/scheduler.py``). Recovery
decides what a fault means (``engine/faults/recovery.py``). Nothing here awaits or blocks, so that
the sync and the async API share all of it.
"""

from __future__ import annotations

import time
from bisect import bisect
from contextlib import suppress
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from agym._system.defer_signals import Uninterrupted
from agym.backends.base import Backend
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
from agym.hosts.episode import name_of
from agym.hosts.rows import Rows
from agym.protocol.arguments import Ids
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import (
    Close,
    Export,
    Import,
    Make,
    Message,
    Operation,
    Reset,
    Spare,
    Step,
)
from agym.protocol.space_layout import Layout
from agym.protocol.table import SENT_PLANE, SIDE_PLANE, SlotTable

if TYPE_CHECKING:
    from agym.engine.faults.recycling import Recycling


# Messages by which a spare takes environments over from a worker.
RECYCLING_KINDS = frozenset({Spare, Export, Import})


class Runner:
    """Runs the operations of ``num_envs`` environments.

    Attributes:
        num_envs: Number of environments.
        description: The first environment's spaces and metadata; set when the opening ticket is
            done.
        table: The slot table; set at the same time.
        hooks: The hooks, called on steps and resets.
    """

    description: Description
    _described: list[tuple[int, Description]]
    table: SlotTable
    _recovery: Recovery
    _recycling: Recycling | None = None

    # Whether ``_run_at_once`` may step all environments.
    _at_once = False

    # The environments that a call of the backend is stepping at this moment, in any thread.
    in_place: Ids | None = None

    # Whether batches may be leased to the caller, because the engine never reads them again.
    _leases = False

    def __init__(
        self,
        backend: Backend,
        num_envs: int,
        *,
        autoreset: AutoresetMode,
        timeout: float | None = None,
        copy: bool = True,
    ) -> None:
        """Prepare; :meth:`open` starts the workers.

        Args:
            backend: The backend that runs the environments.
            num_envs: Number of environments.
            autoreset: What follows an episode's end.
            timeout: Deadline of one operation, in seconds.
            copy: Give batches away, instead of views of a plane.
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
        self._scheduler = Scheduler(num_envs)
        self._status = EnvStatus(num_envs)
        self._sent = SentSteps()
        self._traffic = Traffic()
        self.hooks = Hooks()
        self._asides = 0

    # ---------------------------------------------------------------- dispatch

    def _choose_plane(self, ids: Ids, out: OutTarget | None) -> int:
        return self._batches.choose_plane(out) if len(ids) == self.num_envs else SIDE_PLANE

    def _dispatch(
        self,
        message: Message,
        ids: Ids,
        ready: ReadyQueue | None = None,
        out: OutTarget | None = None,
    ) -> Ticket:
        kind = type(message)
        ticket = Ticket(next(self._numbers), kind, ids)
        tolerant = self._recovery.policy.tolerant
        if self._timeout is not None or tolerant:
            ticket.ended = []
            if self._timeout is not None:
                ticket.deadline = time.monotonic() + self._timeout
                if self._asides:
                    ticket.suspend()
        if isinstance(message, Step | Reset):
            ticket.plane, ticket.ready, ticket.out = message.plane, ready, out
        if self.hooks and kind is Reset:
            self.hooks.after_reset_sent(ticket.number, ids)
        self._tickets[ticket.number] = ticket
        operation = Operation(ticket.number, ids[0], ids[-1] + 1, message)
        ticket.operation = operation
        if kind is Step and self._scheduler.idle and ready is None:
            self._traffic.dispatch(ticket)
        if tolerant and ticket.plane >= SIDE_PLANE:
            self._batches.keep(ids, ticket.plane)
        if self._scheduler.take_all(ticket):
            self._submit(operation, ticket)
        else:
            for part in self._scheduler.admit(ticket, operation):
                self._submit(part, ticket)
        return ticket

    def _complete_empty(
        self, kind: type[Message], about: Ids = (), out: OutTarget | None = None
    ) -> Ticket:
        """Return the finished ticket of a call with ``env_ids=[]``, which reaches no backend."""
        ticket = Ticket(next(self._numbers), kind, ())
        ticket.about, ticket.out, ticket.plane = about, out, SIDE_PLANE
        collect = {Step: self._batches.step, Reset: self._batches.reset}.get(kind)
        ticket.finish([] if collect is None else collect(ticket))
        return ticket

    def _run_at_once(self, each: list[Any] | None) -> Ticket:
        """Step all environments synchronously; their actions are in the table or in ``each``."""
        ticket = Ticket(next(self._numbers), Step, self._all)
        try:
            ticket.plane = plane = self._batches.choose_plane(None)
            self._traffic.dispatch(ticket)
            self.in_place = self._all
            over = self._backend.step(ticket.number, plane, each)
            self.in_place = None
            if over:
                ticket.value, ticket.error = self._value(ticket)
                ticket.done = True
                if plane > SENT_PLANE:
                    self._batches.planes.give_back(plane)
            else:
                with Uninterrupted():
                    self._tickets[ticket.number] = ticket
                    message = Step(plane, each)
                    ticket.operation = Operation(ticket.number, 0, self.num_envs, message)
                    self._scheduler.take_all(ticket)
                    self.poll()
        except BaseException as error:
            with Uninterrupted():
                self.in_place = None
                self._call_off(ticket, error)
            raise
        return ticket

    def _submit(self, operation: Operation, ticket: Ticket) -> None:
        if ticket.kind is Step:
            self.in_place = ticket.ids
        try:
            self._backend.submit(operation)
        except BaseException as error:
            self._call_off(ticket, error)
            raise
        finally:
            self.in_place = None

    def _call_off(self, ticket: Ticket, error: BaseException) -> None:
        """End a ticket after an error in ``submit``, or after Ctrl-C inside a serial step."""
        if ticket.kind.writes_rows and not isinstance(error, AgymError):
            self._status.mark_unready(ticket.ids, f"was interrupted in {ticket.kind.name}")
        ticket.finish(error=error)
        self._scheduler.forget(ticket)
        self._drop(ticket)

    # ---------------------------------------------------------------- completions

    def poll(self) -> None:
        """Take in all completions since the last call; tickets become done."""
        # Read before the poll, so that completions older than the end are accounted for first.
        ended = self._closing is not None and self._backend.ended
        recovery, resend = self._recovery, True
        while resend:
            for completion in self._backend.poll():
                payload = completion.payload
                wrong = payload is not None and payload.problems
                if payload is not None and payload.schemas:  # even if the rest is dropped
                    self._batches.learn(payload.schemas)
                if (recovery.active or wrong) and self._closing is None:
                    for part in recovery.filter(completion, self._tickets.get(completion.number)):
                        self._account(part)
                else:
                    self._account(completion)
            resend, recovery.dirty = recovery.dirty, False
        if ended and self._closing is not None and not self._closing.done:
            payload = self._closing.payload
            self._closing.finish(
                error=None if payload is None else self._status.blame(Close, payload)
            )

    def _account(self, completion: Completion) -> None:
        """Record that some environments have completed their part of a ticket."""
        number, start, stop, payload = completion
        ticket = self._tickets.get(number)
        if ticket is None:
            return  # the call was cancelled
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
        if ticket.remaining == 0 and ticket is not self._closing:
            self._end(ticket)
        elif ticket.ended is not None:
            ticket.ended.append(range(start, stop))

    def _end(self, ticket: Ticket) -> None:
        """Finish a ticket whose environments have all ended."""
        if ticket.kind is Reset:
            recovering = self._recovery.recovering
            self._status.mark_ready(tuple(i for i in ticket.ids if i not in recovering))
        error = None if ticket.payload is None else self._status.blame(ticket.kind, ticket.payload)
        value: Any = None
        if ticket.kind is Make:
            error = self._describe(ticket, error)
        elif ticket.expired or ticket.ready is not None:
            pass  # the results are dropped or received separately; ``blame`` still applies
        elif error is not None:
            if ticket.kind.writes_rows:
                self._batches.note(ticket)
        else:
            value, error = self._value(ticket)
        ticket.finish(value, error)
        if ticket.kind in RECYCLING_KINDS:
            del self._tickets[ticket.number]  # the row stays owned until the move is over
        else:
            self._drop(ticket)
        if self._recycling is not None and self._closing is None:
            if ticket.kind in RECYCLING_KINDS:
                self._recycling.advance(ticket)
                self._recovery.dirty = True  # operations that it began may have ended already
            elif ticket.kind is Step and ticket.ready is None and not ticket.expired:
                self._recycling.on_steps_ended(ticket.ids, ticket.plane)

    def _value(self, ticket: Ticket) -> tuple[Any, BaseException | None]:
        """Build a ticket's value, or return the error that prevented it."""
        try:
            if ticket.kind is Step:
                value = self._batches.step(ticket)
                if ticket.followed:
                    self._traffic.settle(ticket, self.table.gauges, self._backend.ranges)
                if self.hooks:
                    self.hooks.after_step(ticket.number, ticket.ids, value)
                return value, None
            if ticket.kind is Reset:
                return self._batches.reset(ticket), None
        except Exception as error:  # the caller's array became read-only, or memory ran out
            return None, error
        payload = ticket.payload
        return None if payload is None else [payload.values.get(i) for i in ticket.ids], None

    def _drop(self, ticket: Ticket) -> None:
        """Forget a ticket, and submit the operations that waited for its rows."""
        self._tickets.pop(ticket.number, None)
        if ticket.plane > SENT_PLANE:
            self._batches.planes.give_back(ticket.plane)
        if not self._scheduler.free_all(ticket):
            self._release(ticket, ticket.ids)

    def _release(self, ticket: Ticket, ids: Ids) -> None:
        for part in self._scheduler.release(ticket, ids, self._tickets):
            waiting = self._tickets.get(part.number)
            if waiting is not None:
                if waiting.deadline is not None:  # time spent queueing does not count
                    waiting.suspend()
                self._resume(waiting)
                with suppress(Exception):  # ``_submit`` has stored it in the waiting ticket
                    self._submit(part, waiting)

    def _resume(self, ticket: Ticket) -> None:
        """Start a suspended deadline again."""
        if ticket.suspended and self._timeout is not None:
            ticket.suspended = False
            ticket.deadline = time.monotonic() + self._timeout

    def _free(self, ticket: Ticket, ids: Ids, payload: Payload | None) -> None:
        """Release environments that have ended, without waiting for the rest of their ticket."""
        if ticket.kind.writes_rows:
            self._batches.note_some(ticket, ids, payload)
        self._release(ticket, ids)

    def _arrive(self, ticket: Ticket, ids: range, payload: Payload | None) -> None:
        """Move ended environments of a sent step to their queue."""
        ready = ticket.ready
        assert ready is not None
        failed: set[int] = set()
        error = None
        if payload is not None and payload.problems:
            for problem in payload.problems:
                failed.update(problem.env_ids)
            error = self._status.blame(Step, payload)
            # Report a dead worker once, not for each of its environments.
            (*_, problem) = payload.problems
            if not isinstance(problem, Failure):
                error = None if problem in ready.losses else error
                ready.losses.append(problem)
            elif problem.echo:
                error = None
            payload.problems.clear()
            payload.take(failed)
        self._free(ticket, ids, payload)
        if self._recycling is not None:
            well = tuple(i for i in ids if i not in failed)
            self._recycling.on_steps_ended(well, ticket.plane)
        self._sent.arrive([i for i in ids if i not in failed], ready, payload)
        self._sent.drop(failed.intersection(ids), ready, error)

    def description_of(self, env_id: int) -> Description:
        """Return an environment's description, which is kept once per run of equal ones."""
        return self._described[bisect(self._described, env_id, key=itemgetter(0)) - 1][1]

    def _describe(self, ticket: Ticket, error: BaseException | None) -> BaseException | None:
        """Compare the descriptions from all workers, and lay out the table."""
        assert ticket.payload is not None
        by_start = sorted(ticket.payload.values.items())
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
        self._batches = BatchBuilder(self.table, copy=self._copy, debug=self._debug)
        self._scheduler = Scheduler(self.num_envs, self._backend.env_groups)
        self._rows = Rows(self.table, 0, self.num_envs)
        self._buffers = Buffers(self.table, self._backend, direct=self._leases)
        self._backend.attach(self.table)
        self._traffic.opened = time.monotonic()
        return None

    def _all_tickets(self) -> list[Ticket]:
        return [*self._tickets.values(), *(receiver.ticket for receiver in self._sent.receivers)]
