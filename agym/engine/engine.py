"""The engine: the calls of an API, for sync and async callers alike. Nothing here awaits.

It owns the parts that carry them out, none of which refers back to it::

    Checks      what a call checks before it sends anything
    Dispatcher  sends operations, each as soon as its rows are free
    Collector   takes in completions, and ends calls
    Recovery    what a fault does to the environments
    Life        opening and closing
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from agym._system.defer_signals import Interruptible
from agym.backends.base import Backend
from agym.engine.batches.actions import ActionWriter
from agym.engine.batches.env_rows import EnvRows
from agym.engine.batches.out_target import OutTarget, RolloutBuffer
from agym.engine.batches.ready import ReadyQueue
from agym.engine.batches.results import Batch
from agym.engine.calls.deadlines import Deadlines
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.receive import Receiver
from agym.engine.calls.short_way import ShortWay, Watching
from agym.engine.calls.ticket import Receive, Ticket
from agym.engine.checks import Checks
from agym.engine.collector import Collector
from agym.engine.faults.policy import FaultPolicy
from agym.engine.faults.recovery import Recovery
from agym.engine.hooks.hooks import Hooks
from agym.engine.life import Life
from agym.engine.opening import Opening
from agym.engine.stats import Statistics, Stats
from agym.engine.status import EnvStatus
from agym.errors import UsageError
from agym.hosts.episode import name_of
from agym.hosts.snapshots.codecs import registered
from agym.protocol.arguments import Ids, parse_env_ids, parse_seeds, take_mask
from agym.protocol.messages.operations import (
    CloseEnv,
    Load,
    Message,
    Operation,
    Render,
    Reset,
    Restart,
    Save,
    Step,
)
from agym.protocol.messages.resets import Options, PerEnvOptions
from agym.protocol.table import SIDE_PLANE

# How often to look for dead workers and late calls while the caller never sleeps. A look takes 3 to
# 5 µs per worker.
LOOK_SECONDS = 0.05


class Engine:
    """Runs ``num_envs`` environments on one backend, for an API.

    Attributes:
        num_envs: Number of environments.
        autoreset: What follows an episode's end.
        backend: Runs the environments.
        dispatcher: Sends operations.
        rows: Rows of single environments, and what is known of these.
        recovery: What a fault does to the environments.
        collector: Takes in completions.
        hooks: The hooks, called on steps, resets and the caller's waits.
        checks: What calls check.
        statistics: What ``stats`` returns.
        life: Opens and closes the environments.
        writer: Writes actions.
        inline: The short way of a step in this thread; Ctrl-C may interrupt it anywhere, after
            which the environments must be reset. ``None`` if the backend cannot, or with a
            deadline, recovery or recycling.
        watched: The short way of a step that is watched for its end; ``None`` likewise.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        timeout: float | None = None,
        copy: bool = True,
        policy: FaultPolicy | None = None,
    ) -> None:
        """Prepare; :meth:`Life.open` starts the workers.

        Args:
            backend: The backend that runs the environments.
            timeout: Deadline of one operation, in seconds.
            copy: Give batches away, instead of views of a plane.
            policy: What to do about faults.
        """
        policy = policy or FaultPolicy()
        spares = backend.spares
        recycle = None if spares is None else spares.recycle
        resend = policy.tolerant or policy.record_actions or recycle is not None
        self.num_envs = num_envs = len(backend.options.factories)
        self.autoreset = name_of(backend.options.autoreset)
        self._all = range(num_envs)
        self.backend = backend
        self._status = status = EnvStatus(num_envs)
        self.dispatcher = dispatcher = Dispatcher(backend, num_envs, status, Deadlines(timeout))
        self.rows = rows = EnvRows(dispatcher)
        self.recovery = recovery = Recovery(policy, status, dispatcher, rows, backend)
        recycling = None
        if spares is not None and recycle is not None:
            # A late import, because few programs recycle workers.
            from agym.engine.faults.recycling import Recycling

            recycling = Recycling(recycle, dispatcher, rows, backend, spares, recovery)
            recovery.on_replace = recycling.forget_worker
        opening = Opening.of(
            num_envs, self.autoreset, copy=copy, plain=not resend, recycles=recycling is not None
        )
        self.hooks = Hooks()
        self.collector = Collector(
            opening, backend, dispatcher, rows, status, recovery, recycling, self.hooks
        )
        self.writer = ActionWriter(num_envs)
        self._look_at = 0.0
        self.inline: ShortWay | None = None
        self.watched: ShortWay | None = None
        if timeout is None and not resend:
            short = partial(
                ShortWay,
                writer=self.writer,
                status=status,
                dispatcher=dispatcher,
                collector=self.collector,
                hooks=self.hooks,
            )
            if backend.inline is not None:
                self.inline = short(backend.inline.step_inline, inline=True)
            if backend.watched is not None:
                watching = Watching(backend.watched, dispatcher, self.hooks)
                self.watched = short(watching.run, inline=False)
        self.checks = Checks(backend, status, dispatcher, self.collector)
        self.statistics = Statistics(self.collector.traffic, rows, backend, recovery)
        self.life = Life(
            backend, status, dispatcher, self.collector, self.checks, self.statistics,
            recovery.fault_log,
        )  # fmt: skip

    def allow_unreset_step(self) -> None:
        """Allow steps before the first reset, as Gymnasium's vector environments do."""
        self._status.mark_ready(self._all)

    # ---------------------------------------------------------------- steps

    def step(self, actions: Any, env_ids: Sequence[int] | None = None, out: Any = None) -> Ticket:
        """Step all environments, or some of them.

        Raises:
            UsageError: Wrong number, shape or dtype of actions, only a part of a group, or an
                ``out`` that cannot take the result.
            BusyError: An environment has a step in flight, or one that was not received.
            ResetNeededError: An environment must be reset first.
        """
        if self.inline is not None and env_ids is None and out is None:
            with Interruptible():
                outcome = self.inline.step(actions)
            if outcome is not None:
                return outcome if isinstance(outcome, Ticket) else self.dispatcher.done(outcome)
        target = None if out is None else self.checks.out(out, env_ids, self.num_envs)
        ids, parts = self._write(actions, env_ids)
        if env_ids is not None and [*ids] != [*env_ids]:
            raise UsageError(f"env_ids of a step must ascend, as its results do: {env_ids!r}")
        if not ids:
            return self._complete_empty(Step(SIDE_PLANE), out=target)
        if self.hooks.all:
            self.hooks.before_step(ids)  # what a hook dispatches gets a lower number
        return self._dispatch(Step(self._choose_plane(ids, target), parts), ids, out=target)

    def send(self, actions: Any, env_ids: Sequence[int] | None, ready: ReadyQueue) -> None:
        """Step environments, in any order of ids; each enters ``ready`` when its step has ended.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
            BusyError: An environment has a step in flight, or one that was not received.
            ResetNeededError: An environment must be reset first.
        """
        if env_ids is not None and not len(env_ids):
            return  # a send/recv loop with no environments left
        opened, sent = self.checks.opened(), self.collector.sent
        self.poll()
        ids, parts = self._write(actions, env_ids)
        sent.add(ids, ready)
        try:
            if self.hooks.all:
                self.hooks.before_step(ids)
            plane = opened.batches.choose_sent_plane(ids)
            self._dispatch(Step(plane, parts, sent=True), ids, ready=ready)
        except BaseException:
            sent.drop(ids, ready)
            raise

    def expect(self, ready: ReadyQueue, count: int, timeout: float | None) -> Receiver:
        """Begin to wait for a batch: the ticket is done when there is one, or on timeout.

        Raises:
            NothingSentError: There is no step that was sent and not received.
        """
        self.checks.opened()
        self.poll()
        ticket = self.dispatcher.ticket(Receive(), ())
        if timeout is not None:
            ticket.deadline = time.monotonic() + timeout
        return self.collector.sent.wait(ready, count, ticket)

    def receive(self, receiver: Receiver, most: int | None) -> Batch | None:
        """Take a batch; ``None`` if another call took it and there is time to wait again.

        Raises:
            EnvError: An environment raised. The results of the others stay for the next call.
        """
        receiver.ticket.result()
        opened = self.checks.opened()
        taken = self.collector.sent.take(receiver, most)
        if taken is None:
            return None
        batch = opened.batches.batch(*taken)
        if self.hooks.all:
            self.hooks.after_step(None, tuple(taken[0]), batch)
        return batch

    # ---------------------------------------------------------------- other calls

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
        target = None if out is None else self.checks.out(out, about, self.num_envs)
        masked = None
        if not isinstance(options, PerEnvOptions):
            options, masked, seed = take_mask(options, self.num_envs, seed)
        given = masked if env_ids is None else env_ids
        ids = parse_env_ids(given, self.num_envs)
        seeds = parse_seeds(seed, ids, given)
        self.checks.usable(ids)
        about = about or self._all
        if not ids:
            return self._complete_empty(Reset(SIDE_PLANE), about, target)
        self.checks.groups(Reset(SIDE_PLANE), ids, seeds)
        self.recovery.episodes.note_reset(ids, seeds, options)
        plane = self._choose_plane(ids, target)
        ticket = self._dispatch(Reset(plane, seeds, options), ids, out=target)
        ticket.about = about
        self._status.mark_ready(ids)  # a step may be sent before the reset has ended
        return ticket

    def snapshot(self, env_ids: Sequence[int] | None = None) -> Ticket:
        """Take the states of environments; the value is an ``EnvState`` or a reason for each.

        Raises:
            ResetNeededError: One was not reset, or raised since.
        """
        ids = parse_env_ids(env_ids, self.num_envs)
        self.checks.usable(ids)
        self._status.check_ready(ids)
        self.poll()  # which knows the latest planes
        plane_of = self.checks.opened().batches.plane_of
        planes = []
        for i in ids:
            plane = self.dispatcher.scheduler.last_plane(i)
            planes.append(plane_of(i) if plane is None else plane)
        return self.ask(Save(planes, registered()), ids)

    def restore(
        self, states: Sequence[Any], env_ids: Sequence[int] | None, *, about: Ids | None = None
    ) -> Ticket:
        """Continue environments from states, one for each; like :meth:`reset` otherwise."""
        ids = parse_env_ids(env_ids, self.num_envs)
        if env_ids is not None:
            by_id = dict(zip(env_ids, states, strict=True))
            states = [by_id[i] for i in ids]
        self.checks.usable(ids)
        about = about or self._all
        if not ids:
            return self._complete_empty(Reset(SIDE_PLANE), about)
        self.checks.groups(Load([], SIDE_PLANE), ids)
        self.recovery.episodes.note_load(ids, states)
        self.statistics.restored = True
        plane = self._choose_plane(ids, None)
        ticket = self._dispatch(Load([*states], plane, registered()), ids)
        ticket.about = about
        self._status.mark_ready(ids)
        return ticket

    @property
    def envs_until_wake(self) -> int:
        """How many environments must complete something before there is anything to be done."""
        if len(self.dispatcher.tickets) != 1:
            return 1  # one may end before the others, or leave rows for another
        (ticket,) = self.dispatcher.tickets.values()
        whole = ticket.kind is Step and ticket.ready is None and ticket.deadline is None
        return max(1, ticket.remaining) if whole else 1

    def rollout_buffer(self, steps: int) -> RolloutBuffer:
        """Make memory for some steps, which hosts write into directly.

        Raises:
            UsageError: Observations have no fixed size.
        """
        opened = self.checks.opened()
        flying = {ticket.plane for ticket in self.dispatcher.tickets.values()}
        return opened.buffers.make(steps, opened.batches.in_use | flying)

    def ask(self, message: Message, env_ids: Sequence[int] | None = None) -> Ticket:
        """Dispatch a message whose result is a list of values: a render, a call, an attribute."""
        ids = parse_env_ids(env_ids, self.num_envs)
        self.checks.usable(ids)
        if not ids:
            return self._complete_empty(message)
        self.checks.groups(message, ids)
        return self._dispatch(message, ids)

    def render_aside(self, ids: Ids) -> Ticket:
        """Render for an observer, and suspend the deadlines of the caller meanwhile."""
        ticket = self.ask(Render(), ids)
        self.dispatcher.suspend_during(ticket)
        return ticket

    def lost(self, env_ids: Sequence[int]) -> list[int]:
        """Return those of some environments that are gone, which :meth:`restart` brings back."""
        return [i for i in env_ids if i in self._status.lost]

    def usable(self, ids: Ids) -> Ids:
        """Return those of some environments that are alive, open and reset."""
        return () if self.life.closed else self._status.usable(ids)

    def close_env(self, env_id: int) -> Ticket:
        """Close one environment after the operations it has queued. Idempotent."""
        if env_id in self._status.closed_envs:
            self.checks.opened()
            return self._complete_empty(CloseEnv())
        self.checks.usable((env_id,))
        self.checks.groups(CloseEnv(), (env_id,))
        ticket = self._dispatch(CloseEnv(), (env_id,))
        self._status.close_env(env_id)
        return ticket

    def restart(self, env_ids: Sequence[int] | None = None) -> Ticket:
        """Replace environments, by default those that are lost.

        Raises:
            BusyError: An operation of one of them is under way.
        """
        self.checks.opened()
        self.poll()
        if env_ids is None:
            env_ids = sorted(self._status.lost)
        ids = self.recovery.with_dead_neighbours(parse_env_ids(env_ids, self.num_envs))
        self.checks.groups(Restart(), ids)
        if not ids:
            ticket = self.dispatcher.ticket(Load([]), ids)
            ticket.finish([])
            return ticket
        self.checks.idle(ids, "restart")
        loads = self.recovery.restart(ids)
        ticket = self.dispatcher.ticket(Load([]), ids)
        self.dispatcher.tickets[ticket.number] = ticket
        self.dispatcher.deadlines.start_replacement(ticket)
        for run, load in loads:
            self.backend.submit(Operation(ticket.number, run.start, run.stop, load))
        return ticket

    def stats(self) -> Stats:
        """Read the statistics, without waiting for workers or slowing them down.

        Raises:
            ClosedError: The environments were never open, or belong to another process.
        """
        if self.statistics.last is not None:
            return self.statistics.last
        self.checks.opened()
        self.poll()
        return self.statistics.reader()()

    # ---------------------------------------------------------------- progress

    def poll(self) -> None:
        """Take in all completions since the last call; tickets become done."""
        self.collector.poll()

    def look_after(self) -> None:
        """Notice workers that died and calls that are late, now and then.

        A caller that sleeps notices them as it wakes. One that always finds the results of fast
        environments never sleeps.
        """
        now = time.perf_counter()
        if now < self._look_at or self.rows.opened is None:
            return
        self._look_at = now + LOOK_SECONDS
        if self.backend.supervision is not None:
            self.backend.supervision.check_workers()
        self.poll()
        self.expire()

    def expire(self) -> float | None:
        """Expire the calls whose deadline has passed; return the seconds until the next one."""
        return self.collector.expire()

    # ---------------------------------------------------------------- dispatch

    def _write(self, actions: Any, env_ids: Sequence[int] | None) -> tuple[Ids, list[Any] | None]:
        """Check that the environments can step, and write their actions, in any order of ids."""
        ids: Ids = self._all if env_ids is None else parse_env_ids(env_ids, self.num_envs)
        idle = self._status.all_ready and self.dispatcher.scheduler.idle
        if self.life.closed or self.collector.sent.queues or not idle:
            self.checks.usable(ids)
            self.checks.steppable(ids)
        if len(ids) < self.num_envs:
            self.checks.groups(Step(SIDE_PLANE), ids)
        table = self.checks.opened().table
        if env_ids is None:
            return ids, self.writer.write_all(table, actions)
        return ids, self.writer.write_some(table, actions, env_ids, ids)

    def _choose_plane(self, ids: Ids, out: OutTarget | None) -> int:
        if len(ids) < self.num_envs:
            return SIDE_PLANE
        return self.checks.opened().batches.choose_plane(out)

    def _dispatch(
        self,
        message: Message,
        ids: Ids,
        ready: ReadyQueue | None = None,
        out: OutTarget | None = None,
    ) -> Ticket:
        dispatcher, collector = self.dispatcher, self.collector
        batches = self.checks.opened().batches
        ticket = dispatcher.ticket(message, ids)
        tolerant = self.recovery.policy.tolerant
        if tolerant or dispatcher.deadlines.timeout is not None:
            ticket.ended = []
            dispatcher.deadlines.start(ticket)
        if isinstance(message, Step | Reset | Load) and message.plane is not None:
            ticket.plane, ticket.ready, ticket.out = message.plane, ready, out
        if message.starts and self.hooks.all:
            restored = ticket.kind is Load
            self.hooks.after_reset_sent(ticket.number, ids, restored=restored)
        if ticket.kind is Step and dispatcher.scheduler.idle and ready is None:
            collector.traffic.dispatch(ticket.number)
        if tolerant and ticket.plane >= SIDE_PLANE:
            batches.keep(ids, ticket.plane)
        dispatcher.dispatch(ticket)
        return ticket

    def _complete_empty(
        self, message: Message, about: Ids = (), out: OutTarget | None = None
    ) -> Ticket:
        """Return the finished ticket of a call with ``env_ids=[]``, which reaches no backend."""
        batches = self.checks.opened().batches
        ticket = self.dispatcher.ticket(message, ())
        ticket.about, ticket.out, ticket.plane = about, out, SIDE_PLANE
        collect = {Step: batches.step, Reset: batches.reset}.get(ticket.kind)
        ticket.finish([] if collect is None else collect(ticket))
        return ticket
