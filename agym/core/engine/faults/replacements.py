"""The environments that are being replaced, and the calls that wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agym.core.engine.calls.ticket import Ticket
from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import EnvLoss, Failure


@dataclass(slots=True)
class Replacement:
    """The state of one replacement.

    Attributes:
        requested: The caller requested it, so a failure is raised at once.
        part: The call to send to the replacement again.
        cancelled: The number of an operation whose late completion must be dropped.
        faulted: Whether the row of an earlier fault has not been returned yet.
    """

    requested: bool = False
    part: Ticket | None = None
    cancelled: int | None = None
    faulted: bool = False


class Replacements(dict[int, Replacement]):
    """The environments that are being replaced, by id."""

    def __init__(self) -> None:
        super().__init__()
        # Completions for parts of calls that are not sent again.
        self._failed: deque[Completion] = deque()

    def start(self, ids: Iterable[int]) -> list[Replacement]:
        """Return the records of environments to replace; keep a record that already exists."""
        return [self.setdefault(i, Replacement()) for i in ids]

    def requested(self, ids: Ids) -> bool:
        """Whether the caller requested to replace some of these environments."""
        return any(i in self and self[i].requested for i in ids)

    def without_cancelled(self, number: int, ids: range) -> Ids:
        """Return the environments whose part of an operation was not cancelled."""
        cancelled = {i for i, each in self.items() if each.cancelled == number}
        return tuple(i for i in ids if i not in cancelled)

    def fail(self, env_id: int, ticket: Ticket, problems: list[Failure | EnvLoss]) -> None:
        """End an environment's part by problems, or without a result if there are none."""
        payload = Payload(problems=problems)
        self._failed.append(Completion(ticket.number, env_id, env_id + 1, payload))

    def take_failed(self) -> Iterator[Completion]:
        """Take the completions of the parts that have failed."""
        while self._failed:
            yield self._failed.popleft()
