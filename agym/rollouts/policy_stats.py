"""Statistics of a batched policy."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agym.rollouts.requests import Gathered, Reason

# How many of the latest waits are kept.
KEPT = 4096


@dataclass(frozen=True)
class PolicyStats:
    """The statistics of a batched policy; times are in seconds.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.batched(lambda observations: observations + 1) as policy:
        ...         await policy(1)
        ...         return policy.stats()
        >>> stats = agym.run(main())
        >>> stats.answered, stats.calls, stats.batch_sizes
        (1, 1, {1: 1})

    Attributes:
        seconds: Time since the policy was made.
        waiting: Requests without an answer at this moment.
        answered: Requests that were answered.
        failed: Requests whose call raised.
        calls: Calls of the function.
        batch_sizes: How many calls there were with so many observations.
        reasons: How many calls went because the batch was ``"full"``, because ``"all_waiting"``
            were in it, or because its ``"time"`` was up.
        wait_p50: Median of the time between a request and its call, of the latest 4096.
        wait_p99: 99th percentile likewise; 0 before the first.
        call: Average time of a call.
        busy: Share of the time in which a call ran, 1 for one worker that never rests.
        version: How often the weights were updated.
    """

    seconds: float
    waiting: int
    answered: int
    failed: int
    calls: int
    batch_sizes: Mapping[int, int]
    reasons: Mapping[Reason, int]
    wait_p50: float
    wait_p99: float
    call: float
    busy: float
    version: int

    @property
    def batch_size(self) -> float:
        """The average number of observations of a call."""
        total = sum(size * count for size, count in self.batch_sizes.items())
        return total / max(1, self.calls)

    @property
    def calls_per_second(self) -> float:
        """Calls per second since the policy was made."""
        return self.calls / self.seconds

    def __repr__(self) -> str:
        reasons = ", ".join(f"{name} {count}" for name, count in self.reasons.items()) or "none"
        rate = f"{self.calls_per_second:.0f} calls per second"
        lines = [
            f"{self.answered} requests in {self.calls} calls, {rate}, version {self.version}",
            f"  a batch: {self.batch_size:.1f} observations on average ({reasons})",
            f"  a call: {self.call * 1e3:.2f} ms; busy {self.busy:.0%} of the time",
            f"  a wait: {self.wait_p50 * 1e3:.2f} ms, 99 % below {self.wait_p99 * 1e3:.2f} ms",
            f"  {self.waiting} waiting, {self.failed} failed",
        ]
        return "\n".join(lines)


class Counts:
    """Counts what a policy does."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._answered = self._failed = 0
        self._spent = 0.0
        self._sizes: Counter[int] = Counter()
        self._reasons: Counter[Reason] = Counter()
        self._waits: deque[float] = deque(maxlen=KEPT)

    def gone(self, batch: Gathered, now: float) -> None:
        """Count a batch that goes."""
        self._sizes[len(batch.requests)] += 1
        self._reasons[batch.reason] += 1
        self._waits.extend([now - request.asked for request in batch.requests])

    def ended(self, requests: int, seconds: float, *, failed: bool) -> None:
        """Count a call that came back."""
        self._spent += seconds
        if failed:
            self._failed += requests
        else:
            self._answered += requests

    def read(self, waiting: int, version: int) -> PolicyStats:
        """Return all so far. Callable from any thread: each copy is atomic."""
        seconds = time.monotonic() - self._begun
        sizes, reasons, waits = dict(self._sizes), dict(self._reasons), list(self._waits)
        calls = sum(sizes.values())
        p50, p99 = np.percentile(waits, (50, 99)).tolist() if waits else (0.0, 0.0)
        return PolicyStats(
            seconds, waiting, self._answered, self._failed, calls, dict(sorted(sizes.items())),
            reasons, p50, p99, self._spent / max(1, calls), self._spent / seconds, version,
        )  # fmt: skip
