"""Reruns the operations of a capsule, with one environment, in this process.

The same code drives both kinds of environments: Gymnasium's without an event loop, and coroutine
environments on one::

    factory() -> reset(seed, options) -> step(action), step(action), ... -> failed operation
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from agym.api.run import run, run_now
from agym.core._system.watchdog import Hang, deadline
from agym.core.engine.faults.capsule import Capsule
from agym.core.hosts.factories import innermost, is_coroutine_env
from agym.core.hosts.slot import Stopped
from agym.faults.replica import NeedsLoop, Replica


@dataclass(frozen=True)
class Ending:
    """Result of a rerun.

    Attributes:
        error: The environment's exception, a :class:`Hang`, or ``None``.
        operation: The last operation.
        steps: Number of recorded actions before it.
        last: Whether it was the capsule's last operation, which failed in the recording.
    """

    error: BaseException | None
    operation: str
    steps: int
    last: bool


@dataclass(frozen=True)
class Watch:
    """Callbacks and the timeout of a rerun.

    Attributes:
        after_step: Called after each action, with the number of actions so far.
        last: Called before the failed operation, in the frame that calls the environment.
        ended: Called at the end, before the environment is closed.
        stuck: Called if the environment hangs and cannot be interrupted, with the operation and
            its frame; in another thread, right before the process ends.
        seconds: How long the failed operation may take, if it hung in the recording.
    """

    after_step: Callable[[int], None]
    last: Callable[[], None]
    ended: Callable[[Ending], None]
    stuck: Callable[[str, FrameType], None]
    seconds: float


def rerun(capsule: Capsule, watch: Watch) -> Ending:
    """Repeat everything that a capsule recorded.

    Raises:
        KeyboardInterrupt: The user, not the environment, stopped the rerun.
    """
    on_loop = is_coroutine_env(innermost(capsule.factory))
    replica = Replica(capsule, watch.last, on_loop=on_loop)
    play = _Play(capsule, watch, replica).run
    if not replica.on_loop:
        with suppress(NeedsLoop):
            return run_now(play())
        replica.on_loop = True
    return run(play())


class _Play:
    """A rerun in progress."""

    def __init__(self, capsule: Capsule, watch: Watch, replica: Replica) -> None:
        self._capsule = capsule
        self._watch = watch
        self._replica = replica
        self._steps = 0

    async def run(self) -> Ending:
        replica = self._replica
        error: BaseException | None = None
        try:
            await self._all()
        except NeedsLoop:
            raise
        except Stopped as stopped:
            error = stopped.error
        except BaseException as raised:
            if self._is_interrupt(raised):
                raise
            error = raised
        ending = Ending(error, replica.doing, self._steps, replica.last)
        self._watch.ended(ending)
        if replica.env is not None and replica.doing != "close" and not isinstance(error, Hang):
            with suppress(Exception):
                closing = replica.env.close()
                if replica.on_loop and inspect.isawaitable(closing):
                    await closing
        return ending

    def _is_interrupt(self, error: BaseException) -> bool:
        """Return whether the user stopped the rerun."""
        if isinstance(error, asyncio.CancelledError) and self._replica.on_loop:
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
        ctrl_c = isinstance(error, KeyboardInterrupt)
        return ctrl_c and not self._capsule.fault.error.startswith("KeyboardInterrupt")

    async def _all(self) -> None:
        capsule, replica = self._capsule, self._replica
        if capsule.fault.operation == "make":
            return await self._run_last(replica.make)
        await replica.make()
        actions = list(capsule.actions)
        if capsule.fault.operation == "reset" and not actions:
            return await self._run_last(replica.reset)
        await replica.reset()
        last = replica.last_operation(actions)
        for action in actions:
            await replica.step(action)
            self._steps += 1
            self._watch.after_step(self._steps)
        return await self._run_last(last)

    async def _run_last(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._replica.last = True
        if self._capsule.fault.kind != "timeout":
            await function()
            return
        on_loop = self._replica.on_loop
        with deadline(self._watch.seconds, self._stuck, interrupt=not on_loop):
            if not on_loop:
                await function()
                return
            try:
                async with asyncio.timeout(self._watch.seconds) as scope:
                    await function()
            except TimeoutError as error:
                if not scope.expired():
                    raise
                cancelled = error.__cause__ or error
                raise Hang().with_traceback(cancelled.__traceback__) from None

    def _stuck(self, frame: FrameType) -> None:
        self._watch.stuck(self._replica.doing, frame)
