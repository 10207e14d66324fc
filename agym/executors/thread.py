"""Thread: environments in threads of this process, for those that wait or release the GIL.

The loop of a worker thread is the mailbox's without its transport: operations come through a
queue instead of a ring and a channel, since within one process nothing has to be packed. A
thread makes its environments and is the only one to touch them until they are closed.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque

from agym.core.host import EnvHost
from agym.core.operations import Operation
from agym.core.slots import SlotTable
from agym.executors.base import Placement, close_host, open_host
from agym.executors.outbox import Outbox, OutboxExecutor

# Without ``workers``, each environment waits in a thread of its own, up to so many.
MAX_THREADS = 256

Inbox = queue.SimpleQueue[Operation | SlotTable | None]


class ThreadExecutor(OutboxExecutor):
    """Deals environments to threads."""

    def __init__(self, placement: Placement) -> None:
        """Remember what to make."""
        super().__init__(placement)
        self.ranges = placement.ranges(placement.workers or MAX_THREADS)
        self._inboxes: list[Inbox] = [queue.SimpleQueue() for _ in self.ranges]
        self._ended: deque[range] = deque()
        self._given_up = False
        self._threads: list[threading.Thread] = []
        # Threads do not hold the executor, so that one that is forgotten ends them.
        self._end = weakref.finalize(self, _end, self._inboxes, self._outbox)

    def start(self) -> None:
        """Start the threads; they all make their environments at the same time."""
        for ids, inbox in zip(self.ranges, self._inboxes, strict=True):
            factories = self.placement.factories[ids.start : ids.stop]
            host = EnvHost(factories, ids.start, self.placement.autoreset, catch=BaseException)
            # One that hangs in an environment cannot be killed, and must not keep Python alive.
            thread = threading.Thread(
                target=_work,
                args=(host, inbox, self._outbox, self._ended),
                name=f"agym-{ids.start}",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def attach(self, table: SlotTable) -> None:
        """Give every thread the table."""
        for inbox in self._inboxes:
            inbox.put(table)

    def submit(self, operation: Operation) -> None:
        """Queue the parts of an operation."""
        for ids, inbox in zip(self.ranges, self._inboxes, strict=True):
            for piece in operation.pieces(ids):
                inbox.put(piece)

    def close(self) -> None:
        """Ask the threads to end once they have done what is queued."""
        for inbox in self._inboxes:
            inbox.put(None)

    def kill(self) -> None:
        """Give up the threads that hang; they end when they come back, or with the process."""
        self._given_up = True

    @property
    def ended(self) -> bool:
        """Whether every thread has closed its environments, or was given up."""
        return self._given_up or len(self._ended) == len(self._threads)

    def release(self) -> None:
        """Wait for the threads that are about to end, and close the bell."""
        self._end()
        if not self._given_up:
            for thread in self._threads:
                thread.join()


def _work(host: EnvHost, inbox: Inbox, outbox: Outbox, ended: deque[range]) -> None:
    """Be a worker thread."""
    outbox.put(open_host(host))
    while (item := inbox.get()) is not None:
        if isinstance(item, SlotTable):
            host.attach(item)
        else:
            outbox.put(host.run(item))
    outbox.put(close_host(host))
    ended.append(range(host.first, host.stop))
    outbox.ring()


def _end(inboxes: list[Inbox], outbox: Outbox) -> None:
    for inbox in inboxes:
        inbox.put(None)
    outbox.close()
