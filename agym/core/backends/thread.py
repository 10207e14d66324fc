"""Thread: environments run in threads of this process, for code that waits or releases the GIL.

A worker thread runs the same loop as a worker process, but operations come through a queue instead
of a mailbox, because nothing has to be pickled within one process. Only this thread uses its
environments, from their construction until they are closed.

A thread cannot be killed. A thread that misses a deadline is abandoned, and a new thread replaces
it. Once its environment returns, the abandoned thread must not write rows; its completions are
dropped.
"""

from __future__ import annotations

import queue
import threading

from agym.core._system.pygame_support import lock_polygons
from agym.core.backends.options import BackendSpec
from agym.core.backends.port import Force, Port, RunningHost, close_host, closed, open_host
from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Operation
from agym.core.protocol.table import SlotTable

# Without ``workers``, each environment gets its own thread, up to this many.
MAX_THREADS = 256


class AbandonedThread(Exception):
    """Raised in an abandoned thread when it tries to write rows."""


class WriteGuard:
    """Permission to write rows. It can be withdrawn at any time, except during a write.

    The abandoned thread and its replacement write the same rows. Without the lock, the environment
    could return just as the deadline passes: the thread would pass the check, lose the GIL, and
    then write over the replacement's rows.

    Attributes:
        withdrawn: Whether it was withdrawn.
        closing: Set to end waits for a turn.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.withdrawn = False
        self.closing = threading.Event()

    def __enter__(self) -> None:
        """Start to write.

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
        """Forbid further writes; wait for a write in progress, which only copies a row."""
        self.closing.set()
        with self._lock:
            self.withdrawn = True


class ThreadPort(Port):
    """A worker thread. It refers to its port but not to the pool, so that the pool can be garbage.

    Attributes:
        inbox: Operations and tables for the thread; ``None`` ends it.
        guard: The thread's permission to write rows.
        host: The host, which only the thread uses.
    """

    replaceable = True
    runner = "its thread"

    _given_up = False

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        return spec.workers or MAX_THREADS

    def _make_host(self) -> RunningHost:
        """Create the host; no environment is constructed yet."""
        return self.options.host(
            SyncHost, self.ids, catch=BaseException, marker=self.marker, guard=self.guard,
            closes_within=self.guard.closing.wait,
        )  # fmt: skip

    def start(self, make: Operation) -> None:
        self.inbox: queue.SimpleQueue[Operation | SlotTable | None] = queue.SimpleQueue()
        self.guard = WriteGuard()
        self.host = self._make_host()
        # A daemon: a hanging thread cannot be killed, and must not keep Python alive.
        self.thread = threading.Thread(
            target=self._work, args=(make.number,), name=f"agym-{self.ids.start}", daemon=True
        )
        self.thread.start()

    def attach(self, table: SlotTable) -> None:
        self.inbox.put(table)

    def post(self, operation: Operation) -> None:
        self.inbox.put(operation)

    def _work(self, number: int) -> None:
        """Run the thread, and report the error that ends it early.

        That is never an exception of an environment, because the host catches them.
        """
        try:
            self._serve(number)
        except BaseException as error:
            self.report(error)
        try:
            completion = close_host(self.host)
        except BaseException as error:
            completion = closed(self.host, [Failure.of(error, self.ids.start, "close")])
        self.report(completion)

    def _serve(self, number: int) -> None:
        host, outbox = self.host, self.outbox
        made = open_host(host, number)
        if made.payload and any(each.render_mode for each in made.payload.values.values()):
            lock_polygons()
        self.report(made)
        # Check ``withdrawn`` after ``get``: operations may be queued ahead of the ``None`` that
        # ``kill`` puts, and an abandoned thread must not run them.
        while (item := self.inbox.get()) is not None and not self.guard.withdrawn:
            if isinstance(item, SlotTable):
                host.attach(item)
            else:
                outbox.put(self, host.run(item))

    def kill(self) -> None:
        """Abandon the thread."""
        # Withdraw first: the ``None`` only wakes a thread that waits for its next operation.
        self.guard.withdraw()
        self.inbox.put(None)

    def close(self, force: Force = Force.NONE) -> None:
        """Ask the thread to end; with ``KILL``, do not wait until its environment returns."""
        self.guard.closing.set()
        self.inbox.put(None)
        if force is Force.KILL:
            self._given_up = self.closed = True

    def release(self) -> None:
        self.inbox.put(None)

    def join(self) -> None:
        if not self.guard.withdrawn and not self._given_up:
            self.thread.join()
