"""Statistics: what ``stats()`` gives, and how it is read off the gauges."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from agym.engine.hooks.throttle import Throttle
from agym.engine.ticket import Ticket
from agym.protocol.messages import name_ids
from agym.protocol.metrics.gauges import WAKING, Gauges, clock, percentiles

# An environment is a straggler whose typical step takes so many times as long as its peers'.
STRAGGLER = 5.0

# One whole step in so many is followed on its way.
FOLLOWED = 16

# A brake that takes so many seconds has held a result back.
HELD_SECONDS = 1e-4


@dataclass(frozen=True)
class EnvStats:
    """One environment.

    Attributes:
        env_id: Which one.
        steps: Steps so far, those that reset it and those that found it holding still included.
        episodes: Episodes begun.
        p50: Half of its timed steps took less, in seconds; ``None`` before one was timed. What its
            worker took to wake up is left out, as far as its other environments tell.
        p99: All but a hundredth took less.
        faults: How often it raised, missed a deadline, or lost its worker.
    """

    env_id: int
    steps: int
    episodes: int
    p50: float | None
    p99: float | None
    faults: int


@dataclass(frozen=True)
class WorkerStats:
    """One worker.

    Attributes:
        worker: Its index.
        env_ids: Its environments.
        pid: Its process; this one, if it is none of its own.
        busy: Share of the time since the start in which it ran environments.
        restarts: How often it was replaced.
        rss: Memory of its process, in bytes; ``None`` if it is gone.
    """

    worker: int
    env_ids: range
    pid: int | None
    busy: float
    restarts: int
    rss: int | None


@dataclass(frozen=True)
class Stats:
    """What is known of a run.

    Attributes:
        seconds: Time since the environments were made.
        envs: Each environment.
        workers: Each worker.
        queue: Seconds from a step's dispatch until workers began it, on average.
        transport: Seconds from the end of a batch's last environment to the caller, on average.
        work: Seconds in between, on average.
        caller: Seconds that the caller spent between a batch and its next step, on average.
        limit: What most of a step's time goes into: ``"environments"``, ``"transport"`` (with
            ``queue``) or ``"caller"``; ``"page"`` while that holds results back for more than
            half of the time.
        stragglers: Environments that take several times as long for a step as their peers.
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

    def __str__(self) -> str:
        """The whole in a few lines."""
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
                f" {worker.restarts} restarts, environments {name_ids(worker.env_ids)}"
            )
        faults = {env.env_id: env.faults for env in self.envs if env.faults}
        if faults:  # also those that the caller was spared
            lines.append(f"  faults: {sum(faults.values())}, in environments {name_ids([*faults])}")
        if self.stragglers:
            lines.append(f"  stragglers: environments {name_ids(self.stragglers)}")
        return "\n".join(lines)


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"


class Traffic:
    """Follows some steps of all environments on their way there and back."""

    def __init__(self) -> None:
        """Begin with the next step."""
        self._left = 1
        self._followed = 0
        self._queue = self._work = self._transport = self._caller = 0
        self._returned = 0
        self._brake: Throttle | None = None
        self._held = 0.0  # the share of the time between the latest two results
        self._release = 0.0
        self.opened = time.monotonic()

    def dispatch(self, ticket: Ticket) -> None:
        """A step of all environments goes off, with none on its way."""
        if self._returned:
            self._caller += clock() - self._returned
            self._returned = 0
        self._left -= 1
        if not self._left:
            self._left = FOLLOWED
            ticket.followed = clock()

    @contextmanager
    def holding(self, brake: Throttle) -> Iterator[None]:
        """A brake may hold the latest result back.

        The next step is not followed then: its workers have fallen asleep.
        """
        self._brake, self._held = brake, math.inf
        begun = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._held, self._release = (now - begun) / (now - self._release), now
            if now - begun > HELD_SECONDS:
                self._left, self._returned = FOLLOWED, 0

    def settle(self, ticket: Ticket, gauges: Gauges, ranges: Sequence[range]) -> None:
        """A step that was followed has come back."""
        firsts = [ids.start for ids in ranges]
        began = [gauges.began[first] for first in firsts]
        ended = [gauges.ended[first] for first in firsts]
        if min(began) < ticket.followed:
            return  # a worker was replaced meanwhile
        now = self._returned = clock()
        self._followed += 1
        self._queue += sum(began) // len(began) - ticket.followed
        self._work += max(end - begin for begin, end in zip(began, ended, strict=True))
        self._transport += max(0, now - max(ended))

    def read(
        self,
        gauges: Gauges,
        ranges: Sequence[range],
        pids: Sequence[int | None],
        faults: Sequence[int],
        restarts: Sequence[int],
    ) -> Stats:
        """Read everything off."""
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
        envs = tuple(
            EnvStats(
                i,
                gauges.steps[i] + gauges.rounds[ids.start],
                gauges.episodes[i],
                p50,
                p99,
                faults[i],
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
            _stragglers(envs, ranges),
        )  # fmt: skip

    def _limit(self, transport: float, work: float, caller: float, busiest: float) -> str:
        if self._brake is not None and self._brake.engaged and self._held > 0.5:
            return "page"
        if not self._followed:  # steps were sent one by one, or held back
            return "environments" if busiest > 0.5 else "caller"
        shares = {"environments": work, "transport": transport, "caller": caller}
        return max(shares, key=lambda name: shares[name])


def _stragglers(envs: Sequence[EnvStats], ranges: Sequence[range]) -> tuple[int, ...]:
    times = {env.env_id: env.p50 for env in envs if env.p50 is not None}
    usual = median(times.values()) if times else 0.0
    alone = [ids.start for ids in ranges if len(ids) == 1]
    if len(alone) < len(ranges):  # what is alone in a worker wakes up for every step, others do not
        times.update((i, times[i] - WAKING / 1e9) for i in alone if i in times)
    return tuple(i for i, seconds in times.items() if seconds > STRAGGLER * usual)


def _rss(pid: int | None) -> int | None:
    import psutil  # late, since few programs ask

    try:
        return None if pid is None else int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
