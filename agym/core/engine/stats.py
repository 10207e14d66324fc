"""Statistics: the records that ``stats()`` returns. Measured in ``engine/calls/traffic.py``."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from agym.core._system.load import CoreUse
from agym.core.protocol.messages.failures import name_envs


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
        p50: Median of its timed steps in seconds, ``None`` before the first. Steps that reset it
            are not timed. It excludes the worker's wake-up time, as estimated from the worker's
            other environments.
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
