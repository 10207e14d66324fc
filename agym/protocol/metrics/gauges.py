"""Gauges: what hosts count while they run, in the table, so that anybody can read it at any time.

A caller that asks for statistics disturbs nobody, and also learns of workers that hang or died.
Times of steps are counted in buckets of a quarter of an octave, so that percentiles are exact to
an eighth; a whole batch is timed env by env only now and then, more often where steps are slow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from agym.protocol.memory import Field
from agym.protocol.metrics.spans import SpanLog, span_fields
from agym.protocol.typing import Array

# Four for each power of two nanoseconds, up to more than an hour.
BUCKETS = 4 * 43

# To time one step takes so long, and may cost so much of a step.
TIMING_SECONDS, TIMING_SHARE = 1e-6, 1 / 200

# What runs first after its thread was idle finds nothing in the caches of its core. That takes up
# to 0.1 ms (CartPole, on a busy machine) and is not the environment's time. So many nanoseconds are
# taken off at most, and so many of the host's other times tell what is usual.
WAKING, USUAL = 500_000, 8

# How many rounds a host of quick environments waits at least, and any at most, for the next timing.
MOST_ROUNDS = 32

clock = time.perf_counter_ns


def gauge_fields(num_envs: int) -> dict[str, Field]:
    """Memory for the gauges, a row per environment.

    Those of a host are in its first environment's row: all but ``steps``, ``episodes``, ``times``.
    """
    kinds = ("steps", "episodes", "rounds", "busy", "rendering", "began", "ended")
    fields: dict[str, Field] = {kind: (np.dtype(np.int64), (num_envs,)) for kind in kinds}
    fields["times"] = np.dtype(np.uint32), (num_envs, BUCKETS)
    fields.update(span_fields(num_envs))
    return fields


class Gauges:
    """All of them.

    Attributes:
        steps: Steps that were not of a host's whole range, by environment.
        episodes: Episodes begun.
        rounds: Steps of the whole range.
        busy: Nanoseconds in which the host ran something.
        rendering: Those in which it rendered.
        began: When the host began the latest step, in nanoseconds of the system's clock.
        ended: When it ended that.
        times: How many timed steps fell into each bucket.
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        """Use arrays in the table's memory."""
        self.arrays = arrays
        views = {name: array.data for name, array in arrays.items()}
        self.steps, self.episodes = views["steps"], views["episodes"]
        self.rounds, self.busy = views["rounds"], views["busy"]
        self.rendering = views["rendering"]
        self.began, self.ended = views["began"], views["ended"]
        self.times = views["times"]

    def settle(self, ranges: Sequence[range]) -> None:
        """Hosts with these environments end, and others will have them."""
        for ids in ranges:
            for slot in ids:
                self.steps[slot] += self.rounds[ids.start]
            self.rounds[ids.start] = 0


