"""The queue of environments whose step was sent: the first k of them become a batch."""

from __future__ import annotations

from collections import deque

from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.messages.failures import EnvLoss


class ReadyQueue:
    """The environments whose step was sent and not received.

    Attributes:
        flying: How many environments still step.
        ids: The environments that have ended, oldest first.
        payload: The parts of results that do not fit into their rows.
        errors: Errors to raise, once each, with the environments of each.
        losses: The dead workers that were already reported.
    """

    def __init__(self) -> None:
        self.flying = 0
        self.ids: deque[int] = deque()
        self.payload = Payload()
        self.errors: deque[tuple[BaseException, tuple[int, ...]]] = deque()
        self.losses: list[EnvLoss] = []

    @property
    def left(self) -> int:
        """How many environments can still be received."""
        return self.flying + len(self.ids)

    def has(self, count: int) -> bool:
        """Whether a batch is ready: ``count`` environments, or all that remain, or an error."""
        return bool(self.errors) or len(self.ids) >= min(count, self.left)

    def take(self, count: int | None) -> tuple[list[int], Payload]:
        """Take the oldest environments, at most ``count``, with their payload."""
        number = len(self.ids) if count is None else min(count, len(self.ids))
        ids = [self.ids.popleft() for _ in range(number)]
        return ids, self.payload.take(ids)
