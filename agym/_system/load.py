"""How much of this process's cores other programs use."""

from __future__ import annotations

import time
from typing import Any

import psutil

from agym._system.cpus import core_numbers


class OtherLoad:
    """Measures how many of this process's cores other programs keep busy from now on."""

    def __init__(self) -> None:
        self._begun, self._others = time.monotonic(), _others_time()

    def cores(self) -> float:
        """Return the average number of cores since this object was made.

        The system counts in ticks of 10 ms: after less than 50 ms this is only good for telling
        none from one.
        """
        seconds = time.monotonic() - self._begun
        return max(0.0, (_others_time() - self._others) / max(seconds, 1e-3))


def _others_time() -> float:
    """Return the CPU seconds that others have used on our cores so far.

    This includes what the host of a virtual machine took (``steal``).
    """
    every, cores = psutil.cpu_times(percpu=True), core_numbers()
    # In some containers the numbers are those of the host, and the list is the container's.
    ours_alone = [every[core] for core in cores] if max(cores) < len(every) else every
    busy = sum(map(_busy, ours_alone))
    me = psutil.Process()
    ours = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has ended meanwhile
            continue
        ours += times.user + times.system
        # Of children that have ended and were waited for.
        ours += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return busy - ours


def _busy(times: Any) -> float:
    return float(times.user + times.system) + sum(
        getattr(times, name, 0.0) for name in ("nice", "irq", "softirq", "steal")
    )
