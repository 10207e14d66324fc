"""CPU limits: the cores that this process may use, and the placement of workers on them."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def available_cores() -> int:
    """Return the number of cores this process may use: its affinity, capped by the CPU quota."""
    return max(1, math.ceil(min(len(core_numbers()), quota())))


def core_numbers() -> list[int]:
    """Return the numbers of the cores that this process may run on, without the CPU quota."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [*range(os.cpu_count() or 1)]


# A worker that was moved off its core returns after this many seconds: if there are as many workers
# as cores, and if there are fewer, so that another core may be free.
CROWDED_RETURN_SECONDS, RETURN_SECONDS = 1e-3, 10e-3

# Check the core at most this often: for fast environments, the check would be part of each batch.
LOOK_SECONDS = 0.2e-3


class HomeCore:
    """Moves a worker back to its home core, from which the scheduler may move it away again.

    Computing workers and a caller that spins are more threads than cores. The scheduler then leaves
    two workers on one core for a long time, while the caller has another to itself. It also wakes a
    worker on the core of the thread that wakes it. A worker that checks its core after each wait is
    back for the next batch.

    Its affinity does not change. If another program wants the core, the scheduler can still move
    the worker to an idle core.
    """

    def __init__(self, position: int, *, all_cores: bool) -> None:
        """Choose the core.

        Args:
            position: Index into the cores that this process may use; it wraps around.
            all_cores: Whether there are as many workers as cores.
        """
        self._position = position
        self._pause = CROWDED_RETURN_SECONDS if all_cores else RETURN_SECONDS
        self._cores: set[int] = set()
        self._home = -1
        self._look_at = 0.0

    def __call__(self, now: float) -> None:
        """Return to the core; ``now`` is a time of ``perf_counter``."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        if current_core is None or current_core() == self._home:
            return
        self._look_at = now + self._pause
        cores = os.sched_getaffinity(0)
        if cores != self._cores:  # the first time, or the affinity was changed from outside
            self._cores, ordered = cores, sorted(cores)
            self._home = ordered[self._position % len(ordered)]
        # Allowing a single core moves the thread there at once. The second call only allows the
        # other cores again.
        try:
            os.sched_setaffinity(0, {self._home})
            os.sched_setaffinity(0, cores)
        except OSError:  # the affinity was changed between the two calls
            self._home = -1  # choose again after the pause


def find_current_core() -> Callable[[], int] | None:
    """Return the C library's function for the number of the core that runs this thread."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        function: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    return function


current_core = find_current_core()


def core_of(worker: int) -> int:
    """Return the core of a pinned worker: round-robin over the cores of this process."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[worker % len(cores)]


def quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
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
