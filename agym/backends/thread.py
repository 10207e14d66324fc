"""Thread: environments run in threads of this process, for those that wait or release the GIL.

A worker thread runs the same loop as a worker process, but operations come through a queue instead
of a mailbox, since nothing has to be packed within one process. Only this thread touches its
environments, from their construction until they are closed.

A thread cannot be killed. A thread that misses a deadline is abandoned, and a new one replaces it.
Once its environment returns, the abandoned thread may write no row; its completions are dropped.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence

from agym._system.pygame_support import lock_polygons
from agym.backends.base import BackendOptions, Force, RunningHost, close_host, closed, open_host
from agym.backends.outbox import Outbox, OutboxBackend
from agym.backends.parts import Supervision
from agym.hosts.sync import SyncHost
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import Failure, WorkerDeath, describe_exception
from agym.protocol.messages.operations import FAULT, OPEN, Make, Operation
from agym.protocol.table import SlotTable

# Without ``workers``, each environment gets a thread of its own, up to this many.
MAX_THREADS = 256


class AbandonedThread(Exception):
    """Raised in an abandoned thread when it tries to write rows."""


class WriteGuard:
    """Permission to write rows; it can be withdrawn at any time but not during a write.

    Attributes:
        withdrawn: Whether it was withdrawn.
        closing: Set to end waits for a turn.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.withdrawn = False
        self.closing = threading.Event()

    def __enter__(self) -> None:
        """Begin to write.

        Raises:
            AbandonedThread: The permission was withdrawn.
        """
        self._lock.acquire()
        if self.withdrawn:
            self._lock.release()
            raise AbandonedThread

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def withdraw(self) -> None:
        """Forbid writes from now on; waits for a write in progress."""
        self.closing.set()
        with self._lock:
            self.withdrawn = True


class ThreadWorker:
    """A thread, and the caller's record of it.

    Attributes:
        ids: Its environments.
        inbox: Operations and tables for the thread; ``None`` to end.
        pending: The operations that it was given and has not completed, in order.
        guard: Its permission to write rows.
        marker: The id of the running environment, plus one.
        host: Its host, which only the thread uses.
        death: Why it was given up, ``None`` while it is in use.
        ended: It has closed its environments.
    """

    def __init__(
        self, ids: range, make: MakeHost, outbox: Outbox[WorkerReply], number: int
    ) -> None:
        """Start the thread. ``make`` is not kept, since it refers to the backend."""
        self.ids = ids
        self.inbox: queue.SimpleQueue[Operation | SlotTable | None] = queue.SimpleQueue()
        self.pending: deque[Operation] = deque()
        self.guard = WriteGuard()
        self.marker = [0]
        self.death: WorkerDeath | None = None
        self.ended = False
        self.host = host = make(ids, self.guard, self.marker)
        # A daemon, since a thread that hangs cannot be killed and must not keep Python alive.
        self.thread = threading.Thread(
            target=self._work, args=(host, outbox, number), name=f"agym-{ids.start}", daemon=True
        )
        self.pending.append(Operation(number, ids.start, ids.stop, Make()))
        self.thread.start()

    def give(self, operation: Operation) -> None:
        self.pending.append(operation)
        self.inbox.put(operation)

    def _work(self, host: RunningHost, outbox: Outbox[WorkerReply], number: int) -> None:
        """Run the thread, and report what ends it early.

        That is never an exception of an environment, because the host catches those.
        """
        try:
            self._serve(host, outbox, number)
        except BaseException as error:
            outbox.put((self, error))
        try:
            completion = close_host(host)
        except BaseException as error:
            completion = closed(host, [Failure.of(error, host.first, "close")])
        outbox.put((self, completion))
        self.ended = True
        outbox.ring()

    def _serve(self, host: RunningHost, outbox: Outbox[WorkerReply], number: int) -> None:
        made = open_host(host, number)
        if made.payload and any(each.render_mode for each in made.payload.values.values()):
            lock_polygons()
        outbox.put((self, made))
        while (item := self.inbox.get()) is not None and not self.guard.withdrawn:
            if isinstance(item, SlotTable):
                host.attach(item)
            else:
                completion = host.run(item)
                outbox.put((self, completion), completion.num_without_problem)


# A worker, and a completion or what ended its thread.
WorkerReply = tuple[ThreadWorker, Completion | BaseException]
MakeHost = Callable[[range, WriteGuard, list[int]], RunningHost]


