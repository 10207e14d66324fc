"""The limits of a web server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerSettings:
    """The limits of a server.

    Attributes:
        connections: Maximum number of connections; more are refused with HTTP status 503.
        request_timeout: Seconds until the header of a request must be complete.
        message_bytes: Maximum number of bytes of a WebSocket message.
        retry_after: Returns the ``Retry-After`` of a refused connection, in seconds.
    """

    connections: int = 512
    request_timeout: float = 10.0
    message_bytes: int = 4096
    retry_after: Callable[[], int] = lambda: 1
