"""Engine: the colour-free state machine between a face and an executor.

It decides and mutates state in this one place; it never awaits and never blocks, so that the
sync and the async face share all of it. A call becomes a ticket, a ticket one operation or
several, and outcomes bring the ticket to its end::

    face -- step(actions) --> Ticket --- Operation(s) --> executor --> host
    face <-- ticket.result() -- poll() <-- Outcome(s) ---'

Each environment runs its operations in the order of dispatch (``core/order.py``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from agym.core.actions import write_actions
from agym.core.arguments import Ids, parse_env_ids, parse_seeds, take_mask
from agym.core.collect import Collector
from agym.core.health import Health
from agym.core.layout import Layout
from agym.core.operations import (
    CLOSE,
    OPEN,
    ROW_KINDS,
    SENT_PLANE,
    SIDE_PLANE,
    Death,
    Description,
    Extras,
    Operation,
    Outcome,
)
from agym.core.order import Order
from agym.core.ready import Ready
from agym.core.results import Batch
from agym.core.sent import Receiver, Sent
from agym.core.slots import SlotTable
from agym.core.ticket import Ticket
from agym.errors import AgymError, BusyError, ClosedError, UsageError

# How long a worker may take to close its environments, then to end, before the next resort.
GRACE_SECONDS = (5.0, 1.0, 1.0)


class Runs(Protocol):
    """What an engine needs of an executor; see :class:`agym.executors.base.Executor`."""

    @property
    def shared(self) -> bool: ...
    def start(self) -> None: ...
    def attach(self, table: SlotTable) -> None: ...
    def submit(self, operation: Operation) -> None: ...
    def poll(self) -> Sequence[Outcome]: ...
    def close(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    @property
    def ended(self) -> bool: ...


class Engine:
    """Runs ``num_envs`` environments on one executor.

    Attributes:
        num_envs: Number of environments.
        description: What the environments are like; set when the opening ticket is done.
        table: The slot table; likewise.
    """

    description: Description
    table: SlotTable

    def __init__(
        self,
        executor: Runs,
        num_envs: int,
        *,
        autoreset: AutoresetMode,
        timeout: float | None = None,
        copy: bool = True,
    ) -> None:
        """Nothing starts before :meth:`open`.

        Args:
            executor: Where the environments live.
            num_envs: Number of environments.
            autoreset: What follows an episode's end.
            timeout: Deadline of one operation, in seconds.
            copy: Give batches away; else views of a plane.
        """
        self.num_envs = num_envs
        self._executor = executor
        self._autoreset = autoreset
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

    # ---------------------------------------------------------------- life

    def open(self) -> Ticket:
        """Begin to make the environments."""
        ticket = self._tickets[OPEN] = Ticket(OPEN, "make", self._all)
        self._executor.start()
        self.poll()
        return ticket

    def closing(self) -> Iterator[tuple[Ticket, float]]:
        """Ask the workers to end, then terminate, then kill them.

        Yields:
            What to wait for and for how long at most, before the next resort.
        """
        if self._closing is not None:
            return
        self._health.fine = False
        for ticket in self._all_tickets():
            ticket.finish(error=ClosedError("the environments were closed meanwhile"))
        self._closing = self._tickets[CLOSE] = Ticket(CLOSE, "close", self._all)
        resorts = (self._executor.close, self._executor.terminate, self._executor.kill)
        for resort, grace in zip(resorts, GRACE_SECONDS, strict=True):
            resort()
            self.poll()
            yield self._closing, grace
            if self._closing.done:
                return

    def release(self) -> None:
        """Let go of the slot table. Views of it that the caller has keep its memory alive."""
        self._tickets.clear()  # what still comes has nowhere to go
        vars(self).pop("table", None)
        vars(self).pop("_collector", None)

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        return self._closing is not None

    # ---------------------------------------------------------------- calls

    def step(self, actions: Any, env_ids: Sequence[int] | None = None) -> Ticket:
        """Step every environment, or some of them, each with its action.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
            BusyError: An environment has a step in flight.
            ResetNeededError: An environment must be reset first.
        """
        ids, each = self._write(actions, env_ids)
        if env_ids is not None and [*ids] != [*env_ids]:
            raise UsageError(f"env_ids of a step must ascend, as its results do: {env_ids!r}")
        return self._dispatch("step", ids, each)

    def _write(self, actions: Any, env_ids: Sequence[int] | None) -> tuple[Ids, list[Any] | None]:
        """Check that environments can step, and write their actions, given in any order."""
        ids: Ids = self._all if env_ids is None else parse_env_ids(env_ids, self.num_envs)
        if self._closing or not (self._health.fine and self._order.idle):
            self._check(ids)
            self._check_steppable(ids)
        given = ids if env_ids is None else tuple(int(i) for i in env_ids)
        each = write_actions(self.table.action, self.table.actions, actions, given)
        if each is not None and given != ids:
            by_id = dict(zip(given, each, strict=True))
            each = [by_id[i] for i in ids]
        return ids, each

    def send(self, actions: Any, env_ids: Sequence[int] | None, ready: Ready) -> None:
        """Step environments, in any order; each goes to ``ready`` when it has ended.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
            BusyError: An environment has a step in flight, or a result that was not received.
            ResetNeededError: An environment must be reset first.
        """
        if env_ids is not None and not len(env_ids):
            return  # a loop that has nobody to send on
        self._check(())
        self.poll()
        self._sent.check(parse_env_ids(env_ids, self.num_envs))
        ids, each = self._write(actions, env_ids)
        self._sent.add(ids, ready)
        try:
            self._dispatch("step", ids, each, ready=ready)
        except BaseException:
            self._sent.drop(ids, ready)
            raise

    def expect(self, ready: Ready, count: int, timeout: float | None) -> Receiver:
        """Begin to wait for a batch: its ticket is done when there is one, or time is up.

        Raises:
            NothingSentError: Nothing was sent that has not been received.
        """
        self._check(())
        self.poll()
        ticket = Ticket(next(self._numbers), "recv", ())
        if timeout is not None:
            ticket.deadline = time.monotonic() + timeout
        return self._sent.wait(ready, count, ticket)

    def receive(self, receiver: Receiver, most: int | None) -> Batch | None:
        """Take a batch; ``None`` if another call was quicker, and it is worth waiting again.

        Raises:
            EnvError: An environment raised; what the others did is there for the next call.
        """
        receiver.ticket.result()
        self._check(())
        taken = self._sent.take(receiver, most)
        return None if taken is None else self._collector.batch(*taken)

    def leave(self, receiver: Receiver) -> None:
        """A call that waited has what it wanted, or gave up."""
        self._sent.leave(receiver)

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Sequence[int] | None = None,
        *,
        about: Ids | None = None,
    ) -> Ticket:
        """Reset every environment, or some of them.

        Args:
            seed: See :func:`~agym.core.arguments.parse_seeds`.
            options: For every environment; a ``reset_mask`` among them names environments.
            env_ids: Which environments, ``None`` for all.
            about: Whose latest observations to give, ``None`` for all.

        Raises:
            UsageError: A seed, an id or the mask is not what it should be.
        """
        options, masked, seed = take_mask(options, self.num_envs, seed)
        given = masked if env_ids is None else env_ids
        ids = parse_env_ids(given, self.num_envs)
        seeds = parse_seeds(seed, ids, given)
        self._check(ids)
        ticket = self._dispatch("reset", ids, seeds, options)
        ticket.about = about or self._all
        self._health.mark_ready(ids)  # a step may be sent right behind
        return ticket

    def ask(
        self,
        kind: str,
        shared: Any = None,
        each: list[Any] | None = None,
        env_ids: Sequence[int] | None = None,
    ) -> Ticket:
        """Render, call, get_attr or set_attr: answered with a list of values."""
        ids = parse_env_ids(env_ids, self.num_envs)
        self._check(ids)
        return self._dispatch(kind, ids, each, shared)

    def retire(self, env_id: int) -> Ticket:
        """Close one environment, behind what it has to do; it takes nothing any more."""
        self._check((env_id,))
        ticket = self._dispatch("retire", (env_id,), None)
        self._health.retire(env_id)
        return ticket

    # ---------------------------------------------------------------- checks

    def _check(self, ids: Ids) -> None:
        if self._closing is not None:
            raise ClosedError("the environments are closed: make new ones")
        if not hasattr(self, "table"):
            raise ClosedError(
                "the environments are not open yet: use `async with` or `await` first"
            )
        self._health.check(ids)

    def _check_steppable(self, ids: Ids) -> None:
        if not self._order.idle:
            self.poll()
            busy = self._order.stepping(ids)
            if busy is not None:
                raise BusyError(
                    f"environment {busy} is still stepping: await that step before the next"
                )
        self._health.check_ready(ids)

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
            ticket.ended = []
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
                self._health.interrupt(ticket.ids, operation.kind)
            ticket.finish(error=error)
            self._order.forget(ticket)
            self._drop(ticket)
            raise

    # ---------------------------------------------------------------- outcomes

    def poll(self) -> None:
        """Take in whatever has ended since; tickets become done."""
        # Asked before the last outcomes are taken: these come first.
        ended = self._closing is not None and self._executor.ended
        for number, start, stop, extras in self._executor.poll():
            ticket = self._tickets.get(number)
            if ticket is None:
                continue  # its call was off
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
            elif ticket.deadline is not None:
                ticket.ended.append(range(start, stop))
        if ended and self._closing is not None and not self._closing.done:
            extras = self._closing.extras
            self._closing.finish(
                error=None if extras is None else self._health.blame("close", extras)
            )

    def _end(self, ticket: Ticket) -> None:
        """Every environment has ended its part."""
        if ticket.kind == "reset":
            self._health.mark_ready(ticket.ids)
        error = None if ticket.extras is None else self._health.blame(ticket.kind, ticket.extras)
        value: Any = None
        if ticket.expired or ticket.ready is not None:
            pass  # dropped, but what it means for the environments is not; or received apart
        elif ticket.kind == "step":
            value = self._collector.step(ticket)
        elif ticket.kind == "reset":
            value = self._collector.reset(ticket)
        elif ticket.kind == "make":
            error = self._describe(ticket, error)
        elif ticket.extras is not None:
            value = [ticket.extras.values.get(i) for i in ticket.ids]
        ticket.finish(value, error)
        self._drop(ticket)

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
                failed.update(problem.env_ids if isinstance(problem, Death) else [problem.env_id])
            error = self._health.blame("step", extras)
            # A worker that died is told once, not for each of its environments.
            (*_, problem) = extras.problems
            if isinstance(problem, Death):
                error = None if problem in ready.deaths else error
                ready.deaths.append(problem)
            extras.problems.clear()
            extras.take(failed)
        self._free(ticket, ids, extras)
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
        self.description = description = by_start[0][1]
        self.table = SlotTable(
            Layout(description.observation_space),
            Layout(description.action_space),
            self.num_envs,
            final=self._autoreset is AutoresetMode.SAME_STEP,
            shared=self._executor.shared,
        )
        self._collector = Collector(self.table, copy=self._copy)
        self._executor.attach(self.table)
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
            assert ticket.deadline is not None
            if ticket.deadline > now:
                continue
            if ticket.kind == "recv":
                ticket.finish()
            else:
                ticket.expire()
                self._give_up(ticket)
        return min((t.deadline - now for t in waiting if t.deadline and not t.done), default=None)

    def _give_up(self, ticket: Ticket) -> None:
        """A deadline has passed: those that were in time go on, and nobody waits for the others."""
        if ticket.ready is None:
            for ids in ticket.ended:
                self._free(ticket, ids, ticket.extras)
        else:
            self._sent.drop(ticket.late(), ticket.ready, ticket.error)

    def _all_tickets(self) -> list[Ticket]:
        return [*self._tickets.values(), *(receiver.ticket for receiver in self._sent.receivers)]
