"""A rate limit at which environments are called, shared by all workers.

For each kind of environment a small file in memory has the time of the next free turn. Who calls
an environment reserves that turn, moves the time on, and then waits until it comes::

    lock;  turn = max(now, next);  next = turn + 1 / rate;  unlock;  wait until turn

So nothing polls, turns are given in the order in which they were asked for, and calls are never
closer than ``1 / rate``. The lock is the operating system's: it ends with the process that has it.
"""

from __future__ import annotations

import math
import os
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agym._system.platform import anonymous_file, locked

_TIME = struct.Struct("<q")

# A clock that all processes of a machine share, in nanoseconds; that of the deadlines.
now = time.monotonic_ns

# Longer intervals, of a year, would not fit into the file after a while.
LONGEST_INTERVAL = 365.0 * 24 * 3600 * 1e9


class RateLimiter:
    """Gives turns to the environments of one ``make``, in any of its processes.

    Attributes:
        path: The file with the times of the next free turns, for other processes of this user.
    """

    def __init__(self, rate: float, kinds: Sequence[int]) -> None:
        """Share a limit of ``rate`` calls per second among environments of the same kind.

        Args:
            rate: Calls per second.
            kinds: The kind of each environment, numbered from 0.
        """
        self._interval = math.ceil(min(1e9 / rate, LONGEST_INTERVAL))
        self._kinds = kinds
        self._lock = threading.Lock()
        size = _TIME.size * (max(kinds) + 1)
        if hasattr(os, "memfd_create"):
            self._descriptor = anonymous_file(size)
            self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
            weakref.finalize(self, os.close, self._descriptor)
        else:  # macOS, where others can open only a file with a name
            self._descriptor, self.path = tempfile.mkstemp(prefix="agym-rate-")
            os.ftruncate(self._descriptor, size)
            weakref.finalize(self, _remove, self._descriptor, self.path)

    def __getstate__(self) -> dict[str, Any]:
        return {"interval": self._interval, "kinds": self._kinds, "path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._interval, self._kinds = state["interval"], state["kinds"]
        self.path = state["path"]
        self._lock = threading.Lock()
        self._descriptor = os.open(self.path, os.O_RDWR)
        weakref.finalize(self, os.close, self._descriptor)

    def reserve(self, env_id: int) -> int:
        """Reserve the next turn of an environment's kind; return when it comes."""
        file, offset = self._descriptor, _TIME.size * self._kinds[env_id]
        # The file's lock keeps out other processes, also forked ones, but not other threads.
        with self._lock, locked(file):
            os.lseek(file, offset, os.SEEK_SET)  # Windows has no ``pread``
            (free,) = _TIME.unpack(os.read(file, _TIME.size))
            turn = max(now(), free)
            os.lseek(file, offset, os.SEEK_SET)
            os.write(file, _TIME.pack(turn + self._interval))
        return int(turn)


def _remove(descriptor: int, path: str) -> None:
    os.close(descriptor)
    Path(path).unlink()
