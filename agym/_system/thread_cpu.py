"""CPU time and context switches of the calling thread."""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":
    import resource


def thread_usage() -> tuple[int, int]:
    """Return what this thread has used so far.

    Returns:
        CPU time in nanoseconds, and voluntary context switches; the latter is -1 except on Linux,
        which has ``RUSAGE_THREAD`` (``getrusage(2)``).
    """
    if sys.platform == "linux":
        return time.thread_time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return time.thread_time_ns(), -1
