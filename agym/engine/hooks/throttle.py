"""The brake: holds a caller's steps up, to pause, to go step by step, or to go slowly.

What was dispatched goes on; its result is held back. So a loop that steps stands still, in its
``await`` or its call, while all else goes on. Whoever holds it may be another thread.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from agym._system.defer_signals import RECHECK_SECONDS

# The calls whose results are held back.
HELD_KINDS = frozenset({"step", "recv"})


class Throttle:
    """Counts steps that are dispatched, and says how long their results are to wait.

    Attributes:
        paused: Whether nothing goes on that was not dispatched before.
        limit: How often a second each environment may step, ``None`` for no limit.
    """

    def __init__(self, num_envs: int) -> None:
        """Hold nobody up."""
        self.paused = False
        self.limit: float | None = None
        self._num_envs = num_envs
        # Steps of single environments: that were dispatched, and that go on while it is paused.
        self._dispatched = 0
        self._granted = 0
        self._due = 0.0
        self._changed = threading.Condition()
        # Who waits on an event loop.
        self._sleepers: set[asyncio.Future[None]] = set()

    @property
    def engaged(self) -> bool:
        """Whether steps have to be counted."""
        return self.paused or self.limit is not None

    def count(self, steps: int) -> None:
        """So many environments are about to step."""
        with self._changed:
            self._dispatched += steps
            if self.limit is not None:
                self._due = max(self._due, time.monotonic()) + steps / self._num_envs / self.limit

    def pause(self) -> None:
        """Let what was dispatched go on, and nothing after that. Idempotent."""
        with self._changed:
            if not self.paused:
                self.paused, self._granted = True, self._dispatched

    def resume(self) -> None:
        """Let all go on."""
        with self._changed:
            self.paused = False
            self._wake()

    def step_once(self) -> None:
        """While it is paused, let what is held go on, or a step of each that is yet to come."""
        with self._changed:
            held = self._dispatched > self._granted
            self._granted = self._dispatched + (0 if held else self._num_envs)
            self._wake()

    def set_limit(self, limit: float | None) -> None:
        """Have each environment step at most so often a second."""
        with self._changed:
            self.limit, self._due = limit, 0.0
            self._wake()

    def hold(self, end: float | None = None) -> None:
        """Wait, in a thread, until results may be given, or until a time of ``monotonic``."""
        with self._changed:
            while (seconds := self._seconds_left(end)) > 0:
                self._changed.wait(min(seconds, RECHECK_SECONDS))

    def holding(self, end: float | None = None) -> Generator[Any, None, None]:
        """Wait likewise on the running event loop."""
        while (seconds := self._seconds_left(end)) > 0:
            loop = asyncio.get_running_loop()
            woken = loop.create_future()
            timer = None if math.isinf(seconds) else loop.call_later(seconds, _set, woken)
            self._sleepers.add(woken)
            try:
                # Again, now that a change would be told.
                if self._seconds_left(end) > 0:
                    yield from woken
            finally:
                self._sleepers.discard(woken)
                if timer is not None:
                    timer.cancel()

    def _seconds_left(self, end: float | None) -> float:
        seconds = 0.0 if self.limit is None else self._due - time.monotonic()
        if self.paused and self._dispatched > self._granted:
            seconds = math.inf
        return seconds if end is None else min(seconds, end - time.monotonic())

    def _wake(self) -> None:
        self._changed.notify_all()
        for woken in tuple(self._sleepers):
            with suppress(RuntimeError):  # its loop was closed
                woken.get_loop().call_soon_threadsafe(_set, woken)


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
