"""Ready: environments whose sent step has ended, the oldest first, until a batch takes them."""

from __future__ import annotations

from collections import deque

from agym.protocol.messages import EnvLoss, Payload


class ReadyQueue:
    """What was sent and is not yet received.

    Attributes:
        flying: How many environments still step.
        ids: The environments that have ended, the oldest first.
        extras: What does not fit into their rows.
        errors: What went wrong, to be raised once each, and in which environments.
        losses: The workers that died meanwhile, each of which is told once.
    """

    def __init__(self) -> None:
        """Nothing was sent."""
        self.flying = 0
        self.ids: deque[int] = deque()
        self.extras = Payload()
        self.errors: deque[tuple[BaseException, tuple[int, ...]]] = deque()
        self.losses: list[EnvLoss] = []

    @property
    def left(self) -> int:
        """How many environments can still be received."""
        return self.flying + len(self.ids)

    def has(self, count: int) -> bool:
        """Whether a batch can be given: of so many, or of all that there are, or an error."""
        return bool(self.errors) or len(self.ids) >= min(count, self.left)

    def take(self, count: int | None) -> tuple[list[int], Payload]:
        """Take the oldest, at most so many, and what goes with them."""
        number = len(self.ids) if count is None else min(count, len(self.ids))
        ids = [self.ids.popleft() for _ in range(number)]
        return ids, self.extras.take(ids)
