"""Who uses this process's cores: this program, its workers, and other programs.

psutil is imported where it is used, because that takes long, and few programs ask for it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from agym.core._system.cpus import core_numbers


@dataclass(frozen=True)
class CoreUse:
    """How many cores were in use on average, by whom.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, backend="process", workers=1) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     use = envs.stats().cores
        >>> use.cores >= 1, use.others >= 0.0
        (True, True)

    Attributes:
        cores: How many cores this process may run on.
        program: Cores that this process used, with its threads, and its children that are no
            workers.
        workers: Cores that the worker processes used, also to watch for the next step.
        others: Cores that other programs used, and what the host of a virtual machine took.
    """

    cores: int
    program: float
    workers: float
    others: float

    def __str__(self) -> str:
        return (
            f"of {self.cores}, this program used {self.program:.1f}, its workers"
            f" {self.workers:.1f}, other programs {self.others:.1f}"
        )


class Load:
    """Measures who uses this process's cores, from now on."""

    def __init__(self) -> None:
        self._before = _times(())  # first, since it may import psutil
        self._begun = time.monotonic()

    def read(self, workers: Collection[int | None] = ()) -> CoreUse:
        """Return the averages since this object was made.

        The system counts in ticks of 10 ms: after less than 50 ms this is only good for telling
        none from one.

        Args:
            workers: The process ids of the workers, which may have just started.
        """
        seconds = max(time.monotonic() - self._begun, 1e-3)
        now, before = _times(workers), self._before
        program, all_ours, everybody = (
            max(0.0, (a - b) / seconds) for a, b in zip(now, before, strict=True)
        )
        others = max(0.0, everybody - all_ours)
        return CoreUse(len(core_numbers()), program, max(0.0, all_ours - program), others)


def _times(workers: Collection[int | None]) -> tuple[float, float, float]:
    """Return the CPU seconds on our cores so far: of this program, with its workers, of all."""
    import psutil

    every, cores = psutil.cpu_times(percpu=True), core_numbers()
    # In some containers the numbers are those of the host, and the list is the container's.
    ours_alone = [every[core] for core in cores] if max(cores) < len(every) else every
    me = psutil.Process()
    program = ours = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has ended meanwhile
            continue
        used = times.user + times.system
        # Of children that have ended and were waited for.
        used += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        ours += used
        if process is me or process.pid not in workers:  # this one may be its own worker
            program += used
    return program, ours, sum(map(_busy, ours_alone))


def rss_of(pid: int | None) -> int | None:
    """Return the memory of a process in bytes, ``None`` if it is gone or elsewhere."""
    if pid is None:
        return None
    try:
        import psutil

        return int(psutil.Process(pid).memory_info().rss)
    except Exception:  # the process is gone; or Python is about to end, and imports nothing
        return None


def _busy(times: Any) -> float:
    return float(times.user + times.system) + sum(
        getattr(times, name, 0.0) for name in ("nice", "irq", "softirq", "steal")
    )
