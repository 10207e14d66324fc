"""The life of a set of environments, from opening to the end of its workers.

It also says what the environments are like, and what is known of their run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agym._system.files import os_errors_as_usage_errors
from agym._system.fork_safety import abandon_in_forks
from agym.backends.pool import Pool
from agym.backends.port import Force
from agym.engine.calls.collector import Collector
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.checks import FORKED, Checks
from agym.engine.faults.fault_log import FaultLog
from agym.engine.stats import Statistics, Stats, Traffic
from agym.engine.status import EnvStatus
from agym.errors import ClosedError
from agym.protocol.messages.completions import Description
from agym.protocol.messages.operations import CLOSE, OPEN, Close, Make
from agym.protocol.table import SlotTable

# Seconds for workers to close, to terminate and to be killed; then the same for a fast close.
GRACE_SECONDS = (5.0, 1.0, 1.0)
FAST_CLOSE_SECONDS = (1.0, 0.3, 0.3)


class Life:
    """Opens and closes environments.

    Attributes:
        statistics: What ``stats`` returns.
        notices: Warnings for the caller.
        released: Nothing is left to close.
    """

    released = False

    def __init__(
        self,
        backend: Pool,
        status: EnvStatus,
        dispatcher: Dispatcher,
        collector: Collector,
        checks: Checks,
        statistics: Statistics,
        fault_log: FaultLog,
    ) -> None:
        self._all = range(len(backend.options.factories))
        self._backend = backend
        self._status = status
        self._dispatcher = dispatcher
        self._collector = collector
        self._checks = checks
        self.statistics = statistics
        self._fault_log = fault_log
        self.notices = fault_log.notices

    def open(self) -> Ticket:
        """Start the workers, which make the environments."""
        ticket = self._dispatcher.tickets[OPEN] = Ticket(OPEN, Make(), self._all)
        abandon_in_forks(self)
        with os_errors_as_usage_errors("the environments cannot be made"):
            self._backend.start()
        self._collector.poll()
        return ticket

    def closing(self, *, fast: bool = False) -> Iterator[tuple[Ticket, float]]:
        """Ask the workers to close, then terminate them, then kill them.

        Args:
            fast: Wait only briefly for environments, since the program is ending.

        Yields:
            The ticket to wait for, and how many seconds at most before the next measure.
        """
        if self.closed:
            return
        if self._backend.finalized:
            self.discard()
            return
        if self._collector.rows.opened is not None:
            self.statistics.keep()
        self._fault_log.log_left_out()
        self._status.all_ready = False
        for ticket in self._collector.tickets:
            ticket.finish(error=ClosedError("the environments were closed meanwhile"))
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
        """Release what is left. The caller's views of the slot table keep its memory alive."""
        self._backend.release()
        self._dispatcher.close()
        self._collector.rows.opened = None
        self.released = True

    def discard(self, *, close: bool = False) -> None:
        """Drop all calls under way without finishing them: the interpreter shuts down.

        With ``close``, closing follows; else the environments are closed as they are.
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
        self._checks.forked = True
        for ticket in self._collector.tickets:
            ticket.done = True  # no callbacks: whoever waits for it is in the parent
            ticket.error = ClosedError(FORKED)
        self._dispatcher.tickets.clear()
        self._end()

    def _end(self) -> None:
        self._status.all_ready = False
        self._collector.closing = closing = Ticket(CLOSE, Close(), ())
        closing.done = True

    # ---------------------------------------------------------------- what is known

    def check_open(self) -> None:
        """Refuse environments that are closed, or not open yet.

        Raises:
            ClosedError: They are.
        """
        self._checks.opened()

    def description(self, env_id: int = 0) -> Description:
        """Return what an environment is like; known once it was opened."""
        return self._collector.rows.described[env_id]

    @property
    def table(self) -> SlotTable:
        """The slot table.

        Raises:
            ClosedError: The environments are closed, or not open yet.
        """
        return self._checks.opened().table

    def stats(self) -> Stats:
        """Read the statistics, without waiting for workers or slowing them down.

        Raises:
            ClosedError: The environments were never open, or belong to another process.
        """
        if self.statistics.last is not None:
            return self.statistics.last
        self._checks.opened()
        self._collector.poll()
        return self.statistics.reader()()

    @property
    def remark(self) -> str:
        """What was learned from the first steps, in a sentence; empty if nothing was."""
        return self._collector.traffic.remark

    def learn_by(self, learn: Callable[[Traffic], None]) -> None:
        """Have the first steps timed, to learn from them."""
        learn(self._collector.traffic)

    @property
    def is_open(self) -> bool:
        """Whether the environments are made and not closed."""
        return self._collector.rows.opened is not None

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        return self._collector.closing is not None

    def is_closed(self, env_id: int) -> bool:
        """Whether an environment is closed, alone or with all others."""
        return self.closed or env_id in self._status.closed_envs
