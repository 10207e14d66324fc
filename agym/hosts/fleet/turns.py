"""Waits for an environment's turn under the rate limit, and counts the time."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

from agym.hosts.fleet.rate_limit import RateLimiter, now
from agym.protocol.metrics.gauges import Gauges


class Turns:
    """Lets each call of an environment wait for its turn."""

    def __init__(
        self,
        limiter: RateLimiter,
        first: int,
        closes_within: Callable[[float], bool] | None = None,
    ) -> None:
        """Wait for the turns that a limiter gives.

        Args:
            limiter: The limiter.
            first: Id of the host's first environment.
            closes_within: Sleeps for so many seconds, or until the environments are to be closed;
                returns whether they are. ``None`` where nothing can ask for that during the wait.
        """
        self._limiter = limiter
        self._first = first
        self._closes_within = closes_within or threading.Event().wait

    def attach(self, gauges: Gauges) -> None:
        """Count in ``gauges`` from now on."""
        self._arrays = gauges.arrays

    def wait(self, i: int) -> Any:
        """Wait for an environment's turn in this thread; return for how many nanoseconds.

        Raises:
            RuntimeError: The environments are being closed.
        """
        begun = now()
        turn = self._reserve(i)
        if turn <= begun:
            return 0
        if self._closes_within((turn - begun) / 1e9):
            raise RuntimeError("the environments were closed while it waited for its turn")
        return self._count(i, begun)

    def call(self, i: int, function: Callable[[], Any]) -> Any:
        """Call a function of an environment when its turn has come."""
        self.wait(i)
        return function()

    def _reserve(self, i: int) -> int:
        turn = self._limiter.reserve(self._first + i)
        self._arrays["rate_turn"][self._first + i] = turn
        return turn

    def _count(self, i: int, begun: int) -> int:
        waited = now() - begun
        self._arrays["rate_waited"][self._first + i] += waited
        return waited


class LoopTurns(Turns):
    """Does the same for environments that share an event loop."""

    async def wait(self, i: int) -> Any:
        """Wait for an environment's turn on the running loop; return for how many nanoseconds."""
        begun = now()
        turn = self._reserve(i)
        if turn <= begun:
            return 0
        loop = asyncio.get_running_loop()
        try:
            while (left := turn - now()) > 0:
                waited = loop.create_future()
                # Whole milliseconds, rounded up: uvloop rounds, and a turn never comes early.
                timer = loop.call_later(math.ceil(left / 1e6) / 1e3, _set, waited)
                try:
                    await waited
                finally:
                    timer.cancel()
        finally:
            nanoseconds = self._count(i, begun)
        return nanoseconds

    async def call(self, i: int, function: Callable[[], Any]) -> Any:
        """Await a call of an environment when its turn has come."""
        await self.wait(i)
        return await function()


def _set(waited: asyncio.Future[None]) -> None:
    if not waited.done():
        waited.set_result(None)