class Meter:
    """A host's hand on the gauges; what is written at every step is counted here as well."""

    def __init__(self, gauges: Gauges, first: int) -> None:
        """Begin to count on from where the gauges are."""
        self._gauges = gauges
        self._first = first
        self._whole_rounds = gauges.rounds[first]
        self._busy = gauges.busy[first]
        self._rounds = 0
        self._next = 1
        self._dice = 1
        self._begun = 0
        self._running = 0
        self._timed_until = 0
        self._warm: deque[int] = deque(maxlen=USUAL)
        self._spans = SpanLog(gauges.arrays, first)

    def begin(self, start: int, stop: int, *, whole: bool) -> bool:
        """A step begins; tells whether each environment is to be timed."""
        gauges, first = self._gauges, self._first
        if whole:
            self._whole_rounds = gauges.rounds[first] = self._whole_rounds + 1
        else:
            for slot in range(start, stop):
                gauges.steps[slot] += 1
        self._rounds = rounds = self._rounds + 1
        self._begun = gauges.began[first] = clock()
        return rounds >= self._next

    def end(self, count: int, *, timed: bool) -> None:
        """It has ended, of so many environments."""
        gauges, first = self._gauges, self._first
        now = gauges.ended[first] = clock()
        nanoseconds = now - self._begun
        self._busy = gauges.busy[first] = self._busy + nanoseconds
        if self._spans.recording[0]:
            self._spans.add("step", count, self._begun, now)
        if timed:
            self._schedule(nanoseconds, count)

    def end_timing(self) -> None:
        """The steps of a round were timed."""
        self._timed_until = clock()

    def idle_until(self, begun: int) -> int:
        """For how long the host had run nothing when an environment began a step."""
        if self._running > 1:
            return 0
        return max(0, begun - max(self._gauges.ended[self._first], self._timed_until))

    def timed(self, slot: int, nanoseconds: int, idle: int = 0) -> None:
        """An environment took so long for a step, before which the host was idle for so long."""
        if not idle:
            self._warm.append(nanoseconds)
        elif self._warm:
            usual = sorted(self._warm)[len(self._warm) // 2]
            nanoseconds = max(min(nanoseconds, usual), nanoseconds - min(idle, WAKING))
        self._gauges.times[slot, bucket_of(nanoseconds)] += 1

    def _schedule(self, nanoseconds: int, count: int) -> None:
        """So many environments were timed in a round; decide when to do that again."""
        quick = TIMING_SECONDS / TIMING_SHARE * 1e9 * count / max(nanoseconds, 1)
        # Not in step with anything that repeats.
        self._dice = self._dice * 75 % 65537
        wait = min(MOST_ROUNDS, int(quick))
        self._next = self._rounds + 1 + (wait * (self._dice & 1023) >> 9) if wait else self._rounds

    @contextmanager
    def running(self, slot: int, kind: str) -> Iterator[None]:
        """One of several environments that run at the same time does something."""
        gauges, first = self._gauges, self._first
        if not self._running:
            self._begun = gauges.began[first] = clock()
        self._running += 1
        begun = clock() if self._spans.recording[0] else 0
        started = clock() if kind == "render" else 0
        if kind == "step":
            gauges.steps[slot] += 1
        try:
            yield
        finally:
            self._running -= 1
            if kind == "render":
                gauges.rendering[first] += clock() - started
            if begun:
                self._spans.add(kind, -1 - slot, begun, clock())
            if not self._running:
                now = gauges.ended[first] = clock()
                self.add_busy(now - self._begun)

    def did(self, kind: str, count: int, begun: int) -> None:
        """The host has done what is no step with so many environments."""
        now = clock()
        self.add_busy(now - begun)
        if kind == "render":
            self._gauges.rendering[self._first] += now - begun
        if self._spans.recording[0]:
            self._spans.add(kind, count, begun, now)

    def add_busy(self, nanoseconds: int) -> None:
        """The host ran something for so long."""
        self._busy += nanoseconds
        self._gauges.busy[self._first] = self._busy

    def begin_episode(self, slot: int) -> None:
        """An episode begins."""
        self._gauges.episodes[slot] += 1


def _mid(bucket: int) -> float:
    octave, quarter = bucket >> 2, bucket & 3
    return float(2**octave * (1 + (quarter + 0.5) / 4)) / 1e9


# The middle of each bucket, in seconds.
MIDS = np.array([_mid(bucket) for bucket in range(BUCKETS)])


def bucket_of(nanoseconds: int) -> int:
    """The bucket for a duration."""
    octave = nanoseconds.bit_length() - 1
    if octave < 2:
        return 0
    return min(octave << 2 | nanoseconds >> octave - 2 & 3, BUCKETS - 1)


def percentiles(counts: Array, shares: Sequence[float]) -> list[list[float | None]]:
    """For each environment, the durations below which some shares of its timed steps lie.

    Args:
        counts: Their times by bucket, ``(n, BUCKETS)``.
        shares: Which shares, ``k`` of them.

    Returns:
        ``n`` lists of ``k`` times in seconds, or of ``None`` where no step was timed.
    """
    below = np.cumsum(counts, axis=1, dtype=np.int64)
    totals = below[:, -1:]
    columns = [MIDS[(below < share * totals).sum(axis=1)] for share in shares]
    rows = np.stack(columns, axis=1).tolist()
    return [
        row if total else [None] * len(shares)
        for row, total in zip(rows, totals[:, 0].tolist(), strict=True)
    ]
