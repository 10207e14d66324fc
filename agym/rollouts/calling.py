"""Calls a policy's function with stacked observations, in a thread or in a task."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

from agym.core._system.fork_safety import abandon_in_forks
from agym.core.engine.tap import mark
from agym.errors import UsageError
from agym.rollouts.stacking import split, stack


class _Job(NamedTuple):
    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    done: Callable[[Any, BaseException | None], None]


class FunctionThreads:
    """Threads that run jobs in order, and report each result to the event loop of its job.

    The threads are daemons, so that a function that hangs does not keep the program alive. They
    start with the first job, and end when this object is stopped or deleted. A forked child starts
    new threads.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self.abandon()

    def abandon(self) -> None:
        """Forget all threads: the parent's do not exist in a forked child."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(
        self,
        call: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Run ``call`` in a thread, then ``done(value, error)`` on the loop."""
        if not self._threads:
            self._start()
        self._jobs.put(_Job(call, loop, done))

    def _start(self) -> None:
        abandon_in_forks(self)
        self._threads = [
            threading.Thread(target=_run, args=(self._jobs,), name=f"{self._name}-{k}", daemon=True)
            for k in range(self._count)
        ]
        weakref.finalize(self, _stop, self._jobs, self._count)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, after the jobs that are already queued."""
        _stop(self._jobs, len(self._threads))

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, at most ``seconds`` for all together."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))


def _run(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        value, error = None, None
        try:
            value = job.call()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and with it all waiting tasks
            job.loop.call_soon_threadsafe(job.done, value, error)
        del job, value, error  # or they would live until the next job


def _stop(jobs: SimpleQueue[_Job | None], count: int) -> None:
    for _ in range(count):
        jobs.put(None)


def answering(function: Callable[[Any], Any], name: str) -> Callable[[list[Any]], Any]:
    """Wrap a policy's function to map a list of observations to a list of answers."""

    def rows(output: Any, n: int) -> list[Any]:
        try:
            return split(output, n)
        except UsageError as error:
            raise UsageError(f"policy {name}: {error}") from None

    if is_coroutine_function(function):

        async def answer_later(observations: list[Any]) -> list[Any]:
            return rows(await function(stack(observations)), len(observations))

        return answer_later

    def answer(observations: list[Any]) -> list[Any]:
        output = function(stack(observations))
        if inspect.iscoroutine(output):
            output.close()
            raise UsageError(f"policy {name} returned a coroutine: make it an `async def` function")
        return rows(output, len(observations))

    return answer


def marked(function: Callable[[Any], Any], argument: Any, label: str) -> Any:
    """Call a function, and show it in timelines."""
    with mark(label):
        return function(argument)


async def marked_await(function: Callable[[Any], Any], argument: Any, label: str) -> Any:
    """Await a coroutine function, and show it in timelines."""
    with mark(label):
        return await function(argument)


def is_coroutine_function(function: Any) -> bool:
    """Return whether an object, or its ``__call__``, is a coroutine function."""
    call = getattr(function, "__call__", None)  # noqa: B004 (not whether it is callable)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def copy_of_error(error: BaseException) -> BaseException:
    """Return a copy for one caller: a shared error would collect the tracebacks of all callers.

    An error that cannot be copied is returned itself.
    """
    # A future accepts no StopIteration, and CancelledError would cancel the caller.
    if isinstance(error, StopIteration | asyncio.CancelledError):
        wrapped = RuntimeError(f"the function raised {type(error).__name__}")
        wrapped.__cause__ = error
        return wrapped
    try:
        copied = copy.copy(error)
        if type(copied) is not type(error):
            return error
        # ``copy`` calls the constructor, which may have changed the arguments a second time.
        copied.args = error.args
        copied.__cause__, copied.__context__ = error.__cause__, error.__context__
        copied.__suppress_context__ = error.__suppress_context__
        return copied.with_traceback(error.__traceback__)
    except Exception:
        return error