class ThreadBackend(OutboxBackend[WorkerReply], Supervision):
    """Divides environments among threads."""

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self.ranges = options.ranges(options.spec.workers or MAX_THREADS)
        self._workers: list[ThreadWorker] = []
        self._abandoned: list[ThreadWorker] = []
        self._table: SlotTable | None = None
        self._completions: list[Completion] = []
        self._given_up = False
        # Threads hold no reference to the backend, so that collecting it ends them.
        self._end = weakref.finalize(self, _end, self._workers, self._abandoned, self._outbox)

    def start(self) -> None:
        """Start the threads, which construct environments concurrently."""
        for ids in self.ranges:
            self._workers.append(ThreadWorker(ids, self._make_host, self._outbox, OPEN))

    def attach(self, table: SlotTable) -> None:
        self._table = table
        for worker in self._workers:
            worker.inbox.put(table)

    def submit(self, operation: Operation) -> None:
        for worker in self._workers:
            for piece in self._split(operation, worker.ids):
                if worker.death is not None:
                    payload = Payload(problems=[worker.death])
                    self._completions.append(Completion(*piece.span, payload))
                else:
                    worker.give(piece)

    def _make_host(self, ids: range, guard: WriteGuard, marker: list[int]) -> RunningHost:
        """Create the host of a thread; no environment is constructed yet."""
        options = self.options
        return SyncHost(
            options.factories[ids.start : ids.stop], ids.start, options.autoreset,
            catch=BaseException, log=options.record_actions,
            marker=marker if options.track_running else None, guard=guard, infos=options.infos,
            fleet=options.fleet, closes_within=guard.closing.wait,
        )  # fmt: skip

    def _split(self, operation: Operation, ids: range) -> list[Operation]:
        """Return the parts of an operation that a thread runs in one go."""
        return operation.split(ids)

    def poll(self) -> Sequence[Completion]:
        """Return new completions, except those of abandoned threads."""
        completions, self._completions = self._completions, []
        for worker, reply in self._outbox.take():
            if worker.death is not None:
                continue
            if isinstance(reply, BaseException):
                reason = f"its thread raised {describe_exception(reply)}"
                completions += self._give_up(worker, reason, reply)
                continue
            if worker.pending:
                worker.pending.popleft()
            completions.append(reply)
        return completions

    @property
    def supervision(self) -> Supervision:
        return self

    def end_worker(self, worker: int, reason: str) -> None:
        """Abandon a thread."""
        completed = self.poll()  # first, since it replaces the list
        self._completions += completed
        hung = self._workers[worker]
        if hung.death is None:
            self._completions += self._give_up(hung, reason)
            self._outbox.ring()

    def _give_up(
        self, worker: ThreadWorker, reason: str, cause: BaseException | None = None
    ) -> list[Completion]:
        """Report the death of a thread that hangs or has ended, for all that is pending too."""
        worker.guard.withdraw()
        worker.inbox.put(None)
        self._abandoned.append(worker)
        doing = dict.fromkeys(worker.ids, "idle")
        for operation in reversed(worker.pending):
            span = range(operation.start, operation.stop)
            doing.update(dict.fromkeys(span, operation.message.name))
        mark = worker.marker[0]  # read once, because the thread may still change it
        worker.death = death = WorkerDeath(
            self._workers.index(worker), None, None, worker.ids, reason, doing,
            mark - 1 if mark else None, late=cause is None, cause=cause,
        )  # fmt: skip
        fault = FAULT, worker.ids.start, worker.ids.stop
        spans = [fault, *(operation.span for operation in worker.pending)]
        return [Completion(*span, Payload(problems=[death])) for span in spans]

    def replace_worker(self, worker: int, number: int) -> None:
        new = ThreadWorker(self.ranges[worker], self._make_host, self._outbox, number)
        self._workers[worker] = new
        if self._table is not None:
            new.inbox.put(self._table)

    def close(self, force: Force = Force.NONE) -> None:
        """Ask threads to end, or give them up: these end when their environment returns."""
        for worker in self._workers:
            worker.guard.closing.set()
            worker.inbox.put(None)
        self._given_up = force is Force.KILL

    @property
    def ended(self) -> bool:
        return self._given_up or all(w.ended or w.guard.withdrawn for w in self._workers)

    def release(self) -> None:
        """Wait for the threads that are about to end, and close the outbox."""
        if self.finalized:
            return
        self._end()
        self._table = None
        if not self._given_up:
            for worker in self._workers:
                if not worker.guard.withdrawn:
                    worker.thread.join()


def _end(
    workers: list[ThreadWorker], abandoned: list[ThreadWorker], outbox: Outbox[WorkerReply]
) -> None:
    for worker in [*workers, *abandoned]:
        worker.inbox.put(None)
    outbox.close()
