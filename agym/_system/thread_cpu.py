"""Usage: what a thread took of its core, and how often it gave it away."""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":
    import resource


def thread_usage() -> tuple[int, int]:
    """What this thread has used so far.

    Returns:
        Nanoseconds in which it computed, and how often it gave its core away to wait; -1 where the
        system does not tell (``getrusage(2)``, ``RUSAGE_THREAD``, is Linux's).
    """
    if sys.platform == "linux":
        return time.thread_time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return time.thread_time_ns(), -1
