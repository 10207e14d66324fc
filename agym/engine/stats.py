"""Statistics: what ``stats()`` returns, and how the gauges are read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from statistics import median

import numpy as np

from agym.backends.base import Backend
from agym.engine.batches.env_rows import EnvRows
from agym.engine.calls.waits import NO_WAIT, LoopLag, Waited, Waits
from agym.engine.faults.recovery import Recovery
from agym.engine.hooks.hooks import Hooks
from agym.protocol.arguments import Ids
from agym.protocol.messages.failures import name_envs
from agym.protocol.metrics.gauges import FLEET_SUMS, WAKING, Gauges, clock, percentiles
from agym.protocol.typing import Array

# A straggler's median step takes more than this many times the median of all environments.
STRAGGLER = 5.0

# One in this many steps of all environments is timed end to end.
FOLLOWED = 16

# How many of these are kept, for whoever wants to compare them with a prediction.
FIRST = 16

# Hooks that take more seconds than this have held a result back.
HELD_SECONDS = 1e-4


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
        steps: Steps so far, including those that reset it and those on which it held still.
        episodes: Episodes begun.
        p50: Median of its timed steps in seconds, ``None`` before the first. The time its worker
            took to wake up is left out, as far as the worker's other environments show it.
        p99: 99th percentile likewise.
        faults: How often it raised, missed a deadline, or lost its worker.
        cost: The sum of ``info["cost"]`` over its steps and resets, also of infos that
            ``infos="none"`` leaves out; what is no finite number does not count.
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
        pid: Its process, or this one if it runs in it.
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
class FleetStats:
    """What the options of :class:`~agym.Fleet` did so far, over all environments.

    Example:
        >>> import agym
        >>> fleet = agym.Fleet(rate_limit=200)
        >>> with agym.make("CartPole-v1", 2, fleet=fleet) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     envs.stats().fleet.rate_waited > 0
        True

    Attributes:
        rate_waited: Seconds that calls waited for their turn, summed over environments.
        hedged: Steps that were made a second time.
        hedges_won: Steps of which the second call returned first.
    """

    rate_waited: float = 0.0
    hedged: int = 0
    hedges_won: int = 0

    @classmethod
    def read(cls, gauges: Gauges) -> FleetStats:
        """Sum the gauges."""
        waited, hedged, won = (int(gauges.arrays[name].sum()) for name in FLEET_SUMS)
        return cls(waited / 1e9, hedged, won)


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
        queue: From a step's dispatch until workers began it.
        transport: From the end of a batch's last environment to the caller.
        work: In between.
        caller: Between a batch and the caller's next step.
        limit: What most of a step's time is spent on: ``"environments"``, ``"transport"`` (with
            ``queue``) or ``"caller"``; ``"page"`` while the live page holds results back for more
            than half of the time.
        stragglers: Environments whose steps take several times as long as their peers'.
        waited: The seconds that were waited so far, by cause.
        loop_lag: How late the caller's event loop runs callbacks; ``None`` without one, and before
            it has awaited environments for 20 ms.
        remark: What was learned from these steps, in a sentence; usually empty.
        fleet: What the options of :class:`~agym.Fleet` did.
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
    remark: str = ""
    waited: Waited = NO_WAIT
    loop_lag: LoopLag | None = None
    fleet: FleetStats = FleetStats()

    @property
    def cost(self) -> float:
        """The sum of ``info["cost"]`` over all environments."""
        return math.fsum(env.cost for env in self.envs)

    def __repr__(self) -> str:
        steps = sum(env.steps for env in self.envs)
        parts = {
            "queue": self.queue,
            "environments": self.work,
            "transport": self.transport,
            "then caller": self.caller,
        }
        lines = [
            f"{len(self.envs)} environments, {steps} steps in {self.seconds:.1f} s",
            f"  limited by: {self.limit}",
            "  a step: " + ", ".join(f"{name} {_micro(part)}" for name, part in parts.items()),
        ]
        for worker in self.workers:
            memory = "gone" if worker.rss is None else f"{worker.rss / 1e6:.0f} MB"
            lines.append(
                f"  worker {worker.worker} (pid {worker.pid}): {worker.busy:.0%} busy, {memory},"
                f" {worker.restarts} restarts, {name_envs(worker.env_ids)}"
            )
        faults = {env.env_id: env.faults for env in self.envs if env.faults}
        if faults:  # including those that were handled without being raised
            lines.append(f"  faults: {sum(faults.values())}, in {name_envs([*faults])}")
        if self.stragglers:
            lines.append(f"  stragglers: {name_envs(self.stragglers)}")
        if self.fleet != FleetStats():
            fleet = {field.name: getattr(self.fleet, field.name) for field in fields(self.fleet)}
            done = ", ".join(f"{name} {value:.6g}" for name, value in fleet.items() if value)
            lines.append(f"  fleet: {done}")
        if str(self.waited):
            lines.append(f"  waited for: {self.waited}")
        if self.loop_lag is not None:
            lines.append(f"  event loop: {self.loop_lag}")
        if self.cost:
            lines.append(f"  cost: {self.cost:.6g}")
        if self.remark:
            lines.append(f"  {self.remark}")
        return "\n".join(lines)


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"


class Traffic:
    """Times some steps of all environments, from dispatch to result.

    Attributes:
        left: How many steps are left until one is timed; the short way counts by itself.
        returned: When the last timed step came back, until the caller's next step.
        following: The number of the latest step that is timed, and when it was dispatched.
        opened: When the environments were made.
        first: The first timed steps: from dispatch to the end of the last environment, and what all
            workers took together, in nanoseconds.
        learn: Called once with these; ``None`` if nobody wants to know.
        remark: What was learned, in a sentence.
        waits: What the caller waited for.
    """

    remark = ""
    learn: Callable[[Sequence[tuple[int, int]]], None] | None = None

    def __init__(self, hooks: Hooks) -> None:
        """Start; ``hooks`` may hold results back."""
        self.left = 1
        self.returned = 0
        self.waits = Waits()
        self.following = (-1, 0)
        self._followed = 0
        self._queue = self._work = self._transport = self._caller = 0
        self._hooks = hooks
        self._held = 0.0  # as a share of the time between the latest two results
        self._release = 0.0
        self.opened = time.monotonic()
        self.first: list[tuple[int, int]] = []

    def dispatch(self, number: int) -> None:
        """Note that a step of all environments is dispatched while none is under way."""
        self.left -= 1
        if self.returned or not self.left:
            self.begin(number)

    def begin(self, number: int) -> int:
        """Time the caller before this step, and the step if it is due; return when it began."""
        now = clock()
        if self.returned:
            self._caller += now - self.returned
            self.returned = 0
        if self.left > 0:
            return 0
        self.left, self.following = FOLLOWED, (number, now)
        return now

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Time how long hooks hold the latest result back.

        After a hold, the next step is not timed, because its workers have fallen asleep.
        """
        self._held = math.inf
        begun = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self.waits.hooks += now - begun
            self._held, self._release = (now - begun) / (now - self._release), now
            if now - begun > HELD_SECONDS:
                self.left, self.returned = FOLLOWED, 0

    def settle(self, followed: int, gauges: Gauges, ranges: Sequence[range]) -> None:
        """Add up the times of a step that has come back; ``followed`` is when it began."""
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
            self.first.append((max(ended) - followed, sum(ended) - sum(began)))
            if len(self.first) == FIRST:
                learn, self.learn = self.learn, None
                learn(self.first)

    def read(
        self,
        gauges: Gauges,
        ranges: Sequence[range],
        pids: Sequence[int | None],
        faults: Sequence[int],
        restarts: Sequence[int],
    ) -> Stats:
        seconds = time.monotonic() - self.opened
        workers = tuple(
            WorkerStats(
                worker,
                ids,
                pid,
                gauges.busy[ids.start] / 1e9 / seconds,
                restarts[worker],
                _rss(pid),
            )
            for worker, (ids, pid) in enumerate(zip(ranges, pids, strict=True))
        )
        times = percentiles(gauges.arrays["times"], (0.5, 0.99))
        steps = gauges.totals(ranges).tolist()
        envs = tuple(
            EnvStats(
                i,
                steps[i],
                gauges.episodes[i],
                p50,
                p99,
                faults[i],
                gauges.cost[i],
            )
            for ids in ranges
            for i, (p50, p99) in zip(ids, times[ids.start : ids.stop], strict=True)
        )
        scale = 1e9 * max(1, self._followed)
        queue, transport = self._queue / scale, self._transport / scale
        work, caller = self._work / scale, self._caller / scale
        limit = self._limit(queue + transport, work, caller, max(w.busy for w in workers))
        return Stats(
            seconds, envs, workers, queue, transport, work, caller, limit,
            _stragglers(envs, ranges), self.remark, fleet=FleetStats.read(gauges),
            waited=self.waits.read(gauges, FOLLOWED), loop_lag=self.waits.lag.read(),
        )  # fmt: skip

    def _limit(self, transport: float, work: float, caller: float, busiest: float) -> str:
        if self._held > 0.5 and self._hooks.holds:
            return "page"
        if not self._followed:  # only single environments were stepped, or results were held back
            return "environments" if busiest > 0.5 else "caller"
        shares = {"environments": work, "transport": transport, "caller": caller}
        return max(shares, key=lambda name: shares[name])


