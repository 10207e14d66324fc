"""The server's end of a WebSocket, which hands over one message after another.

It takes a connection over as soon as the HTTP request was answered. There is no task and no queue
between the socket and whoever answers::

    bytes --> FrameReader --> on_message(message) --> answer(...), at once or later
                 | ping, close: answered here, also while an answer is awaited
                 | the next message: kept, and nothing more is read until it is its turn
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable

from agym.agents.serving.websocket_frames import (
    BINARY,
    FIN,
    IN_EIGHT,
    IN_TWO,
    TEXT,
    CloseCode,
    FrameError,
    FrameReader,
    Opcode,
)

# Seconds that a client may take to close its end.
CLOSING = 1.0

Message = str | bytes


class WebSocket(asyncio.Protocol):
    """One connection; a text is a ``str``, a binary message is ``bytes``.

    Attributes:
        ended: Has a result as soon as the connection is lost.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        before: asyncio.BaseProtocol,
        longest: int,
        early: bytes = b"",
    ) -> None:
        """Take a connection over.

        Args:
            transport: The connection.
            before: Whose it was, which is told of its loss.
            longest: A message's greatest size in bytes.
            early: What the client sent before it had the answer to its request.
        """
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._transport = transport
        self._before = before
        self._reader = FrameReader(longest)
        self._early = early
        self._on_message: Callable[[Message], None] | None = None
        self._messages: deque[Message] = deque()
        # Whether an answer is awaited, what was written must leave first, nothing is read,
        # and a close frame was sent.
        self._answering = False
        self._clogged = False
        self._paused = False
        self._closing = False
        transport.set_protocol(self)

    def begin(self, on_message: Callable[[Message], None]) -> None:
        """Begin to hand messages over.

        Args:
            on_message: Gets each message, as soon as the last is answered. It calls
                :meth:`answer`, at once or later.
        """
        self._on_message = on_message
        early, self._early = self._early, b""
        self.data_received(early)

    def answer(self, answer: Message) -> None:
        """Answer the message that was handed over last."""
        self.send(answer)
        self._answering = False
        if self._messages:
            self._loop.call_soon(self._next)
        elif self._paused:
            self._regulate()

    def send(self, message: Message) -> None:
        """Send a message."""
        if isinstance(message, str):
            self._write(TEXT, message.encode())
        else:
            self._write(BINARY, message)

    def close(self, code: CloseCode, why: str = "") -> None:
        """Close this end; the connection ends as soon as the client closed the other, or late."""
        if self._closing:
            return
        self._write(Opcode.CLOSE, struct.pack(">H", code) + why.encode())
        self._closing = True
        self._messages.clear()
        self._regulate()
        self._loop.call_later(CLOSING, self._transport.abort)

    # ---------------------------------------------------------------- called by the transport

    def data_received(self, data: bytes) -> None:
        try:
            for opcode, content in self._reader.feed(data):
                if opcode == TEXT:
                    self._messages.append(str(content, "utf-8"))
                elif opcode == BINARY:
                    self._messages.append(content)
                elif opcode == Opcode.PING:
                    self._write(Opcode.PONG, content)
                elif opcode == Opcode.CLOSE:
                    self.close(CloseCode.NORMAL)
                    self._transport.close()
        except FrameError as error:
            self._fail(error.code, str(error))
            return
        except UnicodeDecodeError:
            self._fail(CloseCode.INVALID_TEXT, "a text must be UTF-8")
            return
        if self._messages:
            self._next()

    def pause_writing(self) -> None:
        self._clogged = True
        self._regulate()

    def resume_writing(self) -> None:
        self._clogged = False
        self._next()
        self._regulate()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._messages.clear()
        self._before.connection_lost(error)
        if not self.ended.done():
            self.ended.set_result(None)

    # ---------------------------------------------------------------- parts

    def _next(self) -> None:
        """Hand the next message over, if it is its turn."""
        if self._closing:
            self._messages.clear()
        elif self._messages and not (self._answering or self._clogged) and self._on_message:
            self._answering = True
            try:
                self._on_message(self._messages.popleft())
            except Exception:
                self.close(CloseCode.INTERNAL_ERROR)
                raise
        if self._messages:
            self._regulate()

    def _regulate(self) -> None:
        """Read only as long as what was read can be answered, and the answers are read too."""
        pause = self._clogged or bool(self._messages)
        if pause is not self._paused:
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _fail(self, code: CloseCode, why: str) -> None:
        self.close(code, why)
        self._transport.close()

    def _write(self, opcode: int, content: bytes) -> None:
        """Send a frame."""
        # A connection that was found to be broken is not reported before the loop's next turn.
        if self._closing or self._transport.is_closing():
            return
        length = len(content)
        if length < IN_TWO:
            self._transport.write(bytes((FIN | opcode, length)) + content)
            return
        if length < 1 << 16:
            head = struct.pack(">BBH", FIN | opcode, IN_TWO, length)
        else:
            head = struct.pack(">BBQ", FIN | opcode, IN_EIGHT, length)
        self._transport.write(head + content)
