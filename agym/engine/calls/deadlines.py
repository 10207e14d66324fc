"""Deadlines: how long a call may take, and a replacement of what did not end in time."""

from __future__ import annotations

import time
from collections.abc import Iterable

from agym.engine.calls.ticket import Ticket

# A replacement may take this many deadlines, and at least this many seconds, to be made.
RECREATE_DEADLINES, RECREATE_SECONDS = 10, 10.0


class Deadlines:
    """Gives calls their deadlines, suspends these, and starts them again.

    Attributes:
        timeout: Seconds for one operation, ``None`` for no deadlines.
        asides: How many renders for observers are under way, which suspend the caller's deadlines.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.asides = 0

    @property
    def replacement_seconds(self) -> float:
        """How long a replacement may take: making an environment outlasts a step."""
        return max(RECREATE_SECONDS, RECREATE_DEADLINES * (self.timeout or 0.0))

    def start(self, ticket: Ticket) -> None:
        """Give a call its deadline."""
        if self.timeout is not None:
            ticket.deadline = time.monotonic() + self.timeout
            if self.asides:
                ticket.suspend()

    def start_replacement(self, ticket: Ticket) -> None:
        """Give a replacement its own, longer deadline."""
        if self.timeout is not None:
            ticket.deadline, ticket.ended = time.monotonic() + self.replacement_seconds, []

    def resume(self, ticket: Ticket) -> None:
        """Start a suspended deadline again."""
        if ticket.suspended and self.timeout is not None:
            ticket.suspended = False
            ticket.deadline = time.monotonic() + self.timeout


def next_deadline(tickets: Iterable[Ticket]) -> float | None:
    """Return the seconds until the earliest deadline, ``None`` if there is none."""
    now = time.monotonic()
    return min((t.deadline - now for t in tickets if t.deadline and not t.done), default=None)
