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
from itertools import count
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.core.actions import write_actions
from agym.core.arguments import Ids, parse_env_ids, parse_seeds, take_mask
from agym.core.collect import Collector
from agym.core.layout import Layout
from agym.core.operations import (
    CLOSE,
    OPEN,
    ROW_KINDS,
    Death,
    Description,
    Extras,
    Failure,
    Operation,
    Outcome,
)
from agym.core.order import Order
from agym.core.slots import SIDE_PLANE, SlotTable
from agym.core.ticket import Ticket
from agym.errors import AgymError, BusyError, ClosedError, ResetNeededError, UsageError

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
        # By environment: why it cannot step, and how its worker died.
        self._unready: dict[int, str] = dict.fromkeys(self._all, "has not been reset yet")
        self._dead: dict[int, Death] = {}
        # Open, not closing, and every environment alive and reset: nothing to check before a step.
        self._fine = False

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
        self._fine = False
        for ticket in list(self._tickets.values()):
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
        ids: Ids = self._all
        if env_ids is not None:
            ids = parse_env_ids(env_ids, self.num_envs)
            if list(ids) != list(env_ids):
                raise UsageError(f"env_ids of a step must ascend, as its actions do: {env_ids!r}")
        if not (self._fine and self._order.idle):
            self._check(ids)
            self._check_steppable(ids)
        each = write_actions(self.table.action, self.table.actions, actions, ids)
        return self._dispatch("step", ids, each)

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Sequence[int] | None = None,
        *,
        narrow: bool = False,
    ) -> Ticket:
        """Reset every environment, or some of them.

        Args:
            seed: See :func:`~agym.core.arguments.parse_seeds`.
            options: For every environment; a ``reset_mask`` among them names environments.
            env_ids: Which environments, ``None`` for all.
            narrow: Give only their observations, not the latest ones of all environments.

        Raises:
            UsageError: A seed, an id or the mask is not what it should be.
        """
        options, masked = take_mask(options, self.num_envs)
        if masked is not None and isinstance(seed, Sequence | np.ndarray):
            seed = [seed[i] for i in masked] if len(seed) == self.num_envs else seed
        given = masked if env_ids is None else env_ids
        ids = parse_env_ids(given, self.num_envs)
        seeds = parse_seeds(seed, ids, given)
        self._check(ids)
        ticket = self._dispatch("reset", ids, seeds, options)
        ticket.narrow = narrow
        self._mark_ready(ids)  # a step may be sent right behind
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

    # ---------------------------------------------------------------- checks

    def _check(self, ids: Ids) -> None:
        if self._closing is not None:
            raise ClosedError("the environments are closed: make new ones")
        if not hasattr(self, "table"):
            raise ClosedError(
                "the environments are not open yet: use `async with` or `await` first"
            )
        if self._dead:
            for i in ids:
                if i in self._dead:
                    raise self._dead[i].to_exception()

    def _check_steppable(self, ids: Ids) -> None:
        if not self._order.idle:
            self.poll()
            busy = self._order.stepping(ids)
            if busy is not None:
                raise BusyError(
                    f"environment {busy} is still stepping: await that step before the next"
                )
        if self._unready:
            unready = [i for i in ids if i in self._unready]
            if unready:
                raise ResetNeededError(
                    f"environment {unready[0]} {self._unready[unready[0]]}: call"
                    f" reset(env_ids={unready[:8]}{'...' if len(unready) > 8 else ''}) first"
                )

    # ---------------------------------------------------------------- dispatch

    def _dispatch(self, kind: str, ids: Ids, each: list[Any] | None, shared: Any = None) -> Ticket:
        ticket = Ticket(next(self._numbers), kind, ids)
        if self._timeout is not None:
            ticket.deadline = time.monotonic() + self._timeout
        if kind in ROW_KINDS:
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
                reason = f"was interrupted in {operation.kind}"
                self._unready.update(dict.fromkeys(ticket.ids, reason))
                self._fine = False
            ticket.finish(error=error)
            self._drop(ticket)
            raise

    # ---------------------------------------------------------------- outcomes

    def poll(self) -> None:
        """Take in whatever has ended since; tickets become done."""
        for number, start, stop, extras in self._executor.poll():
            ticket = self._tickets.get(number)
            if ticket is None:
                continue  # its call was off
            if extras is not None:
                if ticket.extras is None:
                    ticket.extras = extras
                else:
                    ticket.extras.merge(extras)
            ticket.remaining -= stop - start
            if ticket.expired:
                self._free(ticket, range(start, stop))
            if ticket.remaining == 0 and ticket is not self._closing:
                self._end(ticket)
            elif ticket.deadline is not None:
                ticket.ended += (range(start, stop),)
        if self._closing is not None and not self._closing.done and self._executor.ended:
            extras = self._closing.extras
            self._closing.finish(error=None if extras is None else self._blame("close", extras))

    def _end(self, ticket: Ticket) -> None:
        """Every environment has ended its part."""
        if ticket.kind == "reset":
            self._mark_ready(ticket.ids)
        error = None if ticket.extras is None else self._blame(ticket.kind, ticket.extras)
        value: Any = None
        if ticket.expired:
            pass  # the answer is dropped; what it means for the environments is not
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
            self._submit(part, self._tickets[part.number])

    def _free(self, ticket: Ticket, ids: Ids) -> None:
        """Environments that have ended their part of an expired ticket need not wait for others."""
        if ticket.kind in ROW_KINDS:
            self._collector.note_some(ticket, ids)
        self._release(ticket, ids)

    def _blame(self, kind: str, extras: Extras) -> BaseException | None:
        """Turn what went wrong into the error to raise, and remember what it means."""
        problems = extras.problems
        if kind == "close":  # a worker that is dead is closed
            problems = [problem for problem in problems if isinstance(problem, Failure)]
        if not problems:
            return None
        self._fine = False
        for problem in problems:
            if isinstance(problem, Death):
                self._dead.update(dict.fromkeys(problem.env_ids, problem))
            elif problem.operation in ROW_KINDS:
                self._unready[problem.env_id] = f"raised in its last {problem.operation}"
        errors = [problem.to_exception() for problem in problems]
        if len(errors) == 1:
            return errors[0]
        if kind == "make":
            errors[0].add_note(f"{len(errors) - 1} more constructors failed in other workers")
            return errors[0]
        return ExceptionGroup(f"{len(errors)} environments failed in {kind}", errors)

    def _mark_ready(self, ids: Ids) -> None:
        for i in ids:
            self._unready.pop(i, None)
        self._fine = not (self._unready or self._dead or self._closing)

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
        if self._timeout is None:
            return None
        now = time.monotonic()
        waiting = [t for t in self._tickets.values() if t.deadline is not None and not t.done]
        for ticket in waiting:
            assert ticket.deadline is not None
            if ticket.deadline <= now:
                ticket.expire()
                for ids in ticket.ended:
                    self._free(ticket, ids)
        return min((t.deadline - now for t in waiting if t.deadline and not t.done), default=None)
