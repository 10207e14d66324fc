"""The use of this process's cores: by this program, its workers, and other programs.

psutil is imported where it is used, because the import is slow, and few programs need it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from agym.core._system.cpus import core_numbers


@dataclass(frozen=True)
class CoreUse:
    """Number of cores in use on average, by user.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, backend="process", workers=1) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     use = envs.stats().cores
        >>> use.cores >= 1, use.others >= 0.0
        (True, True)

    Attributes:
        cores: Number of cores that this process may run on.
        program: Cores that this process used, with its threads and its children other than workers.
        workers: Cores that the worker processes used, including spinning for the next step.
        others: Cores that other programs used, and time that the host of a virtual machine took.
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
    """Measures the use of this process's cores, from now on."""

    def __init__(self) -> None:
        self._before = _times(())  # first, because it may import psutil
        self._started = time.monotonic()

    def read(self, workers: Collection[int | None] = ()) -> CoreUse:
        """Return the averages since this object was made.

        The system counts in ticks of 10 ms: after less than 50 ms, this only distinguishes an idle
        core from a busy one.

        Args:
            workers: The process ids of the workers, which may have started just now.
        """
        seconds = max(time.monotonic() - self._started, 1e-3)
        now, before = _times(workers), self._before
        program, with_workers, total = (
            max(0.0, (a - b) / seconds) for a, b in zip(now, before, strict=True)
        )
        others = max(0.0, total - with_workers)
        return CoreUse(len(core_numbers()), program, max(0.0, with_workers - program), others)


def _times(workers: Collection[int | None]) -> tuple[float, float, float]:
    """Return the CPU seconds on these cores so far: of this program, with its workers, of all."""
    import psutil

    every, cores = psutil.cpu_times(percpu=True), core_numbers()
    # In some containers the numbers are those of the host, but the list is the container's.
    usable = [every[core] for core in cores] if max(cores) < len(every) else every
    this = psutil.Process()
    program = with_workers = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # the process has just ended
            continue
        used = times.user + times.system
        # The times of children that have ended and were waited for.
        used += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        with_workers += used
        if process is this or process.pid not in workers:  # this process may be its own worker
            program += used
    return program, with_workers, sum(map(_busy, usable))


def rss_of(pid: int | None) -> int | None:
    """Return the memory of a process in bytes, ``None`` if it has ended or is elsewhere."""
    if pid is None:
        return None
    try:
        import psutil

        return int(psutil.Process(pid).memory_info().rss)
    except Exception:  # the process has ended; or Python is exiting, and cannot import
        return None


def _busy(times: Any) -> float:
    return float(times.user + times.system) + sum(
        getattr(times, name, 0.0) for name in ("nice", "irq", "softirq", "steal")
    )
