"""The restart budget: how often a worker or environment may fail before it is given up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from agym.errors import AgymError, CrashLoopError, Fault
from agym.protocol.messages.failures import name_envs

# How many of the latest failures an error shows.
SHOWN = 5


class RestartBudget:
    """Allows ``limit`` failures within ``window`` seconds, per worker or environment."""

    def __init__(self, limit: int, window: float) -> None:
        self._limit = limit
        self._window = window
        self._faults: dict[range, deque[tuple[float, Fault]]] = {}

    def record(self, ids: range, fault: Fault) -> BudgetExceeded | None:
        """Record a failure of some environments; return the verdict once it exceeds the budget."""
        now = time.monotonic()
        faults = self._faults.setdefault(ids, deque())
        faults.append((now, fault))
        while now - faults[0][0] > self._window:
            faults.popleft()
        if len(faults) <= self._limit:
            return None
        last = tuple(fault for _, fault in faults)[-SHOWN:]
        return BudgetExceeded(ids, len(faults), self._window, last)

    def count(self, ids: range) -> int:
        """Return how many failures of some environments were recorded within the window."""
        return len(self._faults[ids])

    def clear(self, ids: range) -> None:
        for known in [*self._faults]:
            if known.start < ids.stop and ids.start < known.stop:
                del self._faults[known]


@dataclass(frozen=True)
class BudgetExceeded:
    """Environments that have failed too often."""

    env_ids: range
    count: int
    window: float
    faults: Sequence[Fault] = field(default_factory=tuple)

    def to_exception(self) -> AgymError:
        shown = "".join(
            f"\n  environment {fault.env_id}, {fault.operation}: {fault.error}"
            for fault in self.faults
        )
        failures = f"{self.count} failures" if self.count > 1 else "1 failure"
        verb = "is" if len(self.env_ids) == 1 else "are"
        return CrashLoopError(
            f"{name_envs(self.env_ids)} {verb} given up after {failures} in"
            f" {self.window:g} seconds (max_restarts); restart() tries again. The last:{shown}",
            env_ids=self.env_ids,
            faults=self.faults,
        )
