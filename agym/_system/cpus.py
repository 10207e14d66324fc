"""What this machine grants this process."""

from __future__ import annotations

import math
import os
from contextlib import suppress
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


def core_of(worker: int) -> int:
    """The core of a pinned worker: as the cores of this process come, around and around."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[worker % len(cores)]


def _quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """CPUs' worth of time per period (cgroup v2, or v1), infinite without a limit.

    A process gets no more than its own cgroup and each of those around it grants. In a container
    the outermost that can be seen is its own.
    """
    groups = {root, root / "cpu"}
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" or "cpu" in controllers.split(","):
                top = root / "cpu" if controllers else root
                group = top / path.lstrip("/")
                while group != top:
                    groups.add(group)
                    group = group.parent
    return min(map(_quota_of, groups))


def _quota_of(group: Path) -> float:
    try:
        quota, period = (group / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    return math.inf if quota in ("max", "-1") else int(quota) / int(period)