class Statistics:
    """Reads the statistics of open environments.

    Attributes:
        last: The statistics at the moment of closing.
        restored: Whether snapshots were restored.
    """

    last: Stats | None = None
    restored = False

    def __init__(
        self, traffic: Traffic, rows: EnvRows, backend: Backend, recovery: Recovery
    ) -> None:
        self._traffic = traffic
        self._rows = rows
        self._backend = backend
        self._recovery = recovery

    def reader(self) -> Callable[[], Stats]:
        """Return a function that reads the statistics at any time, in any thread."""
        assert self._rows.opened is not None
        gauges, backend, recovery = self._rows.opened.table.gauges, self._backend, self._recovery
        return lambda: self._traffic.read(
            gauges,
            backend.ranges,
            backend.workers.pids,
            recovery.fault_log.counts,
            recovery.workers.restarts,
        )

    def steps(self) -> Array:
        """Return the number of steps so far of each environment; callable in any thread."""
        if self.last is not None:
            return np.array([env.steps for env in self.last.envs])
        assert self._rows.opened is not None
        return self._rows.opened.table.gauges.totals(self._backend.ranges)

    def unstepped(self) -> Ids:
        """Return the environments without a step so far, whose first episode is still to come."""
        return () if self.restored else tuple(np.flatnonzero(self.steps() == 0).tolist())

    def keep(self) -> None:
        """Read the statistics for the last time."""
        self.last = self.reader()()


def _stragglers(envs: Sequence[EnvStats], ranges: Sequence[range]) -> tuple[int, ...]:
    times = {env.env_id: env.p50 for env in envs if env.p50 is not None}
    usual = median(times.values()) if times else 0.0
    alone = [ids.start for ids in ranges if len(ids) == 1]
    if len(alone) < len(ranges):  # a worker with one environment wakes up for each of its steps
        times.update((i, times[i] - WAKING / 1e9) for i in alone if i in times)
    return tuple(i for i, seconds in times.items() if seconds > STRAGGLER * usual)


def _rss(pid: int | None) -> int | None:
    if pid is None:
        return None
    try:
        import psutil  # a late import, because few programs ask for statistics

        return int(psutil.Process(pid).memory_info().rss)
    except Exception:  # the process is gone; or Python is about to end, and imports nothing
        return None
