"""Run async programs on the fastest event loop that is installed, and coroutines without one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from agym.core.backends.process.worker_process import new_loop
from agym.errors import UsageError, UsageTypeError

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run a coroutine as ``asyncio.run`` does, on uvloop where it is installed.

    Example:
        >>> import agym, asyncio
        >>> async def main():
        ...     await asyncio.sleep(0)
        ...     return 1
        >>> agym.run(main())
        1

    Args:
        main: The coroutine.
        debug: asyncio's debug mode; ``None`` for its default.

    Returns:
        The coroutine's result.

    Raises:
        UsageError: A loop is running already, or ``main`` is not a coroutine.
    """
    if not asyncio.iscoroutine(main):
        name = getattr(main, "__name__", "main")
        remedy = f": call it, agym.run({name}())" if callable(main) else ""
        raise UsageTypeError(f"agym.run needs a coroutine, not {type(main).__name__}{remedy}")
    if asyncio._get_running_loop() is not None:
        main.close()
        raise UsageError(
            "an event loop is running already, as in Jupyter or inside a coroutine: write"
            f" `await {getattr(main, '__name__', 'main')}()` there instead of agym.run"
        )
    with asyncio.Runner(debug=debug, loop_factory=new_loop) as runner:
        return runner.run(main)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("this coroutine must not wait")


class LoopThread:
    """An event loop in a daemon thread, for code that is not async."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._runner:
            self._loop.run_forever()

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs; after a fork, it does not in the child."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is threading.current_thread()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine as a task of the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function on the loop, await what it returns, and return the result."""

        async def run() -> Any:
            result = function()
            return await result if inspect.isawaitable(result) else result

        return self.submit(run()).result()

    def close(self) -> None:
        """Stop the loop, cancel its tasks, and wait for the end of the thread. Idempotent."""
        if self.is_alive:
            with suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._loop.stop)
            if not self.is_current:
                self._thread.join()
