"""Calls of coroutine environments as the options of a fleet say: in turns, some twice.

A host has one of these only where an option of :class:`~agym.Fleet` is on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any

from agym.errors import UsageError
from agym.hosts.coroutine.hedging import Hedge
from agym.hosts.coroutine.running_env import RunningSlot, track_running
from agym.hosts.fleet.rate_limit import now
from agym.hosts.fleet.setup import FleetCounts, FleetSetup
from agym.protocol.metrics.gauges import clock


class FleetCalls(FleetCounts):
    """Calls the environments of one host as the fleet's options say.

    Attributes:
        plain: Whether a step is called as it would be without the options.
    """

    def __init__(self, setup: FleetSetup, first: int, marker: RunningSlot | None) -> None:
        """Keep the options; ``first`` is the id of the host's first environment."""
        super().__init__(first)
        self._marker = marker
        self._limiter = setup.limiter
        self._hedge = None if setup.hedge is None else Hedge(setup.hedge)
        self.plain = setup.limiter is None and setup.hedge is None

    def check(self, env: Any) -> None:
        """Refuse to call an environment twice that does not say that this is harmless.

        Raises:
            UsageError: It does not.
        """
        if self._hedge is not None and not is_idempotent(env):
            name = type(env).__name__
            raise UsageError(
                f"hedge= makes a step of {name} a second time, and {name} does not declare that"
                " this is harmless: give it `idempotent = True` if it is, or leave hedge= out"
            )

    async def step(self, i: int, env: Any, action: Any) -> tuple[int, Any]:
        """Step an environment; return when that began, after its turn had come, and the result."""
        await self._turn(i)
        begun, hedge = clock(), self._hedge
        if hedge is None:
            return begun, await env.step(action)

        async def first() -> Any:
            return await self.tracked(i, env.step(action))

        async def second() -> Any:
            self.count("hedged", i)
            await self._turn(i)
            return await self.tracked(i, env.step(action))

        result, won = await hedge.call(first, second)
        self.count("hedges_won", i, won)
        return begun, result

    async def reset(self, i: int, env: Any, arguments: dict[str, Any]) -> Any:
        """Reset an environment when its turn has come."""
        await self._turn(i)
        return await env.reset(**arguments)

    def tracked(self, i: int, call: Awaitable[Any]) -> Awaitable[Any]:
        """Record the environment while it runs in another task than that of its queue."""
        if self._marker is None:
            return call
        return track_running(call, self._marker, self._first + i)

    async def _turn(self, i: int) -> None:
        limiter = self._limiter
        if limiter is None:
            return
        turn = limiter.reserve(self._first + i)
        self._arrays["rate_turn"][self._first + i] = turn
        begun = now()
        if turn <= begun:
            return
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
            self.count("rate_waited", i, now() - begun)

    async def aclose(self) -> None:
        """Wait for calls that were cancelled."""
        if self._hedge is not None:
            await self._hedge.aclose()


def is_idempotent(env: Any) -> bool:
    """Whether an environment declares that a step made twice is as good as one."""
    metadata = getattr(env, "metadata", None) or {}
    return getattr(env, "idempotent", metadata.get("idempotent", False)) is True


def _set(waited: asyncio.Future[None]) -> None:
    if not waited.done():
        waited.set_result(None)
