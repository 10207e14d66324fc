"""``rate_limit``: how often environments of one kind are called, by all workers together.

A small file in memory has the time of the next free turn of each kind. Before a host calls an
environment, it reserves that turn, advances the time, and waits until the turn comes::

    lock;  turn = max(now, next);  next = turn + 1 / rate;  unlock;  wait until turn

So nothing polls, turns are given in the order of requests, and calls are never closer than
``1 / rate``. The lock belongs to the operating system: it ends with the process that has locked it.
"""

from __future__ import annotations

import asyncio
import math
import os
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agym.core._system.platform import anonymous_file, locked
from agym.core.hosts.factories import Factory, innermost
from agym.core.protocol.metrics.gauges import Gauges

_TIME = struct.Struct("<q")

# A clock that all processes of a machine share, in nanoseconds; deadlines use the same clock.
now = time.monotonic_ns

# The longest interval, a year, so that times fit into the file.
MAX_INTERVAL = 365.0 * 24 * 3600 * 1e9


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
        self._interval = math.ceil(min(1e9 / rate, MAX_INTERVAL))
        self._kinds = kinds
        self._lock = threading.Lock()
        size = _TIME.size * (max(kinds) + 1)
        if hasattr(os, "memfd_create"):
            self._descriptor = anonymous_file(size)
            self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
            weakref.finalize(self, os.close, self._descriptor)
        else:  # macOS, where other processes can open only a file with a name
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
        """Reserve the next turn of an environment's kind; return its time."""
        file, offset = self._descriptor, _TIME.size * self._kinds[env_id]
        # The file's lock keeps out other processes, including forked ones, which share the file's
        # position. It does not keep out other threads of this process; the thread lock does.
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


def number_kinds(factories: Sequence[Factory]) -> list[int]:
    """Number the kinds of environments that factories make, from 0."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(_kind(factory), len(numbers)) for factory in factories]


def _kind(factory: Any) -> Hashable:
    """Return the key that factories of the same kind share: an id, a class, or their code."""
    made = innermost(factory)
    while isinstance(factory, partial):
        for argument in factory.args:
            env_id = getattr(argument, "id", argument)
            if isinstance(env_id, str) and getattr(made, "__module__", "").startswith("gymnasium"):
                return env_id
        factory = factory.func
    return getattr(made, "__code__", None) or id(made)


@dataclass(eq=False)
class Turns:
    """Lets each call of a host's environments wait for its turn, and adds up the waiting time.

    Attributes:
        limiter: Gives the turns.
        first: Id of the host's first environment.
        gauges: Add up the time.
        closes_within: Sleeps for this many seconds, or until the environments are being closed;
            returns whether they are. ``None`` if nothing can close them during the wait.
    """

    limiter: RateLimiter
    first: int
    gauges: Gauges
    closes_within: Callable[[float], bool] | None

    def wait(self, i: int) -> Any:
        """Wait for an environment's turn in this thread; return the time in nanoseconds.

        Raises:
            RuntimeError: The environments are being closed.
        """
        started = now()
        turn = self._reserve(i)
        if turn <= started:
            return 0
        sleep = self.closes_within or threading.Event().wait
        if sleep((turn - started) / 1e9):
            raise RuntimeError("the environments were closed while it waited for its turn")
        return self._count(i, started)

    def call(self, i: int, function: Callable[[], Any]) -> Any:
        """Call a function of an environment when its turn has come."""
        self.wait(i)
        return function()

    def _reserve(self, i: int) -> int:
        turn = self.limiter.reserve(self.first + i)
        self.gauges.arrays["rate_turn"][self.first + i] = turn
        return turn

    def _count(self, i: int, started: int) -> int:
        waited = now() - started
        self.gauges.arrays["rate_waited"][self.first + i] += waited
        return waited


class LoopTurns(Turns):
    """Does the same for environments that share an event loop."""

    async def wait(self, i: int) -> Any:
        """Wait for an environment's turn on the running loop; return the time in nanoseconds."""
        started = now()
        turn = self._reserve(i)
        if turn <= started:
            return 0
        try:
            while (remaining := turn - now()) > 0:  # noqa: ASYNC110
                # Whole milliseconds, rounded up: uvloop rounds, and a turn must not come early.
                await asyncio.sleep(math.ceil(remaining / 1e6) / 1e3)
        finally:
            waited = self._count(i, started)
        return waited

    async def call(self, i: int, function: Callable[[], Any]) -> Any:
        """Await a call of an environment when its turn has come."""
        await self.wait(i)
        return await function()
