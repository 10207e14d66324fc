"""uvicorn's protocols, with the limits that uvicorn lacks. Imported with uvicorn installed only.

::

    connection --> GuardedHTTP: is the header complete? --> the application
                     |            | it opens a WebSocket
                     |            +--> GuardedWebSocket --> the application
                     | too long, too slow, or too many connections
                     +--> closed, with an HTTP status
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from agym.core.web.settings import ServerSettings

if TYPE_CHECKING:
    import h11
    from websockets.http11 import Request

# Maximum number of bytes of a request's header.
MAX_HEADER = 16 * 1024
# Seconds until a WebSocket that the application has closed is aborted.
CLOSE_SECONDS = 1.0


def make_factory(
    app: Any, settings: ServerSettings
) -> tuple[Callable[[], asyncio.Protocol], ServerState]:
    """Return a function that makes the protocol of a connection, and what the protocols share."""
    config = Config(
        app,
        interface="asgi3",
        http=GuardedHTTP,
        h11_max_incomplete_event_size=MAX_HEADER,
        ws=GuardedWebSocket,
        ws_max_size=settings.message_bytes,
        ws_per_message_deflate=False,
        ws_ping_interval=None,  # pings would draw from the caller's random numbers
        lifespan="off",
        log_config=None,
        proxy_headers=False,
    )
    config.load()
    state = ServerState()
    return lambda: GuardedHTTP(config, state, settings), state


class GuardedHTTP(H11Protocol):
    """HTTP; refuses requests that are too long or too slow, and connections that are too many."""

    def __init__(self, config: Config, state: ServerState, settings: ServerSettings) -> None:
        super().__init__(config, state, {})
        self._settings = settings

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        settings = self._settings
        self._timer = self.loop.call_later(settings.request_timeout, self._refuse, 408)
        if len(self.connections) > settings.connections:
            self._refuse(503, f"Retry-After: {settings.retry_after()}\r\n")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.scope is not None:  # the header is complete
            self._timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # uvicorn calls this method where it handles the parser's error.
        self._refuse(getattr(sys.exception(), "error_status_hint", 400))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        early, _ = self.conn.trailing_data
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        assert isinstance(protocol, GuardedWebSocket)
        if not protocol.handshake_initiated:  # a header that websockets does not accept
            self._refuse(431)
        elif early:  # uvicorn drops it; the application's task, which is scheduled, comes first
            self.loop.call_soon(protocol.data_received, early)

    def _refuse(self, status: int, fields: str = "") -> None:
        self._timer.cancel()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{fields}"
        self.transport.write(f"{head}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())
        self.transport.close()


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket; reads nothing from a client that reads nothing, and aborts what stays open.

    When the client leaves, the application is cancelled, whatever it awaits.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._application, self.app = self.app, self._run
        self._task: asyncio.Task[Any] | None = None

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        self._task = asyncio.current_task()
        try:
            await self._application(scope, receive, send)
        except asyncio.CancelledError:
            if self.disconnected:
                raise ClientDisconnected from None  # uvicorn does not log this error
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()

    async def receive(self) -> Any:
        if not self.queue.empty():
            await asyncio.sleep(0)  # a client that sends many messages at once delays no other
        return await super().receive()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            # A frame that is read before the handshake is answered would be answered before it.
            self.read_paused = True
            self.transport.pause_reading()

    def handle_ping(self) -> None:
        super().handle_ping()
        if not self.writable.is_set():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(CLOSE_SECONDS, self.transport.abort)
