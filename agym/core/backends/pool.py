"""A pool: ports for all environments, as the one backend that the engine sees.

The pool divides environments among workers, and has a port for each (``backends/port.py``). A
worker that ends unexpectedly is reported by a completion with the number ``FAULT`` for its range,
whose problems include a ``WorkerDeath``. Each of its pending operations then completes with that
death, and so do later operations, until another port replaces it.

A worker that is being recycled has a *standby*, which has constructed the same environments and
takes them over one by one. The two count as one worker: if either dies, both are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from multiprocessing.util import Finalize
from typing import Any

from agym.core.backends.options import Recycle
from agym.core.backends.outbox import Outbox
from agym.core.backends.port import BackendOptions, Force, Port
from agym.core.backends.spinning import SpinPolicy
from agym.core.protocol.arguments import Ids, runs
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import WorkerDeath
from agym.core.protocol.messages.operations import Message, Operation, Step
from agym.core.protocol.table import Extension, SlotTable

# Ports of a parent process. A forked child must not collect them, because that would release them.
_INHERITED: list[Any] = []


class Pool:
    """Runs environments on ports.

    Attributes:
        options: The options of the backend.
        ranges: The environments of each worker.
        env_groups: The environments that are one ``VectorEnv`` each, if there are such groups.
        inline: The port that steps all environments in the caller's thread, in one call of its
            ``step_inline``, if the backend supports that.
        spinning: Decides whether a waiting caller spins.
        recycle: When to replace workers with fresh ones, if requested.
        replaceable: Workers can be ended and replaced, one by one.
        watchable: Completions can arrive while the caller's event loop does not turn.
        shared: Workers map the slot table's memory.
        runs_in_caller: Some environments run in the caller's thread, as part of ``submit``.
    """

    env_groups: Sequence[range] = ()
    inline: Any = None
    shared = False
    runs_in_caller = False

    # Whether the ports have ``post_step``, for steps whose actions are all in the table.
    _rings = False

    def __init__(self, options: BackendOptions, kind: type[Port]) -> None:
        """Prepare; :meth:`start` constructs the environments on ports of a ``kind``."""
        self.options = options
        self._num_envs = len(options.factories)
        self.ranges = options.ranges(kind.count(options.spec))
        self.recycle: Recycle | None = getattr(options.spec, "recycle", None)
        self.replaceable = kind.replaceable
        self.watchable = kind.watchable
        self.spinning = SpinPolicy()
        self._kind: Any = kind
        self._outbox: Outbox | None = None if kind.polled else Outbox()
        # By worker; the port of a dead worker stays until it is replaced.
        self._ports: list[Any] = []
        self._standbys: dict[int, Any] = {}
        # The environments that a worker's standby has taken over.
        self._moved: dict[int, set[int]] = {}
        # Replaced ports, to be released when no thread sleeps on their descriptors.
        self._replaced: list[Any] = []
        # The port of each range of environments; and the sources of completions: the ports in use,
        # or their outbox.
        self._routes: list[tuple[Any, range]] = []
        self._sources: list[Any] = [] if self._outbox is None else [self._outbox]
        self._completions: list[Completion] = []
        self._table: SlotTable | None = None
        self._parked = False
        self._closing = False
        # Released at :meth:`release`, at garbage collection or at exit, whichever is first. None of
        # these objects may refer to the pool: it would then never be garbage.
        self._resources: list[Any] = []
        self._closers: list[Callable[[], None]] = []
        if self._outbox is not None:
            self._closers.append(self._outbox.close)
        self._end = Finalize(self, _end, (self._resources, self._closers), exitpriority=10)

    # ---------------------------------------------------------------- starting and ending workers

    def start(self, number: int = ops.OPEN) -> None:
        """Start the workers concurrently; each one's completion has the given number."""
        # Pack everything first: if a message cannot be pickled, no worker has started yet.
        makes = [self._ready(worker, number, ops.Make()) for worker in range(len(self.ranges))]
        for worker, make in enumerate(makes):
            self._ports.append(self._open(worker, make))
        self._arrange()

    def _ready(self, worker: int, number: int, message: ops.Make) -> tuple[Any, ...]:
        """Return the arguments that start a port: the operation that makes its environments."""
        ids = self.ranges[worker]
        return (Operation(number, ids.start, ids.stop, message),)

    def _port(self, worker: int) -> Any:
        return self._kind(worker, self.ranges[worker], self.options, self._outbox)

    def _open(self, worker: int, make: tuple[Any, ...]) -> Any:
        port = self._port(worker)
        port.record(make[0])
        port.start(*make)
        self._resources.append(port)
        if self._table is not None:
            port.attach(self._table)
        if self._parked:
            port.park()
        return port

    def attach(self, table: SlotTable) -> None:
        """Give the hosts the table whose rows they fill, before any operation."""
        self._table = table
        for port in self._ports:
            port.attach(table)

    def extend(self, extension: Extension) -> None:
        """Give the hosts planes that were added to the table, before operations on them."""

    def shrink(self, extension: Extension) -> None:
        """Tell the hosts that planes were removed from the table."""

    def _living(self) -> list[Any]:
        living = [port for port in self._ports if port.death is None]
        return [*living, *self._standbys.values()]

    def _arrange(self) -> None:
        """Note which port has which environments, after any change."""
        self._routes.clear()
        for port in self._ports:
            moved = self._moved.get(port.worker, ())
            standby = self._standbys.get(port.worker)
            stay = (i for i in port.ids if i not in moved)
            self._routes += [(standby, run) for run in runs(tuple(sorted(moved)))]
            self._routes += [(port, run) for run in runs(tuple(stay) if moved else port.ids)]
        if self._kind.polled:
            self._sources = self._living()

    # ---------------------------------------------------------------- deaths and replacements

    def end_worker(self, worker: int, reason: str) -> None:
        """End a worker that missed its deadline, and report a ``WorkerDeath``.

        The death is reported at once, even if the system needs time to end the process.
        """
        port = self._ports[worker]
        if port.death is None:
            self._report_death(port, late=reason)

    def replace_worker(self, worker: int, number: int) -> None:
        """Start a replacement for a worker that has ended; its completion has the given number.

        Operations may be submitted at once.
        """
        self._replaced.append(self._ports[worker])
        self._ports[worker] = self._open(worker, self._ready(worker, number, ops.Restart()))
        self._arrange()

    def worker_of(self, env_id: int) -> int:
        """Return the worker of an environment."""
        return next(worker for worker, ids in enumerate(self.ranges) if env_id in ids)

    def workers_of(self, ids: Iterable[int]) -> set[int]:
        """Return the workers of environments."""
        return {self.worker_of(i) for i in ids}

    def running(self, worker: int) -> int | None:
        """Return the environment that a worker is running, if known."""
        running: int | None = self._ports[worker].running
        return running

    @property
    def pids(self) -> Sequence[int | None]:
        """Process id of each worker, ``None`` if it has ended, or runs on another machine."""
        return [None if port.death else port.local_pid for port in self._ports]

    def check_workers(self, ready: Collection[int] | None = None) -> None:
        """Detect workers that ended without waking the caller, if the backend has such workers.

        ``ready`` are the waitables known to be ready; by default all are checked.
        """

    def _report_death(self, port: Any, error: BaseException | None = None, late: str = "") -> None:
        """Report a worker's death, and complete its pending operations with it.

        Args:
            port: The worker's port.
            error: The error that ended it, if known.
            late: Why the worker is ended by force; empty if it is not.
        """
        # End the worker first, so that the look below is the last one: completions that have
        # arrived by then count, and all operations that are still pending fail.
        reason = port.end(error, late, closing=self._closing)
        for source in self._sources:
            self._completions += source.collect()
        ports = [port, *self.discard(port.worker)]
        death = WorkerDeath(
            port.worker,
            port.pid,
            port.exitcode,
            port.ids,
            reason,
            port.doing(),
            port.running,
            late=bool(late),
            cause=error if port.pid is None else None,
            replaceable=port.replaceable,
        )
        port.death = death
        if not self._closing:
            payload = Payload(problems=[death])
            self._completions.append(Completion(ops.FAULT, port.ids.start, port.ids.stop, payload))
        for each in ports:
            self._completions += each.fail(death)
        self._arrange()
        if self._outbox is not None:
            self._outbox.ring()

    # ---------------------------------------------------------------- recycling

    def prepare(self, worker: int, number: int, standby: ops.Standby) -> None:
        """Start a standby for a worker by a message; its completion has the given number.

        Its values are the proofs of how to copy each environment.
        """
        self._standbys[worker] = self._open(worker, self._ready(worker, number, standby))
        self._arrange()

    def move(self, worker: int, slot: int, *, back: bool = False) -> None:
        """Route later operations of an environment to the standby, or back."""
        if worker not in self._standbys:  # gone with its worker, whose death is reported soon
            return
        moved = self._moved.setdefault(worker, set())
        if back:
            moved.discard(slot)
        else:
            moved.add(slot)
        self._arrange()

    def finish(self, worker: int) -> bool:
        """Put the standby in the worker's place, once all environments have moved.

        Returns:
            Whether the standby is still there: it ends with its worker.
        """
        if worker not in self._standbys:
            return False
        del self._moved[worker]
        for late in self._replaced:  # the predecessor has had a worker's lifetime to end
            if late.worker == worker:
                late.kill()
        self._replaced.append(self._ports[worker])
        self._ports[worker] = self._standbys.pop(worker)
        self._arrange()
        return True

    def discard(self, worker: int) -> list[Any]:
        """End a worker's standby, if there is one; return it, because it fails with its worker."""
        standby = self._standbys.pop(worker, None)
        self._moved.pop(worker, None)
        if standby is None:
            return []
        standby.kill()
        self._replaced.append(standby)
        self._arrange()
        return [standby]

    # ---------------------------------------------------------------- operations

    def submit(self, operation: Operation) -> None:
        """Start an operation."""
        number, start, stop, message = operation
        if not self._rings or type(message) is not Step or message.parts is not None:
            self._submit(operation)
            return
        plane, sent = message.plane, message.sent
        for port in self._ports:
            low, high = port.first, port.stop
            if start < high and low < stop:
                if low < start or stop < high:
                    low, high = max(low, start), min(high, stop)
                port.post_step(number, low, high, plane, 1 if sent else high - low)

    def start_step(self, number: int, message: Step) -> None:
        """Start a step of all environments, on a faster path than :meth:`submit`."""
        if not self._rings or message.parts is not None:
            self.submit(Operation(number, 0, self._num_envs, message))
            return
        for port in self._ports:
            port.post_step(number, port.first, port.stop, message.plane, port.size)

    def _submit(self, operation: Operation) -> None:
        """Start an operation, and post each part to its port."""
        for port, ids in self._routes:
            for part in operation.split(ids, sent_by_env=self._kind.splits):
                if port.death is None:
                    port.record(part)
                    port.post(part)
                else:
                    self._refuse(part, port.death)

    def settle(self, number: int, slot: int) -> None:
        """Note that no worker runs an environment's part of an operation anymore."""
        self._ports[self.worker_of(slot)].settle(number, slot, slot + 1)

    def _refuse(self, part: Operation, death: WorkerDeath) -> None:
        """Complete an operation on environments whose worker is gone."""
        self._completions.append(Completion(*part.span, Payload(problems=[death])))

    def poll(self) -> Sequence[Completion]:
        """Return the completions that have arrived since the last call."""
        completions, self._completions = self._completions, []
        for source in self._sources:
            completions += source.collect()
        if self._outbox is not None and self._outbox.ended_early:
            self._completions = completions
            while self._outbox.ended_early:
                port, error = self._outbox.ended_early.popleft()
                if port.death is None:
                    self._report_death(port, error)
            completions, self._completions = self._completions, []
        return completions

    def reason_unsupported(self, message: Message, ids: Ids) -> str | None:
        """Return why some environments cannot run a message without the rest of their group.

        The engine asks before it sends any message, including ``Restart``, except a step of all.
        """
        return None

    # ---------------------------------------------------------------- waiting

    def news(self, envs: int = 1) -> bool:
        """Check quickly whether completions may have arrived, for a caller that spins.

        Args:
            envs: How many environments the caller waits for. A problem in some of them may be
                noticed only after the caller has stopped spinning.
        """
        if self._completions:
            return True
        if self._outbox is not None:
            return self._outbox.news(envs)
        of_all = envs >= self._num_envs
        for port in self._sources:
            if port.news() is not of_all:
                return not of_all
        return of_all

    def crowded_until(self) -> float:
        """Return the time until which the caller or a worker sleeps instead of spinning, or 0.

        By ``perf_counter``; another thread has used their core.
        """
        return self.spinning.crowded_until

    def finished_at(self) -> float:
        """Return when the latest step was finished, by ``perf_counter``, 0 if unknown."""
        return 0.0

    def take_step(self, number: int) -> bool:
        """Accept a step of all environments, if it is complete and there is nothing else.

        Returns:
            Whether it was accepted; if not, :meth:`poll` returns all completions.
        """
        return False

    def waitables(self) -> Mapping[int, int]:
        """Return the file descriptors to sleep on, with masks of ``selectors`` events."""
        # A thread may be asleep on the descriptors of a replaced port at this moment. Closed, their
        # numbers could be reused for other files, and the thread would wait for those. From here on
        # no new sleep includes them, so ``unpark`` after that sleep may release the port.
        for old in self._replaced:
            old.watched = False
        waitables: dict[int, int] = {}
        for source in self._sources:
            waitables.update(source.waitables())
        return waitables

    def on_ring(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, in any thread, when a descriptor becomes readable.

        An event loop that cannot watch descriptors needs this. Without it, the caller looks for
        completions once per second.
        """
        if self._outbox is not None:
            self._outbox.on_ring = callback

    def park(self, envs: int = 1) -> None:
        """Prepare for the caller's sleep on the waitables: completions must wake the caller.

        Args:
            envs: How many environments the caller waits for; a problem must wake it earlier.
        """
        self._parked = True
        for source in self._sources:
            source.park(envs)

    def unpark(self, ready: Collection[int] | None = None) -> None:
        """End the caller's sleep; ``ready`` are the waitables that ended it, if known."""
        self._parked = False
        for source in self._sources:
            source.unpark()
        for old in [*self._replaced]:
            if not old.watched and old.forget():
                self._replaced.remove(old)
                self._resources.remove(old)
        self.check_workers(ready)

    # ---------------------------------------------------------------- closing

    def close(self, force: Force = Force.NONE) -> None:
        """End the hosts.

        Args:
            force: ``NONE`` asks them to finish their queues and close their environments. If they
                have not ended after some seconds, ``TERMINATE`` follows, and then ``KILL``.
        """
        if force is Force.NONE:
            self._closing = True
            for worker in [*self._standbys]:
                self.discard(worker)
        for port in self._ports:
            port.close(force)

    @property
    def ended(self) -> bool:
        """Whether every host has ended."""
        return all(port.ended for port in self._ports)

    def release(self) -> None:
        """Release all resources, once the hosts have ended. Idempotent."""
        if not self.finalized:
            self._end()
            self._table = None
            for port in self._ports:
                port.join()
        self._drop()

    def _drop(self) -> None:
        """Drop all references to ports."""
        self._ports, self._standbys, self._replaced = [], {}, []
        self._sources, self._routes = [], []
        self._rings = False

    @property
    def finalized(self) -> bool:
        """Whether the finalizer has run, perhaps before the owner's ``__del__``."""
        return not self._end.still_active()

    def abandon(self) -> bool:
        """Drop the workers in a forked child, without locks or messages.

        Returns:
            Whether the backend is unusable in the child.
        """
        _INHERITED.append((self._resources, self._closers))
        if self._outbox is not None:
            self._outbox.abandon()
        self._drop()
        return True


def open_pool(options: BackendOptions) -> Any:
    """Create the pool of a backend's options."""
    kind: Any = options.spec.port
    if isinstance(kind, str):
        module, _, name = kind.rpartition(".")
        kind = getattr(import_module(module), name)
    return kind(options) if issubclass(kind, Pool) else Pool(options, kind)


def _end(ports: list[Any], closers: list[Callable[[], None]]) -> None:
    """End the workers without waiting for their environments."""
    for port in ports:
        port.release()
    for close in closers:
        close()
    ports.clear()
    closers.clear()
