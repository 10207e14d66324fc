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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    SENT_PLANE,
    SIDE_PLANE,
    Death,
    Description,
    Extras,
    Failure,
    Operation,
    Outcome,
)
from agym.core.order import Order
from agym.core.ready import Ready
from agym.core.results import Batch
from agym.core.slots import SlotTable
from agym.core.ticket import Ticket
from agym.errors import AgymError, BusyError, ClosedError, ResetNeededError, UsageError

# How long a worker may take to close its environments, then to end, before the next resort.
GRACE_SECONDS = (5.0, 1.0, 1.0)


@dataclass(eq=False)
class Receiver:
    """A call that waits for a batch of so many environments."""

    ready: Ready
    count: int
    ticket: Ticket


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
        self._retired: set[int] = set()
        # Open, not closing, and every environment alive and reset: nothing to check before a step.
        self._fine = False
        # Whose step was sent, and not received yet; and calls that wait to receive.
        self._sent: dict[int, Ready] = {}
        self._receivers: list[Receiver] = []

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
        for ticket in [*self._tickets.values(), *(r.ticket for r in self._receivers)]:
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
        ids, each = self._write(actions, env_ids)
        if env_ids is not None and [*ids] != [*env_ids]:
            raise UsageError(f"env_ids of a step must ascend, as its results do: {env_ids!r}")
        return self._dispatch("step", ids, each)

    def _write(self, actions: Any, env_ids: Sequence[int] | None) -> tuple[Ids, list[Any] | None]:
        """Check that environments can step, and write their actions, given in any order."""
        ids = given = parse_env_ids(env_ids, self.num_envs)
        if not (self._fine and self._order.idle):
            self._check(ids)
            self._check_steppable(ids)
        if env_ids is not None:
            given = tuple(int(i) for i in env_ids)
        each = write_actions(self.table.action, self.table.actions, actions, given)
        if each is not None and env_ids is not None:
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
        if self._sent:
            self.poll()
            for i in parse_env_ids(env_ids, self.num_envs):
                if i in self._sent:
                    raise BusyError(
                        f"the last step that was sent to environment {i} has not been received:"
                        " recv() it before the next"
                    )
        ids, each = self._write(actions, env_ids)
        ready.flying += len(ids)
        self._sent.update(dict.fromkeys(ids, ready))
        try:
            self._dispatch("step", ids, each, ready=ready)
        except BaseException:
            self._forget_sent(ids)
            raise

    def expect(self, ready: Ready, count: int, timeout: float | None) -> Receiver:
        """Begin to wait for a batch: its ticket is done when there is one, or time is up.

        Raises:
            UsageError: Nothing was sent that has not been received.
        """
        self._check(())
        self.poll()
        if not ready.left and not ready.errors:
            raise UsageError("there is nothing to receive: send(actions) first")
        ticket = Ticket(next(self._numbers), "recv", ())
        if timeout is not None:
            ticket.deadline = time.monotonic() + timeout
        receiver = Receiver(ready, count, ticket)
        if ready.has(count):
            ticket.finish()
        self._receivers.append(receiver)
        return receiver

    def receive(self, receiver: Receiver, most: int | None) -> Batch | None:
        """Take a batch; ``None`` if another call was quicker, and it is worth waiting again.

        Raises:
            EnvError: An environment raised; what the others did is there for the next call.
        """
        self._receivers.remove(receiver)
        receiver.ticket.result()
        ready = receiver.ready
        if ready.errors:
            raise ready.errors.popleft()
        deadline = receiver.ticket.deadline
        in_time = deadline is None or time.monotonic() < deadline
        if in_time and not (ready.ids and ready.has(receiver.count)):
            return None
        ids, extras = ready.take(most)
        for i in ids:
            del self._sent[i]
        return self._collector.batch(ids, extras)

    def forget(self, receiver: Receiver) -> None:
        """A call that waited gave up; nothing was taken."""
        if receiver in self._receivers:
            self._receivers.remove(receiver)

    def _forget_sent(self, ids: Iterable[int]) -> None:
        """Nothing will come of these steps."""
        for i in ids:
            self._sent.pop(i).flying -= 1

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
        options, masked = take_mask(options, self.num_envs)
        if masked is not None and isinstance(seed, Sequence | np.ndarray):
            seed = [seed[i] for i in masked] if len(seed) == self.num_envs else seed
        given = masked if env_ids is None else env_ids
        ids = parse_env_ids(given, self.num_envs)
        seeds = parse_seeds(seed, ids, given)
        self._check(ids)
        ticket = self._dispatch("reset", ids, seeds, options)
        ticket.about = about or self._all
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

    def retire(self, env_id: int) -> Ticket:
        """Close one environment, behind what it has to do; it takes nothing any more."""
        self._check((env_id,))
        ticket = self._dispatch("retire", (env_id,), None)
        self._retired.add(env_id)
        self._fine = False
        return ticket

    # ---------------------------------------------------------------- checks

    def _check(self, ids: Ids) -> None:
        if self._closing is not None:
            raise ClosedError("the environments are closed: make new ones")
        if not hasattr(self, "table"):
            raise ClosedError(
                "the environments are not open yet: use `async with` or `await` first"
            )
        if self._retired:
            for i in ids:
                if i in self._retired:
                    raise ClosedError(f"environment {i} is closed: leave it out of env_ids")
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
            if extras is not None and (ticket.ready is None or ticket.expired):
                if ticket.extras is None:
                    ticket.extras = extras
                else:
                    ticket.extras.merge(extras)
            ticket.remaining -= stop - start
            if ticket.expired:
                self._free(ticket, range(start, stop), extras)
            elif ticket.ready is not None:
                self._arrive(ticket.ready, ticket, range(start, stop), extras)
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
            self._submit(part, self._tickets[part.number])

    def _free(self, ticket: Ticket, ids: Ids, extras: Extras | None) -> None:
        """Environments that have ended need not wait for the others of their ticket."""
        if ticket.kind in ROW_KINDS:
            self._collector.note_some(ticket, ids, extras)
        self._release(ticket, ids)

    def _arrive(self, ready: Ready, ticket: Ticket, ids: range, extras: Extras | None) -> None:
        """A part of a step that was sent has ended."""
        failed: set[int] = set()
        if extras is not None and extras.problems:
            for problem in extras.problems:
                failed.update(problem.env_ids if isinstance(problem, Death) else [problem.env_id])
            # A worker that died is told once, not for each of its environments.
            known = extras.problems[0] in self._dead.values()
            error = self._blame("step", extras)
            if error is not None and not known:
                ready.errors.append(error)
            extras.problems.clear()
        self._free(ticket, ids, extras)
        ready.arrive(ids, failed, extras)
        for i in failed.intersection(ids):
            del self._sent[i]
        self._tell_receivers()

    def _tell_receivers(self) -> None:
        for receiver in self._receivers:
            if receiver.ready.has(receiver.count):
                receiver.ticket.finish()

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
        self._fine = not (self._unready or self._dead or self._retired or self._closing)

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
        if self._timeout is None and not self._receivers:
            return None
        now = time.monotonic()
        tickets = [*self._tickets.values(), *(receiver.ticket for receiver in self._receivers)]
        waiting = [t for t in tickets if t.deadline is not None and not t.done]
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
            assert ticket.error is not None
            self._forget_sent(ticket.late())
            ticket.ready.errors.append(ticket.error)
            self._tell_receivers()
