"""Patience: for how long a test waits for what has to come.

A wait ends as soon as that is there; its limit only ends waits for what never comes. So a limit is
never what is tested (a test of ``timeout=`` says so), and a limit is generous.
"""

from __future__ import annotations

import os
import time
from functools import cache

# A limit is what something takes on a quiet machine, times this, times the machine's slowness.
MARGIN = 10.0

# Seconds that the piece of work takes on the machine on which the limits were chosen.
REFERENCE = 0.02


def patience(seconds: float = 1.0) -> float:
    """A limit in seconds for what takes so many on a quiet machine; never below ten seconds."""
    crowd = os.getloadavg()[0] / (os.cpu_count() or 1)
    return MARGIN * max(1.0, seconds) * max(1.0, _slowness(), crowd)


@cache
def _slowness() -> float:
    """How many times longer a piece of work takes here, all delays included."""
    begun = time.perf_counter()
    total = 0
    for i in range(400_000):
        total += i
    return (time.perf_counter() - begun) / REFERENCE
