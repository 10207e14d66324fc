"""The environments that no session uses, dealt so that all workers have as many sessions."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any

from agym.api.aio import AsyncEnvHandle, AsyncEnvs
from agym.errors import AgymError
from agym.tools.serving.stepping import Result, Stepping

# The pauses between attempts to replace an environment, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
# When a client that found all environments taken may come again, in seconds.
SOONEST, LATEST = 1, 30


class Place:
    """One environment, for one session at a time.

    Attributes:
        env: The environment.
        lost: Whether it must be replaced before another session uses it.
    """

    def __init__(self, env: AsyncEnvHandle[Any, Any], stepping: Stepping) -> None:
        self.env = env
        self._stepping = stepping
        self._id = env.index
        self.lost = False
        self.taken = 0.0

    def step(self, action: Any) -> asyncio.Future[Result]:
        """Step the environment, together with those of other sessions."""
        return self._stepping.step(self._id, action)


class Places:
    """The environments of a server.

    Attributes:
        total: How many there are.
        any_env: One of them, for its spaces.
        taken: How many sessions use.
    """

    def __init__(self, envs: AsyncEnvs[Any, Any]) -> None:
        """Take the environments, which are open."""
        self.total = envs.num_envs
        self.any_env = envs[0]
        self.taken = 0
        self._envs = envs
        self._stepping = Stepping(envs)
        self._places = [Place(env, self._stepping) for env in envs]
        ranges = [worker.env_ids for worker in envs.stats().workers] or [range(self.total)]
        self._free = [deque(ids) for ids in ranges]
        self._worker_of = {i: k for k, ids in enumerate(ranges) for i in ids}
        self._repairs: set[asyncio.Task[None]] = set()
        # The average length of the last sessions, in seconds.
        self._usual: float | None = None

    def take(self) -> Place | None:
        """Return a free place, or ``None``; of the worker that has most of them."""
        free = max(self._free, key=len)
        if not free:
            return None
        self.taken += 1
        place = self._places[free.popleft()]
        place.taken = monotonic()
        return place

    def give_back(self, place: Place) -> None:
        """Take a place back, and replace its environment if that is lost."""
        self.taken -= 1
        seconds = monotonic() - place.taken
        self._usual = seconds if self._usual is None else 0.9 * self._usual + 0.1 * seconds
        if place.lost:
            task = asyncio.get_running_loop().create_task(self._replace(place))
            self._repairs.add(task)
            task.add_done_callback(self._repairs.discard)
        else:
            self._set_free(place)

    @property
    def retry_after(self) -> int:
        """Seconds after which a place will probably be free."""
        expected = (self._usual or 0.0) / self.total
        return round(min(max(SOONEST, expected), LATEST))

    async def aclose(self) -> None:
        """Stop stepping and replacing environments."""
        await self._stepping.aclose()
        for task in self._repairs:
            task.cancel()
        if self._repairs:
            await asyncio.wait(self._repairs)

    def _set_free(self, place: Place) -> None:
        i = place.env.index
        self._free[self._worker_of[i]].append(i)

    async def _replace(self, place: Place) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._envs.restart([place.env.index])
            except AgymError:
                # It cannot be made at present, or one of its worker is busy.
                await _pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                place.lost = False
                self._set_free(place)
                return


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().create_future()
