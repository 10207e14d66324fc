"""Gauges: counters that hosts update in the slot table, where they can be read at any time.

Reading them does not disturb workers, and works even if a worker hangs or has died. Step times are
counted in buckets of a quarter of an octave, so percentiles are exact to an eighth. Environments of
a whole batch are timed individually only now and then, more often if steps are slow.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from agym.core.protocol.memory import Field
from agym.core.protocol.metrics.spans import SpanLog, span_fields
from agym.core.protocol.typing import Array

# Four per power of two nanoseconds, up to more than an hour.
BUCKETS = 4 * 43

# Cost of timing a round and each of its steps, and the share of their time that it may take.
ROUND_SECONDS, TIMING_SECONDS, TIMING_SHARE = 10e-6, 1e-6, 1 / 200

# The first step after a thread was idle finds cold caches. That takes up to 0.1 ms (CartPole, on a
# busy machine) and is not the environment's time. Up to ``WAKING`` nanoseconds are subtracted, down
# to the median of the host's last ``USUAL`` times without idling before.
WAKING, USUAL = 500_000, 8

# Average wait for the next timing of fast environments, in rounds; slower environments wait less.
MAX_ROUNDS = 32

clock = time.perf_counter_ns

# Gauges of a host, in its first environment's row.
HOST_GAUGES = ("rounds", "busy", "rendering", "began", "ended")

# Gauges of each environment. The last five are whether it waits behind the concurrency limit, and
# how many nanoseconds it has waited there; how many it has waited for a turn under a rate limit,
# and the time of its latest turn; and the sum of ``info["cost"]``.
ENV_GAUGES = (
    "steps", "episodes", "times", "waiting", "queued", "rate_waited", "rate_turn", "cost",
)  # fmt: skip


def gauge_fields(num_envs: int) -> dict[str, Field]:
    """Return the arrays of the gauges, with a row per environment.

    A host's gauges are in its first environment's row.
    """
    kinds = (*HOST_GAUGES, *ENV_GAUGES)
    fields: dict[str, Field] = {kind: (np.dtype(np.int64), (num_envs,)) for kind in kinds}
    fields["times"] = np.dtype(np.uint32), (num_envs, BUCKETS)
    fields["cost"] = np.dtype(np.float64), (num_envs,)
    fields.update(span_fields(num_envs))
    return fields


class Gauges:
    """The gauges of a table.

    Attributes:
        steps: Steps that were not steps of a host's whole range, by environment.
        rounds: Steps of a host's whole range.
        busy: Nanoseconds in which the host ran operations.
        rendering: Nanoseconds in which it rendered.
        began: When the host started its latest step, in nanoseconds of the system's clock.
        ended: When that step ended.
        times: Number of timed steps by bucket.
        waiting: Whether an environment waits for a turn.
        queued: Nanoseconds in which it waited for one.
        cost: The sum of an environment's ``info["cost"]``.
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        # Single values are read and written through memoryviews, which is faster than through
        # arrays. The words are aligned: a reader in another process sees an old or a new value.
        views = {name: array.data for name, array in arrays.items()}
        self.steps, self.episodes = views["steps"], views["episodes"]
        self.rounds, self.busy = views["rounds"], views["busy"]
        self.rendering = views["rendering"]
        self.began, self.ended = views["began"], views["ended"]
        self.times = views["times"]
        self.waiting, self.queued = views["waiting"], views["queued"]
        self.cost: Any = views["cost"]  # floats, which mypy does not know

    def totals(self, ranges: Sequence[range]) -> Array:
        """Return the number of steps so far of each environment, given the ranges of the hosts."""
        totals = self.arrays["steps"].copy()
        for ids in ranges:
            totals[ids.start : ids.stop] += self.rounds[ids.start]
        return totals

    def settle(self, ids: range) -> None:
        """Add the rounds of a host that ends to the steps, before another host gets its range."""
        self.arrays["steps"][ids.start : ids.stop] += self.rounds[ids.start]
        self.rounds[ids.start] = 0


