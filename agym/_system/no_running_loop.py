"""Environments with plain methods find no running event loop, whoever calls them.

Under the async API, and wherever the sync API is used inside a coroutine, the thread that steps
environments in place runs a loop. ``asyncio.run`` refuses to run another one inside it. So asyncio
is told that none runs, as long as the thread is in an environment::

    with OutsideLoop():
        env.step(action)    # may call asyncio.run

The caller's loop does not turn meanwhile, as in any call that is not awaited, and cannot notice
that another one does: loops share nothing but asyncio's records of which loop, and which task, a
thread is running.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
from typing import Any

# From Python 3.14 on the running task is recorded by thread; until then by loop, and no loop finds
# the task of another. (From 3.12 on there is this function, which does the right thing in both.)
_swap_task: Any = getattr(asyncio.tasks, "_swap_current_task", None)


class NoRunningLoop:
    """A block in which this thread runs no event loop."""

    __slots__ = ("_loop", "_task")

    _loop: asyncio.AbstractEventLoop | None
    _task: Any

    def __enter__(self) -> None:
        """Have asyncio forget the running loop, if there is one."""
        self._loop = loop = asyncio._get_running_loop()
        if loop is not None:
            self._task = None if _swap_task is None else _swap_task(loop, None)
            asyncio._set_running_loop(None)

    def __exit__(self, *_: object) -> None:
        """Have it remember."""
        if self._loop is not None:
            asyncio._set_running_loop(self._loop)
            if _swap_task is not None:
                _swap_task(self._loop, self._task)
            self._loop = self._task = None
