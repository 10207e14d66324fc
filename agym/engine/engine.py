"""The engine: the state machine between an API and a backend, for sync and async callers alike.

This module has the calls: what each checks before it sends anything, and what it sends. Runner
(``engine/runner.py``) takes the results in. Nothing here awaits or blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from agym._system.defer_signals import Interruptible
from agym._system.fork_safety import abandon_in_forks
from agym.engine.actions import Cut, write_actions
from agym.engine.batches.out_target import OutTarget, RolloutBuffer
from agym.engine.batches.ready import ReadyQueue
from agym.engine.batches.results import Batch
from agym.engine.deadlines import RunnerWithDeadlines
from agym.engine.hooks.throttle import Throttle
from agym.engine.receive import Receiver
from agym.engine.stats import Stats
from agym.engine.ticket import Receive, Ticket
from agym.errors import BusyError, ClosedError, UsageError
from agym.protocol.arguments import Ids, parse_env_ids, parse_seeds, runs, take_mask
from agym.protocol.messages.operations import (
    CLOSE,
    OPEN,
    Close,
    CloseEnv,
    Make,
    Message,
    Operation,
    Recreate,
    Render,
    Reset,
    Restart,
    Step,
)
from agym.protocol.messages.resets import Options, PerEnvOptions

CLOSED = "the environments are closed: make new ones"
NOT_OPEN = "the environments are not open yet: use `async with` or `await` first"
FORKED = (
    "these environments belong to the process that this one was forked from, and are usable"
    " there alone: make new ones here"
)

STEPPING = (
    "environment {} is still stepping: wait for that step (await it, or let its thread finish)"
    " before the next"
)

# Seconds for workers to close, to terminate and to be killed; then the same for ``fast_close``.
GRACE_SECONDS = (5.0, 1.0, 1.0)
FAST_CLOSE_SECONDS = (1.0, 0.3, 0.3)


class Engine(RunnerWithDeadlines):
    """Runs ``num_envs`` environments on one backend, for an API.

    Attributes:
        fast_close: Wait only briefly for environments when closing, since the program is ending.
    """

    fast_close = False

    _forked = False

    # Splits batches of actions that are passed on unchanged; ``None`` to check them instead.
    _cut: Cut | None = None

    # The statistics at the moment of closing.
    _last_stats: Stats | None = None

    # ---------------------------------------------------------------- life

    def open(self) -> Ticket:
        """Start the workers, which make the environments."""
        ticket = self._tickets[OPEN] = Ticket(OPEN, Make, self._all)
        abandon_in_forks(self)
        self._backend.start()
        self.poll()
        return ticket

    def closing(self) -> Iterator[tuple[Ticket, float]]:
        """Ask the workers to close, then terminate them, then kill them.

        Yields:
            The ticket to wait for, and how many seconds at most before the next measure.
        """
        if self._closing is not None:
            return
        if self._backend.finalized:
            self.discard()
            return
        if self.opened:
            self._last_stats = self.stats_reader()()
        self._status.all_ready = False
        for ticket in self._all_tickets():
            ticket.finish(error=ClosedError("the environments were closed meanwhile"))
        self._closing = self._tickets[CLOSE] = Ticket(CLOSE, Close, self._all)
        resorts = (self._backend.close, self._backend.terminate, self._backend.kill)
        seconds = FAST_CLOSE_SECONDS if self.fast_close else GRACE_SECONDS
        for resort, grace in zip(resorts, seconds, strict=True):
            resort()
            self.poll()
            yield self._closing, grace
            if self._closing.done:
                return

    def release(self) -> None:
        """Release the slot table. The caller's views of it keep its memory alive."""
        self._tickets.clear()  # late completions are dropped
        for name in ("table", "_buffers", "_batches", "_rows"):
            vars(self).pop(name, None)

    def forget_calls(self) -> None:
        """Drop all calls under way without finishing them: the interpreter is shutting down."""
        self._tickets.clear()
        self._sent.receivers.clear()

    def discard(self) -> None:
        """Mark the engine closed without closing anything: the interpreter is shutting down."""
        self.forget_calls()
        self._status.all_ready = False
        self._closing = Ticket(CLOSE, Close, ())
        self._closing.done = True

    def abandon(self) -> None:
        """Mark the engine closed in a forked child, which does not have the workers."""
        if not self._backend.abandon():
            return
        self._forked = True
        self._status.all_ready = False
        self._closing = Ticket(CLOSE, Close, ())
        for ticket in (*self._all_tickets(), self._closing):
            ticket.done = True  # no callbacks: whoever waits for it is in the parent
            ticket.error = None if ticket is self._closing else ClosedError(FORKED)
        self._tickets.clear()

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        return self._closing is not None

    def is_closed(self, env_id: int) -> bool:
        """Whether an environment is closed, alone or with all others."""
        return self.closed or env_id in self._status.closed_envs

    # ---------------------------------------------------------------- calls

    def step(self, actions: Any, env_ids: Sequence[int] | None = None, out: Any = None) -> Ticket:
        """Step all environments, or some of them.

        Raises:
            UsageError: Wrong number, shape or dtype of actions, only a part of a group, or an
                ``out`` that cannot take the result.
            BusyError: An environment has a step in flight, or one that was not received.
            ResetNeededError: An environment must be reset first.
        """
        if self._at_once and env_ids is None and out is None:
            with Interruptible():
                ticket = self.step_at_once(actions)
            if ticket is not None:
                return ticket
        target = None if out is None else self._check_out(out, env_ids)
        ids, each = self._write(actions, env_ids)
        if env_ids is not None and [*ids] != [*env_ids]:
            raise UsageError(f"env_ids of a step must ascend, as its results do: {env_ids!r}")
        if not ids:
            return self._complete_empty(Step, out=target)
        if self.hooks:
            self.hooks.before_step(ids)  # what a hook dispatches gets a lower number
        return self._dispatch(Step(self._choose_plane(ids, target), each), ids, out=target)

    def step_at_once(self, actions: Any) -> Ticket | None:
        """Step all environments synchronously, if the backend can and nothing else is under way.

        This skips the queues of a normal dispatch. Ctrl-C may interrupt it anywhere, after which
        the environments must be reset.

        Returns:
            ``None`` if a normal dispatch is needed. Nothing was done then.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
        """
        usual = self._at_once and self._status.all_ready and self._scheduler.idle
        if not usual or self.hooks or self._sent.queues:
            return None
        table = self.table
        each = write_actions(table.action, table.actions, actions, self._all, self._cut)
        return self._run_at_once(each)

    def _write(self, actions: Any, env_ids: Sequence[int] | None) -> tuple[Ids, list[Any] | None]:
        """Check that the environments can step, and write their actions, in any order of ids."""
        ids: Ids = self._all if env_ids is None else parse_env_ids(env_ids, self.num_envs)
        if (
            self._closing
            or self._sent.queues
            or not (self._status.all_ready and self._scheduler.idle)
        ):
            self._check(ids)
            self._check_steppable(ids)
        if len(ids) < self.num_envs:
            self._check_groups(Step, ids)
        given = ids if env_ids is None else tuple(int(i) for i in env_ids)
        table = self.table
        each = write_actions(table.action, table.actions, actions, given, self._cut)
        if each is not None and given != ids:
            by_id = dict(zip(given, each, strict=True))
            each = [by_id[i] for i in ids]
        return ids, each

    def hand_on_actions(self, cut: Cut) -> None:
        """Pass actions on unchanged, as Gymnasium's vector environments do.

        Args:
            cut: Splits a batch into one action per environment.
        """
        self._cut = cut

    def allow_unreset_step(self) -> None:
        """Allow steps before the first reset, as Gymnasium's vector environments do."""
        self._status.mark_ready(self._all)

    def send(self, actions: Any, env_ids: Sequence[int] | None, ready: ReadyQueue) -> None:
        """Step environments, in any order of ids; each enters ``ready`` when its step has ended.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
            BusyError: An environment has a step in flight, or one that was not received.
            ResetNeededError: An environment must be reset first.
        """
        if env_ids is not None and not len(env_ids):
            return  # a send/recv loop with no environments left
        self._check(())
        self.poll()
        ids, each = self._write(actions, env_ids)
        self._sent.add(ids, ready)
        try:
            if self.hooks:
                self.hooks.before_step(ids)
            plane = self._batches.choose_sent_plane(ids)
            self._dispatch(Step(plane, each, sent=True), ids, ready=ready)
        except BaseException:
            self._sent.drop(ids, ready)
            raise

    def expect(self, ready: ReadyQueue, count: int, timeout: float | None) -> Receiver:
        """Begin to wait for a batch: the ticket is done when there is one, or on timeout.

        Raises:
            NothingSentError: There is no step that was sent and not received.
        """
        self._check(())
        self.poll()
        ticket = Ticket(next(self._numbers), Receive, ())
        if timeout is not None:
            ticket.deadline = time.monotonic() + timeout
        return self._sent.wait(ready, count, ticket)

    def receive(self, receiver: Receiver, most: int | None) -> Batch | None:
        """Take a batch; ``None`` if another call took it and there is time to wait again.

        Raises:
            EnvError: An environment raised. The results of the others stay for the next call.
        """
        receiver.ticket.result()
        self._check(())
        taken = self._sent.take(receiver, most)
        if taken is None:
            return None
        batch = self._batches.batch(*taken)
        if self.hooks:
            self.hooks.after_step(None, tuple(taken[0]), batch)
        return batch

    def cancel_receive(self, receiver: Receiver) -> None:
        """Stop waiting for a batch."""
        self._sent.leave(receiver)

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: Options = None,
        env_ids: Sequence[int] | None = None,
        *,
        about: Ids | None = None,
        out: Any = None,
    ) -> Ticket:
        """Reset all environments, or some of them.

        Args:
            seed: See :func:`~agym.protocol.arguments.parse_seeds`.
            options: For all environments, where a ``reset_mask`` selects environments; or
                ``PerEnvOptions``, for single environments and this reset only.
            env_ids: The environments, ``None`` for all.
            about: The environments whose latest observations to return, ``None`` for all.
            out: Arrays for these observations.

        Raises:
            UsageError: A seed, an id, the mask or ``out`` is invalid.
        """
        target = None if out is None else self._check_out(out, about)
        masked = None
        if not isinstance(options, PerEnvOptions):
            options, masked, seed = take_mask(options, self.num_envs, seed)
        given = masked if env_ids is None else env_ids
        ids = parse_env_ids(given, self.num_envs)
        seeds = parse_seeds(seed, ids, given)
        self._check(ids)
        about = about or self._all
        if not ids:
            return self._complete_empty(Reset, about, target)
        self._check_groups(Reset, ids, seeds)
        self._recovery.fault_log.note_reset(ids, seeds, options)
        plane = self._choose_plane(ids, target)
        ticket = self._dispatch(Reset(plane, seeds, options), ids, out=target)
        ticket.about = about
        self._status.mark_ready(ids)  # a step may be sent before the reset has ended
        return ticket

    def rollout_buffer(self, steps: int) -> RolloutBuffer:
        """Make memory for some steps, which hosts write into directly.

        Raises:
            UsageError: Observations have no fixed size.
        """
        self._check(())
        flying = {ticket.plane for ticket in self._tickets.values()}
        return self._buffers.make(steps, self._batches.in_use | flying)

    def ask(self, message: Message, env_ids: Sequence[int] | None = None) -> Ticket:
        """Dispatch a message whose result is a list of values: a render, a call, an attribute."""
        ids = parse_env_ids(env_ids, self.num_envs)
        self._check(ids)
        if not ids:
            return self._complete_empty(type(message))
        self._check_groups(type(message), ids)
        return self._dispatch(message, ids)

    def render_aside(self, ids: Ids) -> Ticket:
        """Render for an observer, and suspend the deadlines of the caller meanwhile."""
        ticket = self.ask(Render(), ids)
        if ticket.deadline is not None and not ticket.done:
            ticket.deadline = time.monotonic() + self._replacement_seconds
            self._asides += 1
            ticket.on_done(self._on_aside_done)
        return ticket

    def _on_aside_done(self) -> None:
        self._asides -= 1
        if not self._asides:
            self.rearm()

    @property
    def ranges(self) -> Sequence[range]:
        """The environments of each worker."""
        return self._backend.ranges

    def holding(self, throttle: Throttle) -> AbstractContextManager[None]:
        """Exclude the time for which a throttle holds a result back from the statistics."""
        return self._traffic.holding(throttle)

    def usable(self, ids: Ids) -> Ids:
        """Return those of some environments that are alive, open and reset."""
        return () if self._closing is not None else self._status.usable(ids)

    def close_env(self, env_id: int) -> Ticket:
        """Close one environment after the operations it has queued. Idempotent."""
        if env_id in self._status.closed_envs:
            self._check(())
            return self._complete_empty(CloseEnv)
        self._check((env_id,))
        self._check_groups(CloseEnv, (env_id,))
        ticket = self._dispatch(CloseEnv(), (env_id,))
        self._status.close_env(env_id)
        return ticket

    def restart(self, env_ids: Sequence[int] | None = None) -> Ticket:
        """Replace environments, by default those that are lost.

        Raises:
            BusyError: An operation of one of them is under way.
        """
        self._check(())
        self.poll()
        if env_ids is None:
            env_ids = sorted(self._status.lost)
        ids = self._recovery.with_dead_neighbours(parse_env_ids(env_ids, self.num_envs))
        self._check_groups(Restart, ids)
        ticket = Ticket(next(self._numbers), Recreate, ids)
        if not ids:
            ticket.finish([])
            return ticket
        for other in self._tickets.values():
            busy = set(ids).intersection(other.ids).difference(self._status.lost)
            if busy and not other.done:
                raise BusyError(
                    f"environment {min(busy)} is busy with {other.kind.name}: await that first",
                    "restart",
                )
        self._tickets[ticket.number] = ticket
        self._set_replacement_deadline(ticket)
        restores = dict(zip(ids, self._recovery.restart(ids), strict=True))
        for run in runs(ids):
            message = Recreate([restores[i] for i in run])
            self._backend.submit(Operation(ticket.number, run.start, run.stop, message))
        return ticket

    def stats(self) -> Stats:
        """Read the statistics, without waiting for workers or slowing them down.

        Raises:
            ClosedError: The environments were never open, or belong to another process.
        """
        if self._last_stats is not None:
            return self._last_stats
        self._check(())
        self.poll()
        return self.stats_reader()()

    def stats_reader(self) -> Callable[[], Stats]:
        """Return a function that reads the statistics at any time, in any thread."""
        gauges, backend, recovery = self.table.gauges, self._backend, self._recovery
        return lambda: self._traffic.read(
            gauges, backend.ranges, backend.pids, recovery.counts, recovery.restarts
        )

    @property
    def notices(self) -> list[str]:
        """Warnings for the caller; whoever issues them clears the list."""
        return self._recovery.fault_log.notices

    # ---------------------------------------------------------------- checks

    def _check_out(self, out: Any, env_ids: Sequence[int] | None) -> OutTarget:
        self._check(())
        target = self._buffers.check(out, len(parse_env_ids(env_ids, self.num_envs)))
        if target.plane is not None:
            self.poll()
            if any(ticket.plane == target.plane for ticket in self._tickets.values()):
                raise BusyError(
                    "this step of the rollout buffer is still being written: await that first, or"
                    " take another"
                )
        return target

    def check_open(self) -> None:
        """Check that the environments are open.

        Raises:
            ClosedError: They are closed, or not open yet.
        """
        if self._closing is not None:
            raise ClosedError(FORKED if self._forked else CLOSED)
        if not hasattr(self, "table"):
            raise ClosedError(NOT_OPEN)

    def _check(self, ids: Ids) -> None:
        self.check_open()
        self._status.check(ids)

    def _check_groups(
        self, kind: type[Message], ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> None:
        """Refuse what some environments of a group cannot do without the others."""
        reason = self._backend.reason_unsupported(kind, ids, seeds)
        if reason is not None:
            raise UsageError(reason)

    def refuse_in_place(self, env_ids: Sequence[int] | None) -> None:
        """Refuse environments that another thread is stepping in place, without waiting for it.

        Raises:
            BusyError: An environment is being stepped.
        """
        running = self.in_place
        if running is not None:
            for i in parse_env_ids(env_ids, self.num_envs):
                if i in running:
                    raise BusyError(STEPPING.format(i))

    def _check_steppable(self, ids: Ids) -> None:
        self._sent.check(ids)
        if not self._scheduler.idle:
            self.poll()
            busy = self._scheduler.stepping(ids)
            if busy is not None:
                self._backend.check_workers()
                self.poll()
                busy = self._scheduler.stepping(ids)
            if busy is not None:
                raise BusyError(STEPPING.format(busy))
        self._status.check_ready(ids)
