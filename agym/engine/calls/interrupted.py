"""Parts of operations that a fault has interrupted: to be sent again, cancelled, or failed."""

from __future__ import annotations

from collections.abc import Iterable

from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.protocol.arguments import runs
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import EnvLoss, Failure


class InterruptedParts:
    """The interrupted part of each environment."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        # What to send to each environment once it is recreated.
        self._held: dict[int, Ticket] = {}
        # The operation of each environment whose completion is to be dropped.
        self._cancelled: dict[int, int] = {}
        # Completions for what never is sent again.
        self._failed: list[Completion] = []

    def hold(self, ids: Iterable[int], ticket: Ticket) -> None:
        """Keep parts of a ticket until their environments are recreated."""
        self._held.update((i, ticket) for i in ids)

    def resend(self, ids: Iterable[int]) -> None:
        """Send the parts that were kept, joined for neighbours."""
        pending = [(self._held.pop(i), i) for i in ids if i in self._held]
        for ticket in dict.fromkeys(ticket for ticket, _ in pending):
            for run in runs(tuple(i for other, i in pending if other is ticket)):
                self._dispatcher.resend(ticket, run.start, run.stop)

    def cancel(self, env_id: int, ticket: Ticket) -> None:
        """Drop the completion of an environment's part, which may still arrive."""
        self._cancelled[env_id] = ticket.number

    def uncancel(self, ids: Iterable[int]) -> None:
        """Drop no completions of these any more: what they cancelled has ended."""
        for i in ids:
            self._cancelled.pop(i, None)

    def wanted(self, number: int, start: int, stop: int) -> tuple[int, ...]:
        """Return the environments of a completion that are not cancelled."""
        return tuple(i for i in range(start, stop) if self._cancelled.get(i) != number)

    def fail(self, env_id: int, ticket: Ticket, problems: list[Failure | EnvLoss]) -> None:
        """End an environment's part by problems, or without a result if there are none."""
        payload = Payload(problems=problems)
        self._failed.append(Completion(ticket.number, env_id, env_id + 1, payload))

    def abandon(self, ids: Iterable[int], loss: EnvLoss) -> None:
        """Fail the parts that were kept for environments that are lost."""
        for i in ids:
            self._cancelled.pop(i, None)
            ticket = self._held.pop(i, None)
            if ticket is not None:
                self.fail(i, ticket, [loss])

    def take_failed(self) -> list[Completion]:
        """Return and clear the completions of parts that are not sent again."""
        failed, self._failed = self._failed, []
        return failed
