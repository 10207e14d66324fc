"""Statistics of a batched policy."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agym.rollouts.requests import Gathered, Reason

# The number of latest waits that the percentiles are computed from.
MAX_WAITS = 4096


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
        waiting: Requests that are not answered yet.
        answered: Requests that were answered.
        failed: Requests whose call raised.
        calls: Calls of the function.
        batch_sizes: For each batch size, the number of calls with this many observations.
        reasons: The number of calls for each reason: the batch was ``"full"``, all tasks were
            waiting (``"all_waiting"``), or ``max_wait`` was over (``"time"``).
        wait_p50: Median time between a request and its call, of the latest 4096 requests.
        wait_p99: 99th percentile of this time; 0 before the first call.
        call: Average time of a call.
        busy: Total time of all calls, as a share of ``seconds``; up to 1 per worker.
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
            f"  batch: {self.batch_size:.1f} observations on average ({reasons})",
            f"  call: {self.call * 1e3:.2f} ms on average; busy {self.busy:.0%} of the time",
            f"  wait: median {self.wait_p50 * 1e3:.2f} ms, 99 % below {self.wait_p99 * 1e3:.2f} ms",
            f"  {self.waiting} waiting, {self.failed} failed",
        ]
        return "\n".join(lines)


class Counts:
    """Counts the calls and requests of a policy."""

    def __init__(self) -> None:
        self._made_at = time.monotonic()
        self._answered = self._failed = 0
        self._call_seconds = 0.0
        self._sizes: Counter[int] = Counter()
        self._reasons: Counter[Reason] = Counter()
        self._waits: deque[float] = deque(maxlen=MAX_WAITS)

    def started(self, batch: Gathered, now: float) -> None:
        """Count a batch whose call starts."""
        self._sizes[len(batch.requests)] += 1
        self._reasons[batch.reason] += 1
        self._waits.extend([now - request.asked for request in batch.requests])

    def finished(self, requests: int, seconds: float, *, failed: bool) -> None:
        """Count a call that has returned or raised."""
        self._call_seconds += seconds
        if failed:
            self._failed += requests
        else:
            self._answered += requests

    def read(self, waiting: int, version: int) -> PolicyStats:
        """Return the statistics so far. Callable from any thread, because each copy is atomic."""
        seconds = time.monotonic() - self._made_at
        sizes, reasons, waits = dict(self._sizes), dict(self._reasons), list(self._waits)
        calls = sum(sizes.values())
        p50, p99 = np.percentile(waits, (50, 99)).tolist() if waits else (0.0, 0.0)
        return PolicyStats(
            seconds, waiting, self._answered, self._failed, calls, dict(sorted(sizes.items())),
            reasons, p50, p99, self._call_seconds / max(1, calls), self._call_seconds / seconds,
            version,
        )  # fmt: skip
