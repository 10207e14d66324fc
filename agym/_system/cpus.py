"""CPU limits: the cores that this process may use, and the placement of workers on them."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path


def available_cores() -> int:
    """Return the number of cores this process may use: its affinity, capped by the CPU quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


def spread(position: int) -> None:
    """Move this process to one of its cores, then let the scheduler move it freely.

    The kernel wakes a process on the core of its waker. Without this, all workers may stay stacked
    on that core for half a second, since they never leave it for long.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[position % len(cores)]})
        os.sched_setaffinity(0, cores)


def core_of(worker: int) -> int:
    """Return the core of a pinned worker: round-robin over the cores of this process."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[worker % len(cores)]


def _quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Return the CPU quota in CPUs (cgroup v2 or v1), infinite without a limit.

    A process is limited by its own cgroup and by every ancestor. In a container, the outermost
    visible cgroup is the container's own.
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
