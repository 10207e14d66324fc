"""The first thing that a connection meets: it waits here until its request is complete.

So a client that sends nothing, or a byte now and then, costs a buffer and a timer, until its time
is up. Afterwards the connection is aiohttp's::

    connection --> Door: header complete? --> aiohttp's protocol, which gets what came so far
                     | too long, too slow, too many connections
                     v
                   closed, with an HTTP status
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

# A request's header, in bytes.
MAX_HEADER = 16 * 1024
END = b"\r\n\r\n"


class Door(asyncio.Protocol):
    """Receives one request's header."""

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        waiting: set[Door],
        is_full: Callable[[], bool],
        timeout: float,
        retry_after: Callable[[], int],
    ) -> None:
        """Remember what follows.

        Args:
            make_protocol: Makes the protocol that takes over.
            waiting: The doors at which a connection waits; this one enters and leaves.
            is_full: Tells whether there are too many connections.
            timeout: Seconds until the header must be complete.
            retry_after: Returns the seconds after which whoever is turned away may come again.
        """
        self._make_protocol = make_protocol
        self._waiting = waiting
        self._is_full = is_full
        self._timeout = timeout
        self._retry_after = retry_after
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        if self._is_full():
            self._refuse(f"503 Service Unavailable\r\nRetry-After: {self._retry_after()}")
            return
        self._waiting.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout, self._refuse, "408 Request Timeout")

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        self._received += data
        if END in self._received[: MAX_HEADER + len(END)]:
            self._leave()
            protocol = self._make_protocol()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            protocol.data_received(bytes(self._received))
        elif len(self._received) > MAX_HEADER:
            self._refuse("431 Request Header Fields Too Large")

    def eof_received(self) -> None:
        """Close: a client that stops sending before its request is complete wants nothing."""

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def close(self) -> None:
        """Close the connection, because the server closes."""
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, status: str) -> None:
        transport = self._transport
        self._leave()
        if transport is not None:
            head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            transport.write(head.encode())
            transport.close()

    def _leave(self) -> None:
        self._waiting.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
