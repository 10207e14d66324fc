"""Times some steps and the caller's waits, for the statistics (``engine/stats.py``)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import numpy as np

from agym.core._system.load import Load, rss_of
from agym.core.engine.hooks import Hooks
from agym.core.engine.stats import EnvStats, LoopLag, Stats, Waited, WorkerStats
from agym.core.protocol.metrics.gauges import BUCKETS, WAKING, Gauges, bucket_of, clock, percentiles

# A straggler's median step takes more than this many times the median of all environments.
STRAGGLER = 5.0

# One in this many steps of all environments is timed end to end.
BATCHES_PER_SAMPLE = 16

# How many of the first timed steps are kept, to compare them with a prediction.
FIRST = 16

# Hooks that take longer than this, in seconds, have held a result back.
HELD_SECONDS = 1e-4

# The interval, in seconds, at which the lateness of the event loop is measured.
LOOK_SECONDS = 0.02

# Timers are late by up to a millisecond anyway: ``epoll`` counts in whole ones, and so does uvloop.
TIMER_SECONDS = 0.001


class LagMeter:
    """Measures how late an event loop is, from the first await of environments to the last."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self._longest = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awaited = False
        self._due = 0.0

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a task of the loop awaits environments."""
        self._awaited = True
        if loop is not self._loop:
            self._loop = loop
            self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = time.perf_counter() + LOOK_SECONDS
        loop.call_later(LOOK_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return  # a timer of an earlier loop
        late = max(0.0, time.perf_counter() - self._due - TIMER_SECONDS)
        self._counts[bucket_of(int(late * 1e9))] += 1
        self._longest = max(self._longest, late)
        if self._awaited:
            self._awaited = False
            self._set_timer(loop)
        else:
            self._loop = None

    def read(self) -> LoopLag | None:
        """Return the measurements, ``None`` if there are none."""
        ((p50, p99),) = percentiles(np.array([self._counts]), (0.5, 0.99))
        if p50 is None or p99 is None:
            return None
        return LoopLag(min(p50, self._longest), min(p99, self._longest), self._longest)


class Traffic:
    """Times some steps of all environments, from dispatch to result.

    Attributes:
        until_sample: Steps until the next timed step; counted down at each dispatch.
        returned: When the last timed step came back, until the caller's next step.
        following: The number of the latest timed step, and when it was dispatched.
        opened: When the environments were made.
        learn: Called once with the first timed steps, in nanoseconds: from dispatch to the end of
            the last environment, and the sum of all workers' times.
        remark: The result of that comparison, in one sentence.
        lag: Measures how late the caller's event loop is.
        waited: Seconds in which the caller waited for results.
        load: Measures the use of the cores, if that is recorded.
    """

    remark = ""
    learn: Callable[[Sequence[tuple[int, int]]], None] | None = None

    def __init__(self, hooks: Hooks) -> None:
        """Start; ``hooks`` may hold results back."""
        self.until_sample = 1
        self.returned = 0
        self.lag = LagMeter()
        self.waited = 0.0
        self._held_back = 0.0
        self.following = (-1, 0)
        self._followed = 0
        self._queue = self._work = self._transport = self._caller = 0
        self._hooks = hooks
        self._held = 0.0  # as a share of the time between the latest two results
        self._release = 0.0
        self.opened = time.monotonic()
        self._first: list[tuple[int, int]] = []
        self.load: Load | None = None

    def start(self, number: int) -> int:
        """Time the caller before this step, and the step if it is due; return its start time."""
        now = clock()
        if self.returned:
            self._caller += now - self.returned
            self.returned = 0
        if self.until_sample > 0:
            return 0
        self.until_sample, self.following = BATCHES_PER_SAMPLE, (number, now)
        return now

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Time how long hooks hold the latest result back.

        After a long hold, the next step is not timed, because the workers have gone to sleep.
        """
        self._held = math.inf
        started = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._held_back += now - started
            self._held, self._release = (now - started) / (now - self._release), now
            if now - started > HELD_SECONDS:
                self.until_sample, self.returned = BATCHES_PER_SAMPLE, 0

    def settle(self, followed: int, gauges: Gauges, ranges: Sequence[range]) -> None:
        """Add up the times of a step that has returned; ``followed`` is when it was dispatched."""
        firsts = [ids.start for ids in ranges]
        began = [gauges.began[first] for first in firsts]
        ended = [gauges.ended[first] for first in firsts]
        if min(began) < followed:
            return  # a worker was replaced in between
        now = self.returned = clock()
        self._followed += 1
        self._queue += sum(began) // len(began) - followed
        self._work += max(end - begin for begin, end in zip(began, ended, strict=True))
        self._transport += max(0, now - max(ended))
        if self.learn is not None:
            self._first.append((max(ended) - followed, sum(ended) - sum(began)))
            if len(self._first) == FIRST:
                learn, self.learn = self.learn, None
                learn(self._first)

    def read(
        self,
        gauges: Gauges,
        ranges: Sequence[range],
        pids: Sequence[int | None],
        faults: Sequence[int],
        restarts: Sequence[int],
        *,
        crowded: bool,
    ) -> Stats:
        seconds = time.monotonic() - self.opened
        workers = tuple(
            WorkerStats(
                k, ids, pid, gauges.busy[ids.start] / 1e9 / seconds, restarts[k], rss_of(pid)
            )
            for k, (ids, pid) in enumerate(zip(ranges, pids, strict=True))
        )
        times = percentiles(gauges.arrays["times"], (0.5, 0.99))
        steps = gauges.totals(ranges).tolist()
        envs = tuple(
            EnvStats(i, steps[i], gauges.episodes[i], p50, p99, faults[i], gauges.cost[i])
            for i, (p50, p99) in enumerate(times)
        )
        scale = 1e9 * max(1, self._followed)
        queue, transport = self._queue / scale, self._transport / scale
        work, caller = self._work / scale, self._caller / scale
        shares = {"environments": work, "transport": queue + transport, "caller": caller}
        if self._held > 0.5 and self._hooks.holds:
            limit = "page"
        elif self._followed:
            limit = max(shares, key=shares.__getitem__)
        else:  # only single environments were stepped, or results were held back
            busiest = max(worker.busy for worker in workers)
            limit = "environments" if busiest > 0.5 else "caller"
        turns = (int(gauges.arrays[name].sum()) / 1e9 for name in ("queued", "rate_waited"))
        return Stats(
            seconds, envs, workers, queue, transport, work, caller, limit,
            stragglers_of(envs, ranges), self.remark,
            Waited(self.waited, self._held_back, *turns), self.lag.read(),
            None if self.load is None else self.load.read(pids), crowded,
        )  # fmt: skip


def stragglers_of(envs: Sequence[EnvStats], ranges: Sequence[range]) -> tuple[int, ...]:
    """Return the environments whose steps take several times as long as usual."""
    times = {env.env_id: env.p50 for env in envs if env.p50 is not None}
    usual = median(times.values()) if times else 0.0
    alone = [ids.start for ids in ranges if len(ids) == 1]
    if len(alone) < len(ranges):  # a worker with one environment wakes up for each of its steps
        times.update((i, times[i] - WAKING / 1e9) for i in alone if i in times)
    return tuple(i for i, seconds in times.items() if seconds > STRAGGLER * usual)
