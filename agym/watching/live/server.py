"""The server: serves a page by uvicorn on an event loop, the caller's or one in a thread.

It leaves the caller's signal handlers, logs and random numbers alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from agym.core._system.extras import require
from agym.errors import UsageError
from agym.watching.live.web_app import MAX_BYTES

# Whether the running code is the page's: the page and its token must stay out of the caller's logs.
_in_page: ContextVar[bool] = ContextVar("agym_page", default=False)


def _is_not_page(record: logging.LogRecord) -> bool:
    return not _in_page.get()


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UsageError: The port is taken or not permitted.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
        except BaseException:
            listening.close()
            raise
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot serve the page at host={host!r}, port={port!r}: {error}; take port=0 for a"
            " free one"
        ) from error
    return listening


class Server:
    """Serves one application on one event loop."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        """Start on the running event loop.

        Raises:
            MissingExtraError: Uvicorn is not installed.
        """
        uvicorn = require("uvicorn", "watch")
        require("wsproto", "watch")
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="wsproto",
            ws_max_size=MAX_BYTES,
            ws_per_message_deflate=False,
            ws_ping_interval=None,  # pings would draw from the caller's random numbers
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = contextlib.nullcontext
        logging.getLogger("uvicorn.error").addFilter(_is_not_page)  # adding it twice has no effect
        self._task = asyncio.get_running_loop().create_task(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        _in_page.set(True)  # in this task and all tasks that it starts
        with listening:
            await self._server.serve([listening])

    async def aclose(self) -> None:
        self._server.should_exit = True
        await asyncio.wait([self._task])


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
