"""The task in which all methods of one environment run, where environments change places.

Cancel scopes and sessions need one task for their whole life. Without spares that is the task
of the environment's queue. With spares another environment takes that queue over, so each has a
task of its own::

    run(call) --> inbox --> task: await call --> the caller's future
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable
from typing import Any


class OwnerTask:
    """An environment, and the task that awaits its methods.

    Attributes:
        env: The environment.
        key: What environments that may stand in for each other have in common.
    """

    def __init__(self, env: Any, key: object) -> None:
        self.env = env
        self.key = key
        self._task: asyncio.Task[None] | None = None
        self._inbox: deque[tuple[Awaitable[Any], asyncio.Future[Any]]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._current: asyncio.Future[Any] | None = None
        self._given_up: asyncio.Future[Any] | None = None

    async def run(self, call: Awaitable[Any]) -> Any:
        """Await a call in the task. Cancelling this cancels the call, and nothing after it."""
        if self._task is not None and asyncio.current_task() is self._task:
            return await call
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._inbox.append((call, done))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._serve())
            # asyncio would complain about an idle task that is destroyed with its loop.
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]
        elif self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        try:
            return await done
        except asyncio.CancelledError:
            if not done.cancelled() and done.done():
                done.exception()  # the environment's own, which is raised here
            elif self._current is done:
                self._given_up = done
                self._task.cancel()
            raise

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            if not self._inbox:
                self._wake = task.get_loop().create_future()
                await self._wake
                continue
            call, done = self._inbox.popleft()
            if done.done():  # cancelled before its turn
                if inspect.iscoroutine(call):
                    call.close()
                continue
            self._current = done
            try:
                result = await call
            except GeneratorExit:  # the loop is gone
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and task.cancelling():
                    if self._given_up is not done:
                        raise  # the loop ends
                elif not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)
            finally:
                self._current = None
            if self._given_up is done:
                self._given_up = None
                task.uncancel()

    async def stop(self, close: Awaitable[None]) -> None:
        """Close the environment in its task, after what it still does, and end the task."""
        try:
            await self.run(close)
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
