"""The life of a set of environments, from opening until the workers have ended.

It also describes the environments, and reads their statistics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from agym.core._system.files import os_errors_as_usage_errors
from agym.core._system.fork_safety import abandon_in_forks
from agym.core._system.load import Load
from agym.core.backends.port import Force
from agym.core.engine.calls.collector import Collector
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.opened import Opened
from agym.core.engine.stats import Stats
from agym.core.protocol.messages.completions import Description
from agym.core.protocol.messages.operations import CLOSE, OPEN, Close, Make
from agym.core.protocol.table import SlotTable
from agym.errors import ClosedError

# Seconds for workers to close, to terminate and to be killed; then the same for a fast close.
GRACE_SECONDS = (5.0, 1.0, 1.0)
FAST_CLOSE_SECONDS = (1.0, 0.3, 0.3)

# After a late wake-up and some sleep, a caller tries to spin again. The cores count as crowded for
# this many seconds after that time.
CROWDED_SECONDS = 0.1

CLOSED = "the environments are closed: make new ones"
NOT_OPEN = "the environments are not open yet: use `async with` or `await` first"
FORKED = (
    "these environments belong to the parent of this forked process, and work only there: make"
    " new ones here"
)


class Life:
    """Opens and closes environments.

    Attributes:
        notices: Warnings for the caller.
        released: Everything is released; nothing remains to close.
        restored: Whether snapshots were restored.
        last_stats: The statistics at the time of closing.
    """

    released = False
    restored = False
    last_stats: Stats | None = None
    _forked = False

    def __init__(self, collector: Collector) -> None:
        self._all = range(len(collector.backend.options.factories))
        self._collector = collector
        self._backend = collector.backend
        self._dispatcher = collector.dispatcher
        self.notices = collector.recovery.fault_log.notices

    def open(self) -> Ticket:
        """Start the workers, which make the environments."""
        ticket = self._dispatcher.tickets[OPEN] = Ticket(OPEN, Make(), self._all)
        abandon_in_forks(self)
        with os_errors_as_usage_errors("the environments cannot be made"):
            self._backend.start()
        if self._backend.shared:  # runs while the workers start
            self._collector.traffic.load = Load()
        self._collector.poll()
        return ticket

    def closing(self, *, fast: bool = False) -> Iterator[tuple[Ticket, float]]:
        """Ask the workers to close, then terminate them, then kill them.

        Args:
            fast: Wait only briefly, because the program is ending.

        Yields:
            The ticket to wait for, and how many seconds to wait before the next, harsher step.
        """
        if self.closed:
            return
        if self._backend.finalized:
            self.discard()
            return
        if self._collector.rows.opened is not None:
            self.last_stats = self.read_stats()
        self._collector.recovery.fault_log.log_left_out()
        self._collector.status.all_ready = False
        for ticket in self._collector.tickets:
            ticket.finish(error=ClosedError("the environments were closed during this call"))
        closing = self._dispatcher.tickets[CLOSE] = Ticket(CLOSE, Close(), self._all)
        self._collector.closing = closing
        seconds = FAST_CLOSE_SECONDS if fast else GRACE_SECONDS
        for force, grace in zip(Force, seconds, strict=True):
            self._backend.close(force)
            self._collector.poll()
            yield closing, grace
            if closing.done:
                return

    def release(self) -> None:
        """Release all memory. The caller's views of the slot table keep its memory alive."""
        self._backend.release()
        self._dispatcher.close()
        self._collector.rows.opened = None
        self.released = True

    def discard(self, *, close: bool = False) -> None:
        """Drop all calls under way without finishing them: the interpreter shuts down.

        With ``close``, the caller closes next; without, the environments count as closed.
        """
        self._dispatcher.tickets.clear()
        self._collector.sent.receivers.clear()
        if not close:
            self._end()
            self.released = True

    def abandon(self) -> None:
        """Mark the environments closed in a forked child, which does not have the workers."""
        if not self._backend.abandon():
            return
        self._forked = True
        for ticket in self._collector.tickets:
            # No callbacks: the tasks and threads that wait for this ticket exist in the parent.
            ticket.done = True
            ticket.error = ClosedError(FORKED)
        self._dispatcher.tickets.clear()
        self._end()

    def _end(self) -> None:
        self._collector.status.all_ready = False
        self._collector.closing = closing = Ticket(CLOSE, Close(), ())
        closing.done = True

    # ---------------------------------------------------------------- what is known

    def opened(self) -> Opened:
        """Return what is allocated for open environments.

        Raises:
            ClosedError: They are closed, or not open yet.
        """
        if self._collector.closing is not None:
            raise ClosedError(FORKED if self._forked else CLOSED)
        opened = self._collector.rows.opened
        if opened is None:
            raise ClosedError(NOT_OPEN)
        return opened

    def description(self, env_id: int = 0) -> Description:
        """Return the description of an environment; known once it was opened."""
        return self._collector.rows.described[env_id]

    @property
    def table(self) -> SlotTable:
        """The slot table.

        Raises:
            ClosedError: The environments are closed, or not open yet.
        """
        return self.opened().table

    def stats(self) -> Stats:
        """Read the statistics, without waiting for workers or slowing them down.

        Raises:
            ClosedError: The environments were never open, or belong to another process.
        """
        if self.last_stats is None:
            self.opened()
            self._collector.poll()
        return self.read_stats()

    def read_stats(self) -> Stats:
        """Read the statistics, in any thread. After closing has started, return the last ones."""
        backend, recovery = self._backend, self._collector.recovery
        return self.last_stats or self._collector.traffic.read(
            self._collector.rows.gauges, backend.ranges, backend.pids,
            recovery.fault_log.counts, recovery.restarts, crowded=self.crowded,
        )  # fmt: skip

    @property
    def crowded(self) -> bool:
        """Whether other threads have recently kept the caller or a worker off its core."""
        return self._backend.crowded_until() > time.perf_counter() - CROWDED_SECONDS

    @property
    def remark(self) -> str:
        """One sentence about the first steps; empty if there is nothing to report."""
        return self._collector.traffic.remark

    @property
    def is_open(self) -> bool:
        """Whether the environments are made and not closed."""
        return self._collector.rows.opened is not None

    @property
    def closed(self) -> bool:
        """Whether closing has started."""
        return self._collector.closing is not None

    def is_closed(self, env_id: int) -> bool:
        """Whether an environment is closed, alone or with all others."""
        return self.closed or env_id in self._collector.status.closed_envs
