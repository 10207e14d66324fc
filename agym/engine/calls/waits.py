"""What the caller waited for, and how late its event loop was meanwhile."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np

from agym.protocol.metrics.gauges import BUCKETS, bucket_of, percentiles

# How often the lateness of the event loop is looked at.
LOOK_SECONDS = 0.02

# Timers are late by up to a millisecond anyway: ``epoll`` counts in whole ones, and so does uvloop.
TIMER_SECONDS = 0.001


@dataclass(frozen=True)
class Waited:
    """The seconds that were waited, by cause; see :class:`agym.Stats`.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, backend="thread") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     envs.stats().waited.environments > 0
        True

    Attributes:
        environments: The caller waited for results: for the environments, and for the way there and
            back. Each await counts, so with many at the same time it is more than what passed. What
            runs in the caller's thread is not waited for.
        hooks: The caller waited for a result that was there, but was held back: by the live page.
        concurrency: Environments waited for a turn (``max_concurrency``), summed over them.
        rate_limit: Likewise, for a turn under ``rate_limit``.
    """

    environments: float = 0.0
    hooks: float = 0.0
    concurrency: float = 0.0
    rate_limit: float = 0.0

    def __str__(self) -> str:
        parts = {name.replace("_", " "): value for name, value in vars(self).items() if value}
        return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in parts.items())


@dataclass(frozen=True)
class LoopLag:
    """How late the caller's event loop ran callbacks while it awaited environments, in seconds.

    Example:
        >>> import agym, asyncio
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 2, backend="thread") as envs:
        ...         await envs.reset(seed=0)
        ...         await asyncio.sleep(0.1)
        ...         return envs.stats().loop_lag
        >>> lag = agym.run(main())
        >>> lag is None or lag.p50 <= lag.p99
        True

    A timer looks every 20 ms. The millisecond by which any timer may be late does not count.

    Attributes:
        p50: The median, exact to an eighth.
        p99: The 99th percentile.
        longest: The longest, exactly.
    """

    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return (
            f"median {1e3 * self.p50:.1f} ms late, 99th percentile {1e3 * self.p99:.1f} ms,"
            f" longest {1e3 * self.longest:.1f} ms"
        )


class LagMeter:
    """Looks how late a loop is, from the first await of environments until there are none."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self._longest = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awaited = False
        self._due = 0.0

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that the loop awaits environments."""
        self._awaited = True
        if loop is not self._loop:
            self._loop = loop
            self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = time.perf_counter() + LOOK_SECONDS
        loop.call_later(LOOK_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return  # another loop came after it
        late = max(0.0, time.perf_counter() - self._due - TIMER_SECONDS)
        self._counts[bucket_of(int(late * 1e9))] += 1
        self._longest = max(self._longest, late)
        if self._awaited:
            self._awaited = False
            self._set_timer(loop)
        else:
            self._loop = None

    def read(self) -> LoopLag | None:
        """Return what was measured, ``None`` for nothing."""
        ((p50, p99),) = percentiles(np.array([self._counts]), (0.5, 0.99))
        if p50 is None or p99 is None:
            return None
        return LoopLag(min(p50, self._longest), min(p99, self._longest), self._longest)
