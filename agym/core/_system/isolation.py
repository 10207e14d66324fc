"""Keeps environments and the caller apart where both run in one thread.

Under the async API, and where the sync API is used inside a coroutine, the thread that steps
environments runs a loop, and ``asyncio.run`` refuses to run another one inside it. While the thread
is in an environment, asyncio's record of the running loop is therefore cleared::

    with NoRunningLoop():
        env.step(action)    # may call asyncio.run

The caller's loop does not turn meanwhile, as in any call that is not awaited, so it cannot notice a
second loop. Loops share only asyncio's records of the loop and the task that a thread is running.
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

# From Python 3.14 on the running task is recorded by thread, before that by loop, where no loop
# finds another's task. (This function exists from 3.12 on, and is correct in both cases.)
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
    """Keep environments on trial from the caller's random numbers, warnings and event loop."""
    state, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    tensors = None if torch is None else torch.get_rng_state()
    try:
        with contextlib.ExitStack() as stack:
            if threading.current_thread() is threading.main_thread():  # filters are the process's
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            stack.enter_context(NoRunningLoop())
            yield
    finally:
        random.setstate(state)
        np.random.set_state(legacy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(tensors)
