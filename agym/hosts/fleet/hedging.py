"""Hedged calls: a call that is late is made a second time, and the first answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Make = Callable[[], Coroutine[Any, Any, Any]]


class Hedge:
    """Makes calls twice where the first takes long."""

    def __init__(self, delay: float) -> None:
        """Make the second call after ``delay`` seconds; with 0, both at once."""
        self._delay = delay
        self._losers: set[asyncio.Task[Any]] = set()

    async def call(self, first: Make, second: Make) -> tuple[Any, bool]:
        """Return the first answer, and whether it is the second call's.

        An exception counts only if no answer is on its way. Each call has a task of its own, whose
        result only this method sees; so what a cancelled call still returns cannot be taken for
        another's answer.
        """
        calls = [asyncio.ensure_future(_outcome(first))]
        try:
            if self._delay:
                await asyncio.wait(calls, timeout=self._delay)
            if not calls[0].done():
                calls.append(asyncio.ensure_future(_outcome(second)))
            left = {*calls}
            while left:
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for call in calls:
                    if call not in left and _answered(call):
                        return call.result()[0], call is not calls[0]
            _, error = await calls[0]  # its exception is raised, rather than the second call's
            assert error is not None
            raise error
        finally:
            for call in calls:
                self._discard(call)

    def _discard(self, call: asyncio.Task[Any]) -> None:
        if call.done():
            _retrieve(call)
            return
        call.cancel()
        self._losers.add(call)
        call.add_done_callback(self._losers.discard)
        call.add_done_callback(_retrieve)

    async def aclose(self) -> None:
        """Wait for the calls that were cancelled."""
        await asyncio.gather(*self._losers, return_exceptions=True)


async def _outcome(make: Make) -> tuple[Any, BaseException | None]:
    """Return the answer, or what would end the loop if a task raised it."""
    try:
        return await make(), None
    except (KeyboardInterrupt, SystemExit) as error:
        return None, error


def _answered(call: asyncio.Task[Any]) -> bool:
    return not call.cancelled() and call.exception() is None and call.result()[1] is None


def _retrieve(call: asyncio.Task[Any]) -> None:
    """Look at an exception that nobody wants, so that asyncio does not complain."""
    if not call.cancelled():
        call.exception()
