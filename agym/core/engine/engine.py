"""The engine: the calls of an API, sync and async. Nothing here awaits.

APIs use the methods below, and :class:`Life` to open and close; plug-ins use the tap. The other
parts do the work, are private to the engine, and hold no reference to it::

    Dispatcher   sends operations, each as soon as its rows are free
    Collector    takes in completions, and ends calls
    InlineSteps  steps everything in the caller's thread instead
    Recovery     replaces environments and workers after a fault
    Life         opens and closes the environments
    Tap          the interface for plug-ins
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import Any

from agym.core._system.defer_signals import Interruptible
from agym.core.backends.pool import Pool
from agym.core.engine.batches.actions import Cut
from agym.core.engine.batches.out_target import OutTarget, StepBuffer
from agym.core.engine.batches.ready_queue import ReadyQueue
from agym.core.engine.batches.results import Batch, StepResult
from agym.core.engine.batches.sent_steps import Receiver
from agym.core.engine.calls.collector import STEPPING, Collector
from agym.core.engine.calls.dispatcher import Dispatcher
from agym.core.engine.calls.inline import InlineSteps
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.faults.fault_policy import FaultPolicy
from agym.core.engine.faults.recovery import Recovery
from agym.core.engine.life import Life
from agym.core.engine.opened import EnvRows
from agym.core.engine.tap import Tap
from agym.core.hosts.states.codecs import registered
from agym.core.protocol.arguments import Ids, parse_env_ids
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.operations import Message, Step, plain_step
from agym.core.protocol.messages.resets import Options, PerEnvOptions, Seeds, parse_seeds, take_mask
from agym.core.protocol.table import BESIDE
from agym.errors import BusyError, UsageError


class Engine:
    """Runs ``num_envs`` environments on one backend, for an API.

    Attributes:
        num_envs: Number of environments.
        backend: Runs the environments.
        life: Opens and closes them, and describes them.
        hooks: The hooks, called on steps, resets and the caller's waits.
        traffic: Times some steps, and the caller's waits.
        poll: Takes in all completions since the last call; tickets become done.
        expire: Expires the calls whose deadline has passed; returns the seconds until the next one.
        step_inline: Steps all environments in the caller's thread, and returns the result directly
            if possible; see :meth:`InlineSteps.step`. ``None`` if the backend cannot, or recycles.
    """

    def __init__(
        self,
        backend: Pool,
        *,
        timeout: float | None = None,
        copy: bool = True,
        policy: FaultPolicy | None = None,
    ) -> None:
        """Prepare; :meth:`Life.open` starts the workers.

        Args:
            backend: The backend that runs the environments.
            timeout: Deadline of one operation, in seconds.
            copy: Return batches that the caller owns, not views of a plane.
            policy: How faults are handled.
        """
        policy = policy or FaultPolicy()
        recycle = backend.recycle
        resend = policy.tolerant or policy.record_actions or recycle is not None
        self.num_envs = num_envs = len(backend.options.factories)
        self.backend = backend
        self._all = range(num_envs)
        self._dispatcher = dispatcher = Dispatcher(backend, timeout)
        self._status = dispatcher.status
        self._rows = rows = EnvRows(backend, dispatcher, copy=copy, plain=not resend)
        self._recovery = recovery = Recovery(policy, rows)
        recycling = None
        if recycle is not None:
            # Imported here because few programs recycle workers.
            from agym.core.engine.faults.recycling import Recycling

            recycling = Recycling(recycle, rows, recovery)
            recovery.on_replace = recycling.forget_worker
        self._collector = collector = Collector(rows, recovery, recycling)
        self.hooks = collector.hooks
        self.poll = collector.poll
        self.poll_for = collector.poll_for
        self.expire = collector.expire
        self.traffic = collector.traffic
        # The short way for steps needs no deadline, recovery or recycling, and no inline backend.
        followed = timeout is not None or policy.mode != "raise" or recovery.follows
        self._plain = not followed and recycling is None and backend.inline is None
        self.step_inline: Callable[[Any], StepResult[Any] | Ticket | None] | None = None
        if backend.inline is not None and recycling is None:
            self.step_inline = InlineSteps(backend.inline, collector).step
        self.life = Life(collector)

    def tap(self, waiter: Any, pages: list[Any]) -> Tap:
        """Return the interface for plug-ins to the open environments.

        Args:
            waiter: The waiter of the API.
            pages: A list for the live page, which is closed before the environments.
        """
        return Tap(self.ask, self._collector, self.life, waiter, pages)

    def allow_unreset_steps(self, cut: Cut | None = None) -> None:
        """Allow steps before the first reset, like Gymnasium's and SB3's vector environments.

        ``cut`` splits batches of actions that are passed on unchanged.
        """
        self._status.mark_ready(self._all)
        self.life.opened().batches.cut = cut

    # ---------------------------------------------------------------- steps

    def step(self, actions: Any, env_ids: Sequence[int] | None = None, out: Any = None) -> Ticket:
        """Step all environments, or some of them.

        Raises:
            UsageError: Wrong number, shape or dtype of actions, only part of a group, or an ``out``
                that does not fit the result.
            BusyError: An environment has a step in flight, or an unreceived result.
            ResetNeededError: An environment must be reset first.
        """
        if self.step_inline is not None and env_ids is None and out is None:
            with Interruptible():  # the caller may defer signals, but Ctrl-C must reach env code
                outcome = self.step_inline(actions)
            if isinstance(outcome, Ticket):
                return outcome
            if outcome is not None:
                ticket = Ticket(0, plain_step(0), ())
                ticket.finish(outcome)
                return ticket
        if env_ids is None and out is None and (alone := self._step_alone(actions)):
            return alone
        target = self._target(out, env_ids)
        ids, parts = self._write(actions, env_ids)
        if env_ids is not None and [*ids] != [*env_ids]:
            raise UsageError(f"env_ids of a step must be in ascending order: {env_ids!r}")
        for hook in self.hooks.all if ids else ():
            hook.before_step(ids)  # operations that a hook dispatches get a lower number
        assert self._rows.opened is not None
        plane = self._rows.opened.batches.choose_plane(ids, target)
        message = plain_step(plane) if parts is None else Step(plane, parts)
        return self._dispatch(message, ids, plane, out=target)

    def _step_alone(self, actions: Any) -> Ticket | None:
        """Step all environments, if nothing else is under way and the step needs no follow-up.

        Nearly all steps take this path. A training loop evicts this code from the CPU caches
        between two steps, so the path is kept short.
        """
        dispatcher, collector = self._dispatcher, self._collector
        opened = self._rows.opened
        if (
            opened is None
            or dispatcher.tickets
            or not self._status.all_ready
            or not self._plain
            or self.hooks.all
            or collector.sent.queues
        ):
            return None
        parts = opened.batches.write_all(actions)
        plane = opened.batches.choose_plane(self._all)
        message = plain_step(plane) if parts is None else Step(plane, parts)
        number, traffic = next(dispatcher.numbers), self.traffic
        traffic.until_sample -= 1
        if traffic.returned or not traffic.until_sample:
            traffic.start(number)
        return dispatcher.start_alone(number, message)

    def send(self, actions: Any, env_ids: Sequence[int] | None, ready: ReadyQueue) -> None:
        """Step environments, in any order of ids; each enters ``ready`` when its step has ended.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
            BusyError: An environment has a step in flight, or an unreceived result.
            ResetNeededError: An environment must be reset first.
        """
        if isinstance(env_ids, Sized) and not len(env_ids):
            return  # a send/recv loop whose environments have all finished
        sent = self._collector.sent
        self.life.opened()
        self.poll()
        ids, parts = self._write(actions, env_ids)
        sent.add(ids, ready)
        try:
            for hook in self.hooks.all:
                hook.before_step(ids)
            self._dispatch(Step(BESIDE, parts, sent=True), ids, BESIDE, ready)
        except BaseException:
            sent.drop(ids, ready)
            raise
        if self.backend.runs_in_caller:
            # The steps ran inside ``submit``. Another thread may be asleep in ``recv`` for them,
            # and nothing but this poll wakes that thread.
            self.poll()

    def expect(self, ready: ReadyQueue, count: int, deadline: float | None) -> Receiver:
        """Start to wait for a batch: the receiver is done when there is one, or at the deadline.

        Raises:
            NothingSentError: No sent step is waiting to be received.
        """
        self.life.opened()
        self.poll()
        receiver = Receiver(ready, count)
        receiver.deadline = deadline
        self._collector.sent.wait(receiver)
        return receiver

    def leave(self, receiver: Receiver) -> None:
        """End the wait that :meth:`expect` started."""
        self._collector.sent.leave(receiver)

    def receive(self, receiver: Receiver, most: int | None) -> Batch | None:
        """Return a batch; ``None`` if another call took it and there is time to wait again.

        Raises:
            EnvError: An environment raised. The other results stay for the next call.
        """
        receiver.result()
        opened = self.life.opened()
        taken = self._collector.sent.take(receiver, most)
        if taken is None:
            return None
        batch = opened.batches.batch(*taken)
        for hook in self.hooks.all:
            hook.after_step(None, tuple(taken[0]), batch)
        return batch

    # ---------------------------------------------------------------- other calls

    def reset(
        self,
        seed: Seeds = None,
        options: Options = None,
        env_ids: Sequence[int] | None = None,
        *,
        about: Ids | None = None,
        out: Any = None,
    ) -> Ticket:
        """Reset all environments, or some of them.

        Args:
            seed: See :func:`~agym.core.protocol.messages.resets.parse_seeds`.
            options: For all environments, with an optional ``reset_mask`` that selects some; or
                ``PerEnvOptions``, for single environments and this reset only.
            env_ids: The environments, ``None`` for all.
            about: The environments whose latest observations to return, ``None`` for all.
            out: Arrays for these observations.

        Raises:
            UsageError: A seed, an id, the mask or ``out`` is invalid, or ids and a mask are given.
        """
        target = self._target(out, about)
        if not isinstance(options, PerEnvOptions):
            options, env_ids, seed = take_mask(options, self.num_envs, seed, env_ids)
        ids = parse_env_ids(env_ids, self.num_envs)
        seeds = parse_seeds(seed, ids, env_ids)
        message = ops.Reset(BESIDE, seeds, options)
        self._check(message, ids)
        self._recovery.episodes.note_reset(ids, seeds, options)
        return self._start(message, ids, about, target)

    def snapshot(self, env_ids: Sequence[int] | None = None) -> Ticket:
        """Take the states of environments; the value is a list of ``EnvState`` or reasons (str).

        Raises:
            ResetNeededError: An environment was not reset, or has raised since.
        """
        ids = parse_env_ids(env_ids, self.num_envs)
        message = ops.Save([BESIDE] * len(ids), registered())
        self._check(message, ids, ready=True)
        return self._dispatch(message, ids, BESIDE)

    def restore(
        self, states: Sequence[Any], env_ids: Sequence[int] | None, *, about: Ids | None = None
    ) -> Ticket:
        """Continue environments from states, one for each; like :meth:`reset` otherwise."""
        ids = parse_env_ids(env_ids, self.num_envs)
        if env_ids is not None:
            by_id = dict(zip(env_ids, states, strict=True))
            states = [by_id[i] for i in ids]
        message = ops.Load([*states], BESIDE, registered())
        self._check(message, ids)
        self._recovery.episodes.note_load(ids, states)
        self.life.restored |= len(ids) > 0
        return self._start(message, ids, about)

    def _start(
        self, message: Message, ids: Ids, about: Ids | None, out: OutTarget | None = None
    ) -> Ticket:
        """Send a message that starts or continues episodes."""
        assert self._rows.opened is not None
        plane = self._rows.opened.batches.choose_plane(ids, out)
        ticket = self._dispatch(message.at(plane), ids, plane, out=out, about=about or self._all)
        # The reset is queued ahead of any later step of the same environments, so a step may be
        # sent before the reset has ended.
        self._status.mark_ready(ids)
        return ticket

    @property
    def envs_until_wake(self) -> int:
        """How many environments must complete something before the caller has to wake up."""
        tickets = [*self._dispatcher.tickets.values()]  # other threads may begin or end some
        if len(tickets) != 1:
            return 1  # any of the tickets may end first, or free rows that another waits for
        (ticket,) = tickets
        whole = ticket.kind is Step and ticket.ready is None and ticket.deadline is None
        return max(1, ticket.remaining) if whole else 1

    def step_buffer(self, steps: int) -> StepBuffer:
        """Make memory for ``steps`` steps, which hosts write into directly.

        Raises:
            UsageError: Observations have no fixed size.
        """
        opened = self.life.opened()
        flying = {ticket.plane for ticket in self._dispatcher.tickets.values()}
        return opened.buffers.make(steps, opened.batches.in_use | flying)

    def ask(self, message: Message, env_ids: Sequence[int] | None = None) -> Ticket:
        """Dispatch a message that returns a list of values: a render, a call, an attribute."""
        ids = parse_env_ids(env_ids, self.num_envs)
        self._check(message, ids)
        return self._dispatch(message, ids)

    def close_env(self, env_id: int) -> Ticket:
        """Close one environment after its queued operations. Idempotent."""
        if env_id in self._status.closed_envs:
            return self.ask(ops.CloseEnv(), ())
        ticket = self.ask(ops.CloseEnv(), (env_id,))
        self._status.close_env(env_id)
        return ticket

    def restart(self, env_ids: Sequence[int] | None = None) -> Ticket:
        """Replace environments, by default those that are lost.

        Raises:
            BusyError: An operation of such an environment is under way.
        """
        self.life.opened()
        self.poll()
        if env_ids is None:
            env_ids = sorted(self._status.lost)
        ids = self._recovery.with_dead_neighbours(parse_env_ids(env_ids, self.num_envs))
        self._check_groups(ops.Restart(), ids)
        if not ids:
            return self._dispatch(ops.Replace([]), ids)
        for other in self._dispatcher.tickets.values():
            busy = set(ids).intersection(other.ids).difference(self._status.lost)
            if busy and not other.done:
                raise BusyError(
                    f"environment {min(busy)} is busy with {other.message.name}; wait for it first",
                    "restart",
                )
        loads = self._recovery.restart(ids)
        ticket = Ticket(next(self._dispatcher.numbers), ops.Replace([]), ids)
        self._dispatcher.tickets[ticket.number] = ticket
        self._dispatcher.deadlines.start_replacement(ticket)
        try:
            for run, load in loads:
                self.backend.submit(ops.Operation(ticket.number, run.start, run.stop, load))
        except BaseException as error:
            self._dispatcher.call_off(ticket, error)
            raise
        return ticket

    # ---------------------------------------------------------------- progress

    def look_after(self) -> None:
        """Check for dead workers and late calls.

        A caller that sleeps checks them when it wakes. A caller that spins and always gets its
        results in time never sleeps, so it calls this now and then.
        """
        if self._rows.opened is None:
            return
        self.backend.check_workers()
        self.poll()
        self.expire()

    # ---------------------------------------------------------------- checks

    def refuse_in_place(self, env_ids: Sequence[int] | None) -> None:
        """Refuse environments that another thread is stepping inside its call of the backend.

        The caller holds no lock: the other thread keeps the lock for the whole step, so waiting
        for the lock would hide the mistake that this error reports. One read of ``in_place`` is
        atomic, and a stale value only means that the ordinary checks under the lock decide.

        Raises:
            BusyError: An environment is being stepped.
        """
        running = self._dispatcher.in_place
        if running is not None:
            for i in parse_env_ids(env_ids, self.num_envs):
                if i in running:
                    raise BusyError(STEPPING.format(i))

    def _check(self, message: Message, ids: Ids, *, ready: bool = False) -> None:
        """Refuse environments that accept no more operations, or are not ``ready`` to step."""
        self.life.opened()
        self._status.check(ids)
        if ready:
            self._status.check_ready(ids)
        self._check_groups(message, ids)

    def _check_groups(self, message: Message, ids: Ids) -> None:
        """Refuse a message for part of a group that only the whole group supports."""
        reason = self.backend.reason_unsupported(message, ids)
        if reason is not None:
            raise UsageError(reason)

    def _target(self, out: Any, env_ids: Sequence[int] | None) -> OutTarget | None:
        """Check the caller's ``out=``.

        Raises:
            UsageError: The arrays do not fit.
            BusyError: It is a step of a step buffer that is still being written.
        """
        if out is None:
            return None
        count = len(parse_env_ids(env_ids, self.num_envs))
        target = self.life.opened().buffers.check(out, count)
        if target.plane is not None:
            self.poll()
            tickets = self._dispatcher.tickets.values()
            if any(ticket.plane == target.plane for ticket in tickets):
                raise BusyError(
                    "this step of the step buffer is still being written: wait for that step"
                    " first, or use another"
                )
        return target

    # ---------------------------------------------------------------- dispatch

    def _write(self, actions: Any, env_ids: Sequence[int] | None) -> tuple[Ids, list[Any] | None]:
        """Check that the environments can step, and write their actions, in any order of ids."""
        ids: Ids = self._all if env_ids is None else parse_env_ids(env_ids, self.num_envs)
        idle = self._status.all_ready and self._dispatcher.queues.idle
        if not idle or self._collector.sent.queues:
            self.life.opened()
            self._status.check(ids)
            self._collector.check_steppable(ids)
        opened = self._rows.opened
        assert opened is not None  # otherwise the checks above have raised
        if env_ids is None:
            return ids, opened.batches.write_all(actions)
        if len(ids) < self.num_envs:
            self._check_groups(Step(BESIDE), ids)
        return ids, opened.batches.write_some(actions, env_ids, ids)

    def _dispatch(
        self,
        message: Message,
        ids: Ids,
        plane: int = 0,
        ready: ReadyQueue | None = None,
        out: OutTarget | None = None,
        about: Ids = (),
    ) -> Ticket:
        """Send a message; ``plane`` receives the rows that it writes."""
        dispatcher, traffic = self._dispatcher, self.traffic
        ticket = Ticket(next(dispatcher.numbers), message, ids)
        ticket.plane, ticket.ready, ticket.out, ticket.about = plane, ready, out, about
        if plane == BESIDE:
            ticket.planes = {}
        if not ids:  # a call with ``env_ids=[]`` sends nothing
            self._collector.end(ticket)
            return ticket
        if dispatcher.deadlines.timeout is not None or self._recovery.policy.mode != "raise":
            ticket.ended = []
            dispatcher.deadlines.start(ticket)
        if ticket.kind is Step:
            if dispatcher.queues.idle and ready is None:
                traffic.until_sample -= 1
                if traffic.returned or not traffic.until_sample:
                    traffic.start(ticket.number)
        elif message.starts:
            for hook in self.hooks.all:
                hook.after_reset_sent(ticket.number, ids, restored=ticket.kind is ops.Load)
        dispatcher.dispatch(ticket)
        return ticket
