"""The thread of a page: an event loop that serves while synchronous code runs."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Thread:
    """An event loop in a separate thread."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agym-page", daemon=True)
        self._thread.start()
        self._started.wait()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._over.wait()

    def do(self, function: Callable[[], Any]) -> Any:
        """Call a function or run a coroutine on the loop, and return its result."""

        async def run() -> Any:
            result = function()
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def close(self) -> None:
        """Stop the loop and join the thread. Idempotent."""
        if self._thread.is_alive():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
