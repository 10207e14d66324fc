"""One WebSocket to a server, with at most one question outstanding.

An answer carries no number, so that only its place in the stream says which question it answers.
Therefore a connection ends with the first question whose answer was not awaited to its end::

    ask(question) --> server --> answer          the connection lives
    ask(question) -/- timeout, cancellation, a second answer, an unasked message: abort()

The WebSocket protocol itself is that of ``websockets``, without input or output. A connection is
one ``asyncio.Protocol``, without a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from agym.agents.openenv.client_server import SHOWN, Refused, WrongProtocol, tls_context
from agym.core._system.extras import require
from agym.errors import BusyError

if TYPE_CHECKING:
    from websockets.client import ClientProtocol

# Kinds of frames.
CONTINUATION, TEXT, BINARY = 0, 1, 2
# Seconds that a server may take to answer the closing of a connection.
CLOSING_TIME = 1.0


class Broken(Exception):
    """The connection ended before the answer came.

    Attributes:
        message: The last message of the server, which nobody had asked for, or ``None``.
    """

    def __init__(self, text: str, message: str | bytes | None = None) -> None:
        super().__init__(text)
        self.message = message


class Connection(asyncio.Protocol):
    """One WebSocket to a server, with at most one question outstanding."""

    def __init__(self, protocol: ClientProtocol) -> None:
        """Store the state of the WebSocket protocol; :meth:`open` makes a connection."""
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._when_closed: Callable[[], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Future[None] = self._loop.create_future()
        self._answer: asyncio.Future[str | bytes] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        # Parts of a message that comes in fragments.
        self._parts: list[bytes | bytearray | memoryview] = []
        self._text = False
        # Why no question can be asked any more, "" while one can.
        self._broken = ""
        self._unasked: str | bytes | None = None

    @classmethod
    async def open(
        cls, url: str, *, headers: Mapping[str, str], subprotocols: Sequence[str], max_size: int
    ) -> Connection:
        """Open a connection; the caller limits the time.

        Raises:
            OSError: No connection to the server.
            Refused: The server answered with another HTTP status.
            WrongProtocol: The server does not speak the protocol.
        """
        client = require("websockets.client", "openenv")
        address = require("websockets.uri", "openenv").parse_uri(url)
        protocol: ClientProtocol = client.ClientProtocol(
            address, subprotocols=list(subprotocols) or None, max_size=max_size
        )
        request = protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        self = cls(protocol)
        try:
            tls = tls_context() if address.secure else None
            await self._loop.create_connection(lambda: self, address.host, address.port, ssl=tls)
            protocol.send_request(request)
            self._flush()
            await self._opening
        except BaseException:
            self.abort("it was not opened")
            raise
        return self

    # ---------------------------------------------------------------- for the owner

    @property
    def usable(self) -> bool:
        """Whether a question can be asked."""
        return not self._broken

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol on which both sides agreed."""
        return self._protocol.subprotocol

    async def ask(self, question: str | bytes, timeout: float | None) -> str | bytes:
        """Send a message, and return the next one of the server.

        If this does not return, for whichever reason, the connection is aborted.

        Raises:
            TimeoutError: No answer within ``timeout`` seconds.
            Broken: The connection ended first.
            BusyError: A question is outstanding.
        """
        if self._answer is not None:
            raise BusyError("the environment has not answered its last operation: await that first")
        if self._broken:
            raise Broken(self._broken, self._unasked)
        self._answer = answer = self._loop.create_future()
        timer = None if timeout is None else self._loop.call_later(timeout, _expire, answer)
        try:
            self._send(question)
            self._flush()
            message: str | bytes = await answer
            return message
        except BaseException as error:
            self.abort(f"its last question was given up: {type(error).__name__}")
            raise
        finally:
            self._answer = None
            if timer is not None:
                timer.cancel()

    def when_closed(self, function: Callable[[], None]) -> None:
        """Call a function as soon as the connection is closed or given up."""
        if self._closed.done():
            function()
        else:
            self._when_closed = function

    def abort(self, reason: str) -> None:
        """End the connection at once, and drop what has not been sent."""
        self._break(reason)
        if self._transport is not None:
            self._transport.abort()
        self._report_closed()

    def close(self, last: str | bytes) -> None:
        """End the connection in order, after a last message, without waiting for it."""
        if self._broken:
            return
        self._broken = "it was closed"
        self._send(last)
        self._protocol.send_close(1000)
        self._flush()
        self._end_soon()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, for :data:`CLOSING_TIME` at most."""
        if self._transport is not None:
            await asyncio.shield(self._closed)

    # ---------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Process the server's bytes, and answer its pings."""
        protocol = self._protocol
        protocol.receive_data(data)
        events: list[Any] = protocol.events_received()
        self._flush()
        if not self._opening.done():
            self._finish_opening(events)
        for event in events:
            if event.opcode <= BINARY:
                self._receive(event)
        if protocol.parser_exc is not None:
            self.abort(f"the server broke the protocol: {protocol.parser_exc}")
        elif protocol.close_rcvd is not None and not self._broken:
            self._break(f"the server closed it ({protocol.close_rcvd})")
            self._end_soon()

    def eof_received(self) -> bool:
        """Close the transport: a half-closed connection is of no use."""
        self._protocol.receive_eof()
        if not self._opening.done():
            self._finish_opening(self._protocol.events_received())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the operation that waits."""
        self._break(f"it was lost ({exc})" if exc else "the server ended it")
        if not self._opening.done():
            self._opening.set_exception(ConnectionResetError(self._broken))
        self._closed.set_result(None)
        self._report_closed()

    # ---------------------------------------------------------------- parts

    def _finish_opening(self, events: list[Any]) -> None:
        """Learn how the opening handshake ended, if it has."""
        error = self._protocol.handshake_exc
        if events:
            response = events.pop(0)
            if error is None:
                self._opening.set_result(None)
            elif response.status_code == 101:
                self._opening.set_exception(WrongProtocol(str(error)))
            else:
                status, body = response.status_code, bytes(response.body or b"")
                self._opening.set_exception(Refused(status, response.headers, body))
        elif error is not None:
            self._opening.set_exception(WrongProtocol(str(error)))

    def _receive(self, frame: Any) -> None:
        """Take a frame of data, which completes a message or is a part of one."""
        if frame.opcode != CONTINUATION:
            self._text = frame.opcode == TEXT
        if not frame.fin or self._parts:
            self._parts.append(frame.data)
            if not frame.fin:
                return
            data, self._parts = b"".join(self._parts), []
        else:
            data = bytes(frame.data)
        try:
            message = data.decode() if self._text else data
        except UnicodeDecodeError:
            self.abort("the server sent text that is not UTF-8")
            return
        if self._answer is None or self._answer.done():
            # This must not become the answer to the next question.
            self._unasked = message
            self._break(f"the server sent {message[:SHOWN]!r} without being asked")
            self._end_soon()
        else:
            self._answer.set_result(message)

    def _send(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)

    def _flush(self) -> None:
        assert self._transport is not None
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    def _break(self, reason: str) -> None:
        """Refuse further questions, and fail the outstanding question."""
        self._broken = self._broken or reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(self._broken))

    def _end_soon(self) -> None:
        """Abort the connection, unless it is closed within :data:`CLOSING_TIME`."""
        assert self._transport is not None
        timer = self._loop.call_later(CLOSING_TIME, self._transport.abort)
        self._closed.add_done_callback(lambda _: timer.cancel())

    def _report_closed(self) -> None:
        if self._when_closed is not None:
            when_closed, self._when_closed = self._when_closed, None
            when_closed()


def _expire(answer: asyncio.Future[str | bytes]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
