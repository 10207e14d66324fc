"""Thread: environments in threads of this process, for those that wait or release the GIL.

The loop of a worker thread is the mailbox's without its transport: operations come through a
queue instead of a ring and a channel, since within one process nothing has to be packed. A
thread makes its environments and is the only one to touch them until they are closed.

A thread cannot be killed. One that misses a deadline is left behind: another takes its place, and
when it comes back from its environment it finds that it may write no row and is heard no more.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from agym._system.pygame_lock import lock_polygons
from agym.backends.base import BackendOptions, RunningHost, close_host, open_host
from agym.backends.outbox import Outbox, OutboxBackend
from agym.hosts.gym import EnvHost
from agym.protocol.messages import FAULT, OPEN, Completion, Operation, Payload, WorkerDeath
from agym.protocol.table import SlotTable

# Without ``workers``, each environment waits in a thread of its own, up to so many.
MAX_THREADS = 256


class AbandonedThread(Exception):
    """What a thread runs into that was left behind, when it comes back."""


class WriteGuard:
    """The permission to write rows, which can be withdrawn at any time but not during a write."""

    def __init__(self) -> None:
        """Grant it."""
        self._lock = threading.Lock()
        self.withdrawn = False

    def __enter__(self) -> None:
        """Begin to write.

        Raises:
            LeftBehind: The permission was withdrawn.
        """
        self._lock.acquire()
        if self.withdrawn:
            self._lock.release()
            raise AbandonedThread

    def __exit__(self, *_: object) -> None:
        """End writing."""
        self._lock.release()

    def withdraw(self) -> None:
        """Let nothing be written from now on; a write under way is waited for."""
        with self._lock:
            self.withdrawn = True


class ThreadWorker:
    """A thread and what the caller knows of it.

    Attributes:
        ids: Its environments.
        inbox: What it is to do; ``None`` to end.
        owed: The operations that it was given and has not ended, in order.
        permit: Its permission to write rows.
        marker: The id of the environment that runs, plus one.
        host: Its host, which only the thread uses.
        ended: It has closed its environments.
    """

    def __init__(
        self, ids: range, make: MakeHost, outbox: Outbox[WorkerReply], number: int
    ) -> None:
        """Start the thread; ``make`` is not kept."""
        self.ids = ids
        self.inbox: queue.SimpleQueue[Operation | SlotTable | None] = queue.SimpleQueue()
        self.owed: deque[Operation] = deque()
        self.permit = WriteGuard()
        self.marker = [0]
        self.ended = False
        self.host = host = make(ids, self.permit, self.marker)
        # One that hangs in an environment cannot be killed, and must not keep Python alive.
        self.thread = threading.Thread(
            target=self._work, args=(host, outbox, number), name=f"agym-{ids.start}", daemon=True
        )
        self.give(Operation(number, "make", ids.start, ids.stop))
        self.thread.start()

    def give(self, operation: Operation) -> None:
        """Have an operation done."""
        self.owed.append(operation)
        if operation.kind != "make":
            self.inbox.put(operation)

    def _work(self, host: RunningHost, outbox: Outbox[WorkerReply], number: int) -> None:
        """Be the thread."""
        made = open_host(host, number)
        if made.extras and any(each.render_mode for each in made.extras.values.values()):
            lock_polygons()
        outbox.put((self, (made,)))
        while (item := self.inbox.get()) is not None and not self.permit.withdrawn:
            if isinstance(item, SlotTable):
                host.attach(item)
            else:
                self._run(host, item, outbox)
        outbox.put((self, (close_host(host),)))
        self.ended = True
        outbox.ring()

    def _run(self, host: RunningHost, operation: Operation, outbox: Outbox[WorkerReply]) -> None:
        outbox.put((self, (host.run(operation),)))

    def settle(self, outcome: Completion) -> None:
        """An operation has ended."""
        if self.owed:
            self.owed.popleft()


# What comes together is taken together.
WorkerReply = tuple[ThreadWorker, Sequence[Completion]]
MakeHost = Callable[[range, WriteGuard, list[int]], RunningHost]


class ThreadBackend(OutboxBackend[WorkerReply]):
    """Deals environments to threads."""

    replaceable = True
    worker_type: ClassVar[type[ThreadWorker]] = ThreadWorker

    def __init__(self, options: BackendOptions) -> None:
        """Remember what to make."""
        super().__init__(options)
        self.ranges = options.ranges(options.spec.workers or MAX_THREADS)
        self._workers: list[ThreadWorker] = []
        self._left_behind: list[ThreadWorker] = []
        self._table: SlotTable | None = None
        self._outcomes: list[Completion] = []
        self._given_up = False
        # Threads do not hold the backend, so that one that is forgotten ends them.
        self._end = weakref.finalize(self, _end, self._workers, self._left_behind, self._outbox)

    def start(self) -> None:
        """Start the threads; they all make their environments at the same time."""
        for ids in self.ranges:
            self._workers.append(self.worker_type(ids, self._make_host, self._outbox, OPEN))

    def attach(self, table: SlotTable) -> None:
        """Give every thread the table."""
        self._table = table
        for worker in self._workers:
            worker.inbox.put(table)

    def submit(self, operation: Operation) -> None:
        """Queue the parts of an operation."""
        for worker in self._workers:
            for piece in self._split(operation, worker.ids):
                if worker.permit.withdrawn:
                    death = self._death(worker, "left behind")
                    self._outcomes.append(Completion(*piece.span, Payload(problems=[death])))
                else:
                    worker.give(piece)

    def _make_host(self, ids: range, permit: WriteGuard, marker: list[int]) -> RunningHost:
        """The host of a thread; nothing is made yet."""
        options = self.options
        return EnvHost(
            options.factories[ids.start : ids.stop], ids.start, options.autoreset,
            catch=BaseException, log=options.record_actions,
            marker=marker if options.track_running else None, guard=permit, infos=options.infos,
        )  # fmt: skip

    def _split(self, operation: Operation, ids: range) -> Iterator[Operation]:
        """What a thread is given of an operation, each to be run in one go."""
        return operation.pieces(ids)

    def poll(self) -> Sequence[Completion]:
        """Take what has come, but for what those left behind still say."""
        outcomes, self._outcomes = self._outcomes, []
        for worker, said in self._outbox.take():
            if not worker.permit.withdrawn:
                for outcome in said:
                    worker.settle(outcome)
                outcomes += said
        return outcomes

    def end_worker(self, worker: int, reason: str) -> None:
        """Leave a thread behind."""
        left = self._workers[worker]
        if left.permit.withdrawn:
            return
        said = self.poll()  # first: it takes the list away
        self._outcomes += said
        left.permit.withdraw()
        left.inbox.put(None)
        self._left_behind.append(left)
        death = self._death(left, reason)
        for operation in [Operation(FAULT, "", left.ids.start, left.ids.stop), *left.owed]:
            self._outcomes.append(Completion(*operation.span, Payload(problems=[death])))
        self._outbox.ring()

    def _death(self, worker: ThreadWorker, reason: str) -> WorkerDeath:
        doing = dict.fromkeys(worker.ids, "idle")
        for operation in reversed(worker.owed):
            doing.update(dict.fromkeys(range(operation.start, operation.stop), operation.kind))
        running = worker.marker[0] - 1 if worker.marker[0] else None
        index = self._workers.index(worker)
        return WorkerDeath(index, None, None, worker.ids, reason, doing, running, late=True)

    def replace_worker(self, worker: int, number: int) -> None:
        """Start another thread."""
        new = self.worker_type(self.ranges[worker], self._make_host, self._outbox, number)
        self._workers[worker] = new
        if self._table is not None:
            new.inbox.put(self._table)

    def close(self) -> None:
        """Ask the threads to end once they have done what is queued."""
        for worker in self._workers:
            worker.inbox.put(None)

    def kill(self) -> None:
        """Give up the threads that hang; they end when they come back, or with the process."""
        self._given_up = True

    @property
    def ended(self) -> bool:
        """Whether every thread has closed its environments, or was given up."""
        return self._given_up or all(w.ended or w.permit.withdrawn for w in self._workers)

    def release(self) -> None:
        """Wait for the threads that are about to end, and close the bell."""
        if self.forgotten:
            return
        self._end()
        self._table = None
        if not self._given_up:
            for worker in self._workers:
                if not worker.permit.withdrawn:
                    worker.thread.join()


def _end(
    workers: list[ThreadWorker], left_behind: list[ThreadWorker], outbox: Outbox[WorkerReply]
) -> None:
    for worker in [*workers, *left_behind]:
        worker.inbox.put(None)
    outbox.close()
