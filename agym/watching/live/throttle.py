"""Pauses, single-steps or slows down the caller's loop.

Dispatched steps still run, but their results are delayed. So a loop that steps environments blocks
in its call or its ``await``, and all other code goes on. The throttle may be controlled from
another thread. When it delays nothing, it need not be a hook, so that steps are as fast as without
it.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from agym import Hook
from agym.core._system.defer_signals import RECHECK_SECONDS
from agym.core._system.fork_safety import abandon_in_forks
from agym.core.protocol.arguments import Ids


class Throttle(Hook):
    """Counts dispatched steps, and computes how long their results must wait.

    Attributes:
        paused: Whether the results of steps dispatched from now on are held.
        limit: Steps per second of each environment, ``None`` for no limit.
    """

    def __init__(self, num_envs: int) -> None:
        self.paused = False
        self.limit: float | None = None
        self._num_envs = num_envs
        # Numbers of steps of single environments: dispatched, and allowed while paused.
        self._dispatched = 0
        self._granted = 0
        self._due = 0.0
        self._changed = threading.Condition()
        # Futures of the tasks that wait.
        self._sleepers: set[asyncio.Future[None]] = set()
        abandon_in_forks(self)

    def abandon(self) -> None:
        """Release everything in a forked child, where no other thread could do so."""
        self._changed = threading.Condition()  # a thread of the parent may have the old lock
        self._sleepers = set()
        self.paused, self.limit = False, None

    @property
    def holds(self) -> bool:
        """Whether the throttle is paused or limits the speed."""
        return self.paused or self.limit is not None

    def before_step(self, ids: Ids) -> None:
        """Count the steps, while the throttle is paused or limits the speed."""
        with self._changed:
            if self.holds:
                self._dispatched += len(ids)
            if self.limit is not None:
                seconds = len(ids) / self._num_envs / self.limit
                self._due = max(self._due, time.monotonic()) + seconds

    def pause(self) -> None:
        """Hold the results of steps dispatched from now on. Idempotent."""
        with self._changed:
            if not self.paused:
                self.paused, self._granted = True, self._dispatched

    def resume(self) -> None:
        """Release all held results."""
        with self._changed:
            self.paused = False
            self._wake()

    def step_once(self) -> None:
        """While paused, release the held results; if there are none, allow a step of each env."""
        with self._changed:
            any_held = self._dispatched > self._granted
            self._granted = self._dispatched + (0 if any_held else self._num_envs)
            self._wake()

    def set_limit(self, limit: float | None) -> None:
        """Limit the steps per second of each environment."""
        with self._changed:
            self.limit, self._due = limit, 0.0
            self._wake()

    def after_removal(self) -> None:
        """Release all held results, and stop holding results."""
        self.resume()
        self.set_limit(None)

    def hold(self, end: float | None) -> None:
        """Block the thread until results may be returned."""
        with self._changed:
            while (seconds := self._seconds_left(end)) > 0:
                self._changed.wait(min(seconds, RECHECK_SECONDS))

    def holding(self, end: float | None) -> Generator[Any, None, None]:
        """Wait until results may be returned, in a task of the running event loop."""
        while (seconds := self._seconds_left(end)) > 0:
            loop = asyncio.get_running_loop()
            woken = loop.create_future()
            timer = None if math.isinf(seconds) else loop.call_later(seconds, _set, woken)
            self._sleepers.add(woken)
            try:
                # Another thread may have released the results since the last check. From now on
                # its ``_wake`` finds this future.
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
            with suppress(RuntimeError):  # the loop was closed
                woken.get_loop().call_soon_threadsafe(_set, woken)


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