class Meter:
    """Updates the gauges of one host; mirrors the most frequent ones in plain attributes."""

    def __init__(self, gauges: Gauges, first: int) -> None:
        """Continue from the current values of the gauges."""
        self._gauges = gauges
        self._first = first
        self._whole_rounds = gauges.rounds[first]
        self._busy = gauges.busy[first]
        self._rounds = 0
        self._next = 1
        self._dice = 1
        self._started = 0
        self._running = 0
        self._timed_until = 0
        self._warm: deque[int] = deque(maxlen=USUAL)
        self._times = gauges.times
        self._spans = SpanLog(gauges.arrays, first)

    def start(self, start: int, stop: int, *, whole: bool) -> bool:
        """Start a step; return whether to time each environment."""
        gauges, first = self._gauges, self._first
        if whole:
            self._whole_rounds = gauges.rounds[first] = self._whole_rounds + 1
        else:
            for slot in range(start, stop):
                gauges.steps[slot] += 1
        self._rounds = rounds = self._rounds + 1
        self._started = gauges.began[first] = clock()
        return rounds >= self._next

    def end(self, count: int, *, timed: bool) -> None:
        """End a step of ``count`` environments."""
        gauges, first = self._gauges, self._first
        now = gauges.ended[first] = clock()
        nanoseconds = now - self._started
        self._busy = gauges.busy[first] = self._busy + nanoseconds
        if self._spans.recording[0]:
            self._spans.add("step", count, self._started, now)
        if timed:
            self._schedule(nanoseconds, count)

    def end_timing(self) -> None:
        """Note the end of a round's timed steps."""
        self._timed_until = clock()

    def idle_until(self, started: int) -> int:
        """Return for how long the host was idle when an environment started a step."""
        if self._running > 1:
            return 0
        return max(0, started - max(self._gauges.ended[self._first], self._timed_until))

    def timed(self, slot: int, nanoseconds: int, idle: int = 0) -> None:
        """Count the duration of a step, and correct it for the idle time before it."""
        if not idle:
            self._warm.append(nanoseconds)
        elif self._warm:
            usual = sorted(self._warm)[len(self._warm) // 2]
            nanoseconds = max(min(nanoseconds, usual), nanoseconds - min(idle, WAKING))
        self._times[slot, bucket_of(nanoseconds)] += 1

    def timed_alike(self, start: int, stop: int, nanoseconds: int) -> None:
        """Count the same duration for several environments, which stepped together."""
        self._gauges.arrays["times"][start:stop, bucket_of(nanoseconds)] += 1

    def _schedule(self, nanoseconds: int, count: int) -> None:
        """Decide when to time again, after a round of ``count`` timed environments."""
        cost = ROUND_SECONDS + TIMING_SECONDS * count
        quick = cost / TIMING_SHARE * 1e9 / max(nanoseconds, 1)
        # A pseudorandom wait, to avoid synchronizing with anything periodic.
        self._dice = self._dice * 75 % 65537
        wait = min(MAX_ROUNDS, int(quick))
        self._next = self._rounds + 1 + (wait * (self._dice & 1023) >> 9) if wait else self._rounds

    def start_one(self, slot: int, kind: str) -> int:
        """Start an operation of one of several environments that run concurrently.

        Returns:
            The start time for :meth:`end_one`; 0 if it is not needed.
        """
        gauges = self._gauges
        if not self._running:
            self._started = gauges.began[self._first] = clock()
        self._running += 1
        if kind == "step":
            gauges.steps[slot] += 1
            return clock() if self._spans.recording[0] else 0
        return clock()

    def end_one(self, slot: int, kind: str, started: int) -> None:
        """End an operation from :meth:`start_one`."""
        gauges, first = self._gauges, self._first
        self._running -= 1
        if kind == "render":
            gauges.rendering[first] += clock() - started
        if started and self._spans.recording[0]:
            self._spans.add(kind, -1 - slot, started, clock())
        if not self._running:
            now = gauges.ended[first] = clock()
            self.add_busy(now - self._started)

    def did(self, kind: str, count: int, started: int) -> None:
        """Record an operation other than a step."""
        now = clock()
        self.add_busy(now - started)
        if kind == "render":
            self._gauges.rendering[self._first] += now - started
        if self._spans.recording[0]:
            self._spans.add(kind, count, started, now)

    def add_busy(self, nanoseconds: int) -> None:
        self._busy += nanoseconds
        self._gauges.busy[self._first] = self._busy

    def waits(self, slot: int) -> None:
        """Note that an environment waits for a turn."""
        self._gauges.waiting[slot] = 1

    def waited(self, slot: int, nanoseconds: int) -> None:
        """Note that its turn has come, and count how long it waited."""
        self._gauges.waiting[slot] = 0
        self._gauges.queued[slot] += nanoseconds

    def spent(self, slot: int, info: Any) -> None:
        """Add ``info["cost"]``, if it is a finite number."""
        if not isinstance(info, dict) or "cost" not in info:
            return
        cost = info["cost"]
        if not isinstance(cost, Real) and getattr(cost, "shape", None) == ():
            cost = cost.item()  # a tensor, or an array without dimensions
        if isinstance(cost, Real) and math.isfinite(cost):
            self._gauges.cost[slot] += float(cost)

    def count_episode(self, slot: int) -> None:
        self._gauges.episodes[slot] += 1

    def episodes(self, slot: int) -> int:
        """Return how many episodes of an environment have started, including other workers."""
        return int(self._gauges.episodes[slot])

    def count_episodes(self, first: int, mask: Array) -> None:
        """Count an episode of each environment in a mask, which starts at the id ``first``."""
        self._gauges.arrays["episodes"][first : first + len(mask)] += mask


def _mid(bucket: int) -> float:
    octave, quarter = bucket >> 2, bucket & 3
    return float(2**octave * (1 + (quarter + 0.5) / 4)) / 1e9


# Middle of each bucket, in seconds.
MIDS = np.array([_mid(bucket) for bucket in range(BUCKETS)])


def bucket_of(nanoseconds: int) -> int:
    """Return the bucket of a duration."""
    octave = nanoseconds.bit_length() - 1
    if octave < 2:
        return 0
    return min(octave << 2 | nanoseconds >> octave - 2 & 3, BUCKETS - 1)


def percentiles(counts: Array, shares: Sequence[float]) -> list[list[float | None]]:
    """Return, for each environment, the durations below which given shares of its steps lie.

    ``counts`` are step times by bucket, ``(n, BUCKETS)``. The result is ``n`` lists of ``k`` times
    in seconds, one per share, or of ``None`` if no step was timed.
    """
    below = np.cumsum(counts, axis=1, dtype=np.int64)
    totals = below[:, -1:]
    columns = [MIDS[(below < share * totals).sum(axis=1)] for share in shares]
    rows = np.stack(columns, axis=1).tolist()
    return [
        row if total else [None] * len(shares)
        for row, total in zip(rows, totals[:, 0].tolist(), strict=True)
    ]
