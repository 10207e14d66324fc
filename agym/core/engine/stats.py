"""Statistics: the records that `stats()` returns, and how steps and waits are timed."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np

from agym.core._system.load import CoreUse, Load, rss_of
from agym.core.engine.hooks import Hooks
from agym.core.protocol.messages.failures import name_envs
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


@dataclass(frozen=True)
class EnvStats:
    """The statistics of one environment.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     result = envs.step([0, 1])
        ...     [env.steps for env in envs.stats().envs]
        [1, 1]

    Attributes:
        env_id: Its id.
        steps: Steps so far, including those that reset it and steps on hold.
        episodes: Episodes started.
        p50: Median of its timed steps in seconds, ``None`` before the first. The time its worker
            took to wake up is left out, as far as the worker's other environments show it.
        p99: Their 99th percentile.
        faults: How often it raised, missed a deadline, or lost its worker.
        cost: The sum of ``info["cost"]`` over its steps and resets, also of infos that
            ``infos="none"`` leaves out; values that are not finite numbers do not count.
    """

    env_id: int
    steps: int
    episodes: int
    p50: float | None
    p99: float | None
    faults: int
    cost: float = 0.0


@dataclass(frozen=True)
class WorkerStats:
    """The statistics of one worker.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4, backend="thread", workers=2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     [list(worker.env_ids) for worker in envs.stats().workers]
        [[0, 1], [2, 3]]

    Attributes:
        worker: Its index.
        env_ids: Its environments.
        pid: Its process, or this process if it runs here.
        busy: Share of the time since the start in which it ran environments.
        restarts: How often it was replaced.
        rss: Memory of its process in bytes; ``None`` if the process is gone.
    """

    worker: int
    env_ids: range
    pid: int | None
    busy: float
    restarts: int
    rss: int | None


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
        environments: The caller waited for results: for the environments, and for the transport
            both ways. Each await counts, so with concurrent awaits it exceeds the time that passed.
            Environments in the caller's thread do not count.
        hooks: A result was there, but the live page held it back.
        concurrency: Environments waited for a turn (``max_concurrency``), summed over them.
        rate_limit: Environments waited for a turn under ``rate_limit``, summed over them.
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

    A timer measures every 20 ms. The millisecond by which any timer may be late does not count.

    Attributes:
        p50: The median, to within an eighth.
        p99: The 99th percentile, to within an eighth.
        longest: The maximum, exact.
    """

    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return (
            f"median {1e3 * self.p50:.1f} ms late, 99th percentile {1e3 * self.p99:.1f} ms,"
            f" longest {1e3 * self.longest:.1f} ms"
        )


@dataclass(frozen=True)
class Stats:
    """The statistics of a run; times are averages in seconds.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, backend="serial") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     results = [envs.step([0, 1]) for _ in range(8)]
        ...     stats = envs.stats()
        >>> stats.envs[0].steps, len(stats.workers), stats.work > 0
        (8, 1, True)

    Attributes:
        seconds: Time since the environments were made.
        envs: Each environment.
        workers: Each worker.
        queue: From a step's dispatch until the workers started it.
        transport: From the end of a batch's last environment until the caller has the result.
        work: The time in between, in the workers.
        caller: Between a batch and the caller's next step.
        limit: Where most of a step's time goes: ``"environments"``, ``"transport"`` (with
            ``queue``) or ``"caller"``; ``"page"`` while the live page holds results back for more
            than half of the time.
        stragglers: Environments whose steps take several times as long as their peers'.
        waited: The seconds waited so far, by cause.
        loop_lag: How late the caller's event loop runs callbacks; ``None`` without a loop, and
            before the loop has awaited environments for 20 ms.
        cores: How the cores were used since the environments were made, on average; ``None``
            unless there are worker processes on this machine.
        crowded: Another program, or another thread of this program, has recently kept the caller
            or a worker off its core. The process that noticed it sleeps between steps, for 20 ms to
            1.3 s, and then tries to spin again.
        remark: One sentence about the first steps; usually empty.
    """

    seconds: float
    envs: tuple[EnvStats, ...]
    workers: tuple[WorkerStats, ...]
    queue: float
    transport: float
    work: float
    caller: float
    limit: str
    stragglers: tuple[int, ...]
    remark: str
    waited: Waited
    loop_lag: LoopLag | None
    cores: CoreUse | None
    crowded: bool

    @property
    def cost(self) -> float:
        """The sum of ``info["cost"]`` over all environments."""
        return math.fsum(env.cost for env in self.envs)

    @property
    def _advice(self) -> str:
        """What to do about crowded cores, in a sentence."""
        assert self.cores is not None
        stepping = sum(worker.busy for worker in self.workers if worker.pid == os.getpid())
        if self.cores.program - stepping > self.cores.others:
            return (
                "this program's own threads keep the cores busy, often only by spinning: try"
                " torch.set_num_threads(1), set OMP_WAIT_POLICY=passive before importing torch,"
                " or use fewer workers"
            )
        return (
            'fewer workers, or backend="serial", may be faster now; backend="auto" chooses again'
            " when you make new environments"
        )

    def __repr__(self) -> str:
        steps = sum(env.steps for env in self.envs)
        names = ("queue", "environments", "transport", "then caller")
        parts = zip(names, (self.queue, self.work, self.transport, self.caller), strict=True)
        lines = [
            f"{len(self.envs)} environments, {steps} steps in {self.seconds:.1f} s",
            f"  limited by: {self.limit}",
            "  a step: " + ", ".join(f"{name} {1e6 * part:.0f} µs" for name, part in parts),
        ]
        for worker in self.workers:
            memory = "gone" if worker.rss is None else f"{worker.rss / 1e6:.0f} MB"
            lines.append(
                f"  worker {worker.worker} (pid {worker.pid}): {worker.busy:.0%} busy, {memory},"
                f" {worker.restarts} restarts, {name_envs(worker.env_ids)}"
            )
        faults = sum(env.faults for env in self.envs)  # also those that were not raised
        faulty = [env.env_id for env in self.envs if env.faults]
        notes = {
            "faults": faults and f"{faults}, in {name_envs(faulty)}",
            "stragglers": self.stragglers and name_envs(self.stragglers),
            "waited for": str(self.waited),
            "event loop": self.loop_lag,
            "cost": self.cost and f"{self.cost:.6g}",
        }
        if self.crowded and self.cores is not None:
            lines += [f"  crowded cores: {self.cores}", f"  {self._advice}"]
        lines += [f"  {name}: {note}" for name, note in notes.items() if note]
        if self.remark:
            lines.append(f"  {self.remark}")
        return "\n".join(lines)


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
        self._load: Load | None = None

    def follow_cores(self) -> None:
        """Start to record the use of the cores."""
        self._load = Load()

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
            _stragglers(envs, ranges), self.remark,
            Waited(self.waited, self._held_back, *turns), self.lag.read(),
            None if self._load is None else self._load.read(pids), crowded,
        )  # fmt: skip


def _stragglers(envs: Sequence[EnvStats], ranges: Sequence[range]) -> tuple[int, ...]:
    times = {env.env_id: env.p50 for env in envs if env.p50 is not None}
    usual = median(times.values()) if times else 0.0
    alone = [ids.start for ids in ranges if len(ids) == 1]
    if len(alone) < len(ranges):  # a worker with one environment wakes up for each of its steps
        times.update((i, times[i] - WAKING / 1e9) for i in alone if i in times)
    return tuple(i for i, seconds in times.items() if seconds > STRAGGLER * usual)
