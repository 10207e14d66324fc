"""What this machine grants this process."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_cores() -> int:
    """Cores that this process may use: its affinity, cut to the cgroup's CPU quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


def spread(position: int) -> None:
    """Move this process to one of its cores, by position, and let the scheduler go on from there.

    The kernel wakes a process on the core of the one that woke it, and may leave all workers
    stacked there for half a second, since they are never long off that core.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[position % len(cores)]})
        os.sched_setaffinity(0, cores)


def _quota(root: Path = Path("/sys/fs/cgroup")) -> float:
    """CPUs' worth of time per period (cgroup v2, then v1), infinite without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    return math.inf if quota in ("max", "-1") else int(quota) / int(period)
