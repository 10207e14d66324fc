"""Serves an ASGI application by uvicorn's protocols, on the running event loop.

uvicorn's own ``Server`` is for a program that does nothing else: it installs signal handlers and
checks ten times per second whether it should end. Here, the protocols run on an event loop that
belongs to the caller, and leave the caller's signals, logs and random numbers alone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextvars import ContextVar
from typing import Any

from agym.core._system.extras import require
from agym.core.web.settings import ServerSettings
from agym.errors import UsageError

# Connections that the system may hold before they are accepted.
BACKLOG = 1024
# Seconds that open requests have when the server closes.
GRACE_SECONDS = 1.0

# The logger of the server that is running. uvicorn logs whole addresses, and so tokens.
_log: ContextVar[logging.Logger | None] = ContextVar("agym_web_log", default=None)


def _divert(record: logging.LogRecord) -> bool:
    """Keep a record of agym's servers out of uvicorn's logs; pass a warning on to the server's."""
    log = _log.get()
    if log is not None and record.levelno >= logging.WARNING:
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
    return log is None


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UsageError: The port is taken or not permitted.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen at host={host!r}, port={port!r}: {error}; use port=0 for a free one"
        ) from error


class WebServer:
    """Serves one application at one socket."""

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        settings: ServerSettings,
        *,
        extra: str,
        log: logging.Logger,
    ) -> None:
        """Start on the running event loop.

        Args:
            app: The ASGI application.
            listening: A socket of :func:`bind`, which the server closes.
            settings: The limits.
            extra: The extra of agym that installs uvicorn.
            log: Receives warnings, such as those of malformed requests.

        Raises:
            MissingExtraError: uvicorn or websockets is not installed.
        """
        check_installed(extra)
        from agym.core.web.protocols import make_factory

        self._make_protocol, self._state = make_factory(app, settings)
        self._log = log
        self._closing = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._serve(listening))

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        self._closing.set()
        await asyncio.wait([self._task])

    async def _serve(self, listening: socket.socket) -> None:
        _log.set(self._log)  # in this task, and in all callbacks and tasks of its connections
        for name in ("uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).addFilter(_divert)  # adding it twice has no effect
        loop = asyncio.get_running_loop()
        with listening:
            server = await loop.create_server(self._make_protocol, sock=listening, backlog=BACKLOG)
            try:
                await self._closing.wait()
            finally:
                server.close()
                await self._close_connections()
                await server.wait_closed()

    async def _close_connections(self) -> None:
        state = self._state
        for connection in [*state.connections]:
            connection.shutdown()
        for timeout in (GRACE_SECONDS, None):
            if state.tasks:
                await asyncio.wait(state.tasks, timeout=timeout)
            for task in state.tasks:
                task.cancel()
        for connection in state.connections:
            connection.transport.abort()


def check_installed(extra: str) -> None:
    """Check that the packages of a server are installed.

    Raises:
        MissingExtraError: A package is not installed.
    """
    for package in ("uvicorn", "websockets", "starlette"):
        require(package, extra)
