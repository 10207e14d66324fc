"""The environments that no session uses, dealt so that all workers have as many sessions."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import fields
from functools import partial
from time import monotonic
from typing import Any

from agym import AsyncEnvHandle, AsyncEnvs
from agym.agents.serving.stepping import Outcome, Stepping
from agym.core.engine.faults.capsule import shown
from agym.core.protocol.messages.failures import without_controls
from agym.errors import (
    AgymError,
    BusyError,
    ClosedError,
    EnvError,
    Fault,
    ResetNeededError,
    UsageError,
)

# What went wrong; a program that sets up no logging gets none of it printed.
LOG = logging.getLogger("agym.serve")
LOG.addHandler(logging.NullHandler())
# Errors after which an environment can be reset.
KEEPS_ENV = (EnvError, UsageError, ResetNeededError)
# Errors that are not an environment's: the client's mistakes, the server's end, or a replacement
# that has to wait for the other environments of its worker.
NOT_LOGGED = (UsageError, ResetNeededError, ClosedError, BusyError)
# The pauses between attempts to replace an environment, in seconds.
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
# When a client that found all environments taken may come again, in seconds.
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1, 30


class Place:
    """One environment, for one session at a time.

    Attributes:
        env: The environment.
        busy: Whether an operation of it is under way.
        lost: Whether it must be replaced before another session uses it.
        on_idle: Is called when an operation ends whose session has ended.
    """

    def __init__(
        self, env: AsyncEnvHandle[Any, Any], stepping: Stepping, tasks: set[asyncio.Task[None]]
    ) -> None:
        self.env = env
        self.busy = False
        self.lost = False
        self.on_idle: Callable[[], None] | None = None
        self.taken = 0.0
        self._id = env.index
        self._stepping = stepping
        self._tasks = tasks
        self._done: Callable[[Outcome], None] = _ignore

    def step(self, action: Any, done: Callable[[Outcome], None]) -> None:
        """Step the environment, together with those of other sessions; ``done`` is called once."""
        self.busy, self._done = True, done
        self._stepping.step(self._id, action, self._end)

    def reset(
        self,
        seed: int | None,
        options: dict[str, Any] | None,
        done: Callable[[Outcome], None],
    ) -> None:
        """Reset the environment; ``done`` is called with the observation and info, or an error."""
        self.busy, self._done = True, done
        track(self._reset(seed, options), self._tasks)

    async def _reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        try:
            outcome: Outcome = await self.env.reset(seed=seed, options=options)
        except Exception as error:  # whatever it is, somebody waits for the outcome
            outcome = error
        self._end(outcome)

    def _end(self, outcome: Outcome) -> None:
        self.busy = False
        if isinstance(outcome, BaseException):
            self.lost = not isinstance(outcome, KEEPS_ENV)
            if not isinstance(outcome, NOT_LOGGED):
                log(self._id, outcome)
        elif isinstance(fault := outcome[-1].get("fault"), Fault):
            log(self._id, fault)
        if self.on_idle is None:
            self._done(outcome)
        else:
            self.on_idle()


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
        # Resets, and replacements of environments.
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = [Place(env, self._stepping, self._tasks) for env in envs]
        ranges = [worker.env_ids for worker in envs.stats().workers] or [range(self.total)]
        self._free = [deque(ids) for ids in ranges]
        self._worker_of = {i: k for k, ids in enumerate(ranges) for i in ids}
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
        if place.busy:  # its client left meanwhile
            place.on_idle = partial(self._settle, place)
        else:
            self._settle(place)

    def _settle(self, place: Place) -> None:
        """Have an environment ready for another session."""
        place.on_idle = None
        if place.lost:
            track(self._replace(place), self._tasks)
        else:
            self._set_free(place)

    @property
    def retry_after(self) -> int:
        """Seconds after which a place will probably be free."""
        expected = (self._usual or 0.0) / self.total
        return round(min(max(MIN_RETRY_SECONDS, expected), MAX_RETRY_SECONDS))

    async def aclose(self) -> None:
        """Stop stepping, resetting and replacing environments."""
        await self._stepping.aclose()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _set_free(self, place: Place) -> None:
        i = place.env.index
        self._free[self._worker_of[i]].append(i)

    async def _replace(self, place: Place) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._envs.restart([place.env.index])
            except AgymError as error:
                # It cannot be made at present, or one of its worker is busy.
                if not isinstance(error, NOT_LOGGED):
                    log(place.env.index, error)
                await _pause(pause)
                pause = min(2 * pause, MAX_PAUSE)
            else:
                place.lost = False
                self._set_free(place)
                return


def log(env_id: int, failure: Fault | BaseException) -> None:
    """Log all that is known of a failure of an environment; its client gets the text alone."""
    if isinstance(failure, Fault):
        named = ((field.name, getattr(failure, field.name)) for field in fields(failure))
        known = ", ".join(
            f"{name} {shown(value)}"
            for name, value in named
            if value not in (None, "") and name not in ("env_id", "error", "traceback")
        )
        text = f"{failure.error} ({known})\n{failure.traceback}"
    else:
        text = "".join(traceback.format_exception(failure))
    LOG.error("environment %d failed: %s", env_id, without_controls(text.rstrip()))


def track(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    """Run a coroutine as one of ``tasks``, until it ends."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().create_future()


def _ignore(outcome: Outcome) -> None:
    pass
