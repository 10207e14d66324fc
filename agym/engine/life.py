"""The life of a set of environments, from opening to the end of its workers."""

from __future__ import annotations

from collections.abc import Iterator

from agym._system.files import os_errors_as_usage_errors
from agym._system.fork_safety import abandon_in_forks
from agym.backends.base import Backend, Force
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.checks import FORKED, Checks
from agym.engine.collector import Collector
from agym.engine.faults.fault_log import FaultLog
from agym.engine.stats import Statistics
from agym.engine.status import EnvStatus
from agym.errors import ClosedError
from agym.protocol.messages.operations import CLOSE, OPEN, Close, Make

# Seconds for workers to close, to terminate and to be killed; then the same for ``fast_close``.
GRACE_SECONDS = (5.0, 1.0, 1.0)
FAST_CLOSE_SECONDS = (1.0, 0.3, 0.3)


class Life:
    """Opens and closes environments.

    Attributes:
        fast_close: Wait only briefly for environments when closing, since the program is ending.
        released: Nothing is left to close.
    """

    fast_close = False
    released = False

    def __init__(
        self,
        backend: Backend,
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
        self._statistics = statistics
        self._fault_log = fault_log

    def open(self) -> Ticket:
        """Start the workers, which make the environments."""
        ticket = self._dispatcher.tickets[OPEN] = Ticket(OPEN, Make(), self._all)
        abandon_in_forks(self)
        with os_errors_as_usage_errors("the environments cannot be made"):
            self._backend.start()
        self._collector.poll()
        return ticket

    def closing(self) -> Iterator[tuple[Ticket, float]]:
        """Ask the workers to close, then terminate them, then kill them.

        Yields:
            The ticket to wait for, and how many seconds at most before the next measure.
        """
        if self.closed:
            return
        if self._backend.workers.finalized:
            self.discard()
            return
        if self._collector.rows.opened is not None:
            self._statistics.keep()
        self._fault_log.log_left_out()
        self._status.all_ready = False
        for ticket in self._collector.tickets:
            ticket.finish(error=ClosedError("the environments were closed meanwhile"))
        closing = self._dispatcher.tickets[CLOSE] = Ticket(CLOSE, Close(), self._all)
        self._collector.closing = closing
        seconds = FAST_CLOSE_SECONDS if self.fast_close else GRACE_SECONDS
        for force, grace in zip(Force, seconds, strict=True):
            self._backend.close(force)
            self._collector.poll()
            yield closing, grace
            if closing.done:
                return

    def release(self) -> None:
        """Release the slot table. The caller's views of it keep its memory alive."""
        self._dispatcher.close()
        self._collector.rows.opened = None
        self.released = True

    def forget_calls(self) -> None:
        """Drop all calls under way without finishing them: the interpreter is shutting down."""
        self._dispatcher.tickets.clear()
        self._collector.sent.receivers.clear()

    def discard(self) -> None:
        """Mark the environments closed without closing anything: the interpreter shuts down."""
        self.forget_calls()
        self._end()
        self.released = True

    def abandon(self) -> None:
        """Mark the environments closed in a forked child, which does not have the workers."""
        if not self._backend.workers.abandon():
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

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        return self._collector.closing is not None

    def is_closed(self, env_id: int) -> bool:
        """Whether an environment is closed, alone or with all others."""
        return self.closed or env_id in self._status.closed_envs
