"""Separates environments from the caller if both run in one thread.

Under the async API, and if the sync API is used inside a coroutine, the thread that steps
environments runs a loop, and ``asyncio.run`` refuses to run another one inside it. So asyncio's
record of the running loop is cleared while the thread is in an environment::

    with NoRunningLoop():
        env.step(action)    # may call asyncio.run

The caller's loop does not turn during that time, as in any call that is not awaited, so it cannot
notice a second loop. Loops share only asyncio's records of a thread's running loop and task.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import contextlib
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

# From Python 3.14 on, the running task is recorded per thread; before that, per loop, so that a
# loop does not see another loop's task. (The function exists from 3.12 on, and works for both.)
_swap_task: Any = getattr(asyncio.tasks, "_swap_current_task", None)


class NoRunningLoop:
    """A block in which asyncio sees no running event loop in this thread."""

    __slots__ = ("_loop", "_task")

    _loop: asyncio.AbstractEventLoop | None
    _task: Any

    def __enter__(self) -> None:
        self._loop = loop = asyncio._get_running_loop()
        if loop is not None:
            self._task = None if _swap_task is None else _swap_task(loop, None)
            asyncio._set_running_loop(None)

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            asyncio._set_running_loop(self._loop)
            if _swap_task is not None:
                _swap_task(self._loop, self._task)
            self._loop = self._task = None


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep environments on trial away from the caller's random numbers, warnings and event loop."""
    state, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    tensors = None if torch is None else torch.get_rng_state()
    try:
        with contextlib.ExitStack() as stack:
            if threading.current_thread() is threading.main_thread():  # filters are global
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            stack.enter_context(NoRunningLoop())
            yield
    finally:
        random.setstate(state)
        np.random.set_state(legacy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(tensors)
