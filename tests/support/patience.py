"""Patience: for how long a test waits for what has to come.

A wait ends as soon as that is there; its limit only ends waits for what never comes. So a limit is
never what is tested (a test of ``timeout=`` says so), and a limit is generous.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import cache
from pathlib import Path

# A limit is what something takes on a quiet machine, times this, times the machine's slowness.
MARGIN = 10.0

# A deadline is so many times what is asked for: the machine may be more crowded a moment later.
SLACK = 2.0

# Seconds that the piece of work takes on the machine on which the limits were chosen.
REFERENCE = 0.02


def patience(seconds: float = 1.0) -> float:
    """A limit in seconds for what takes so many on a quiet machine; never below ten seconds."""
    return MARGIN * max(1.0, seconds) * max(1.0, first_slowness(), _crowd())


def deadline(seconds: float) -> float:
    """A deadline for steps which only what hangs may miss, for a test of ``timeout=``.

    Every such test waits for it to pass, so there is no floor. What does not hang has to be much
    quicker than this on a quiet machine: a new worker's first reset included.
    """
    return SLACK * seconds * max(1.0, measured_slowness(), _crowd())


def _crowd() -> float:
    """How many processes there are for each core of ours, now or over the last minute."""
    busy = os.getloadavg()[0]
    with contextlib.suppress(OSError, ValueError, IndexError):  # not every system tells
        busy = max(busy, float(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]))
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return busy / (len(affinity(0)) if affinity else os.cpu_count() or 1)


@cache
def first_slowness() -> float:
    """What was measured at first; good enough for a limit that is generous anyway."""
    return measured_slowness()


def measured_slowness() -> float:
    """How many times longer a piece of work takes here and now, all delays included."""
    begun = time.perf_counter()
    total = 0
    for i in range(400_000):
        total += i
    return (time.perf_counter() - begun) / REFERENCE
