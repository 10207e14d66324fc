"""The environments of a server, assigned so that all workers have equally many sessions.

Steps of all sessions are sent together, and received as they end. A call of agym's costs as much
for one environment as for many. So the steps that sessions ask for in one turn of the event loop
are one ``send``, and each ``recv`` takes all that have ended::

    sessions: step, step, step --> queue --> envs.send      one for each turn of the loop
    sessions: done(result) <-- envs.recv <-- one task, as long as steps are under way
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import fields
from functools import partial
from operator import itemgetter
from time import monotonic
from typing import Any

from agym import AsyncEnvHandle, AsyncEnvs
from agym.core.engine.faults.capsule import shown
from agym.core.protocol.messages.failures import without_controls
from agym.errors import (
    AgymError,
    AgymErrorGroup,
    BusyError,
    ClosedError,
    EnvError,
    Fault,
    NothingSentError,
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


# The outcome of an operation: the result of ``env.step`` or ``env.reset``, or an error.
Outcome = tuple[Any, ...] | BaseException


class Stepping:
    """Steps single environments, those of one turn of the event loop together."""

    def __init__(self, envs: AsyncEnvs[Any, Any]) -> None:
        """Step ``envs``, which are open and return lists. No other code may step them."""
        self._envs = envs
        self._loop = asyncio.get_running_loop()
        self._queue: list[tuple[int, Any]] = []
        # The callback of each environment that steps, by the environment's id.
        self._waiting: dict[int, Callable[[Outcome], None]] = {}
        self._sent = asyncio.Event()
        self._receiver = self._loop.create_task(self._receive())

    def step(self, env_id: int, action: Any, done: Callable[[Outcome], None]) -> None:
        """Step an environment that is not being stepped; ``done`` is called with the outcome."""
        if not self._queue:
            self._loop.call_soon(self._send)
        self._queue.append((env_id, action))
        self._waiting[env_id] = done

    async def aclose(self) -> None:
        """End; steps under way fail."""
        self._receiver.cancel()
        await asyncio.wait([self._receiver])
        self._fail([*self._waiting], ClosedError("the server is closed"))

    def _send(self) -> None:
        queue, self._queue = self._queue, []
        queue.sort(key=itemgetter(0))
        try:
            self._envs.send([action for _, action in queue], [i for i, _ in queue])
        except Exception as error:
            # Nothing was sent. With one of them something is wrong: the others must go.
            if len(queue) == 1:
                self._fail([queue[0][0]], error)
                return
            for each in queue:
                self._queue = [each]
                self._send()
        else:
            self._sent.set()

    async def _receive(self) -> None:
        recv, waiting = self._envs.recv, self._waiting
        while True:
            await self._sent.wait()
            try:
                batch = await recv(1)
            except NothingSentError:
                self._sent.clear()
            except AgymErrorGroup as group:
                for error in group.exceptions:
                    self._fail(getattr(error, "env_ids", ()), error)
            except AgymError as error:
                self._fail(getattr(error, "env_ids", ()) or [*waiting], error)
            except Exception as error:  # unforeseen: no session may wait forever
                self._sent.clear()
                self._fail([*waiting], error)
            else:
                for i, *outcome in zip(*batch, strict=True):
                    self._tell(i, tuple(outcome))
                if not waiting:
                    self._sent.clear()

    def _fail(self, env_ids: Sequence[int], error: BaseException) -> None:
        for i in env_ids:
            self._tell(i, error)

    def _tell(self, env_id: int, outcome: Outcome) -> None:
        done = self._waiting.pop(env_id, None)
        if done is None:
            return
        try:
            done(outcome)
        except Exception as error:  # this session's, and no other's
            message = "a session failed"
            self._loop.call_exception_handler({"message": message, "exception": error})


class SessionSlot:
    """One environment, for one session at a time.

    Attributes:
        env: The environment.
        busy: Whether an operation is running.
        lost: Whether the environment must be replaced before another session uses it.
        on_idle: Called when an operation ends whose session has ended.
        acquired: When the session started.
    """

    def __init__(
        self, env: AsyncEnvHandle[Any, Any], stepping: Stepping, tasks: set[asyncio.Task[None]]
    ) -> None:
        self.env = env
        self.busy = False
        self.lost = False
        self.on_idle: Callable[[], None] | None = None
        self.acquired = 0.0
        self._id = env.index
        self._stepping = stepping
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Outcome]

    def step(self, action: Any) -> asyncio.Future[Outcome]:
        """Step the environment, together with those of other sessions."""
        self.busy, self._outcome = True, self._loop.create_future()
        self._stepping.step(self._id, action, self._end)
        return self._outcome

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> asyncio.Future[Outcome]:
        """Reset the environment; the outcome is the observation and info, or an error."""
        self.busy, self._outcome = True, self._loop.create_future()
        track(self._reset(seed, options), self._tasks)
        return self._outcome

    async def _reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        try:
            outcome: Outcome = await self.env.reset(seed=seed, options=options)
        except Exception as error:  # the session waits for the outcome, whatever it is
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
        if not self._outcome.done():  # else its session has ended
            self._outcome.set_result(outcome)
        if self.on_idle is not None:
            self.on_idle()


class SessionSlots:
    """The environments of a server.

    Attributes:
        total: Number of environments.
        any_env: One environment, for its spaces.
        in_use: Number of environments that sessions use.
    """

    def __init__(self, envs: AsyncEnvs[Any, Any]) -> None:
        """Manage the environments, which are open."""
        self.total = envs.num_envs
        self.any_env = envs[0]
        self.in_use = 0
        self._envs = envs
        self._stepping = Stepping(envs)
        # Resets, and replacements of environments.
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = [SessionSlot(env, self._stepping, self._tasks) for env in envs]
        ranges = [worker.env_ids for worker in envs.stats().workers]
        self._free = [deque(ids) for ids in ranges]
        self._worker_of = {i: k for k, ids in enumerate(ranges) for i in ids}
        # The moving average of the length of sessions, in seconds.
        self._usual: float | None = None

    def acquire(self) -> SessionSlot | None:
        """Return a free slot of the worker with most free slots, or ``None``."""
        free = max(self._free, key=len)
        if not free:
            return None
        self.in_use += 1
        slot = self._slots[free.popleft()]
        slot.acquired = monotonic()
        return slot

    def release(self, slot: SessionSlot) -> None:
        """Make a slot free when its operation has ended and a lost environment is replaced."""
        self.in_use -= 1
        seconds = monotonic() - slot.acquired
        self._usual = seconds if self._usual is None else 0.9 * self._usual + 0.1 * seconds
        if slot.busy:  # its client left during the operation
            slot.on_idle = partial(self._settle, slot)
        else:
            self._settle(slot)

    def _settle(self, slot: SessionSlot) -> None:
        """Prepare an environment for another session."""
        slot.on_idle = None
        if slot.lost:
            track(self._replace(slot), self._tasks)
        else:
            self._set_free(slot)

    @property
    def retry_after(self) -> int:
        """Seconds after which a slot will probably be free."""
        expected = (self._usual or 0.0) / self.total
        return round(min(max(MIN_RETRY_SECONDS, expected), MAX_RETRY_SECONDS))

    async def aclose(self) -> None:
        """Stop stepping, resetting and replacing environments."""
        await self._stepping.aclose()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _set_free(self, slot: SessionSlot) -> None:
        i = slot.env.index
        self._free[self._worker_of[i]].append(i)

    async def _replace(self, slot: SessionSlot) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._envs.restart([slot.env.index])
            except AgymError as error:
                # It cannot be made at present, or another environment of its worker is busy.
                if not isinstance(error, NOT_LOGGED):
                    log(slot.env.index, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
            else:
                slot.lost = False
                self._set_free(slot)
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
