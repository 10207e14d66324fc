"""Budget: how often the same thing may fail before it is given up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from agym.errors import AgymError, CrashLoopError, Fault
from agym.protocol.messages import name_ids

# How many of the last failures an error shows.
SHOWN = 5


class RestartBudget:
    """At most so many failures in so many seconds, of each worker or environment."""

    def __init__(self, limit: int, window: float) -> None:
        """Begin with none.

        Args:
            limit: How many are borne.
            window: In how many seconds.
        """
        self._limit = limit
        self._window = window
        self._faults: dict[range, deque[tuple[float, Fault]]] = {}

    def record(self, ids: range, fault: Fault) -> BudgetExceeded | None:
        """Take in a failure of some environments; gives the verdict once it is one too many."""
        now = time.monotonic()
        faults = self._faults.setdefault(ids, deque())
        faults.append((now, fault))
        while now - faults[0][0] > self._window:
            faults.popleft()
        if len(faults) <= self._limit:
            return None
        last = tuple(fault for _, fault in faults)[-SHOWN:]
        return BudgetExceeded(ids, len(faults), self._window, last)

    def clear(self, ids: range) -> None:
        """Forget the failures of some environments."""
        for known in [*self._faults]:
            if known.start < ids.stop and ids.start < known.stop:
                del self._faults[known]


@dataclass(frozen=True)
class BudgetExceeded:
    """Environments that have failed once too often."""

    env_ids: range
    count: int
    window: float
    faults: Sequence[Fault] = field(default_factory=tuple)

    def to_exception(self) -> AgymError:
        """Build the error to raise."""
        shown = "".join(
            f"\n  environment {fault.env_id}, {fault.operation}: {fault.error}"
            for fault in self.faults
        )
        failures = f"{self.count} failures" if self.count > 1 else "1 failure"
        return CrashLoopError(
            f"environments {name_ids([*self.env_ids])} are given up after {failures} in"
            f" {self.window:g} seconds (max_restarts); restart() tries again. The last:{shown}",
            env_ids=self.env_ids,
            faults=self.faults,
        )
