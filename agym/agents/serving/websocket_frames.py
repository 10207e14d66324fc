"""What a client sends through a WebSocket: frames (RFC 6455), and the messages that they form.

A client's frame is masked::

    FIN, opcode | MASK, length | longer length: 0, 2 or 8 bytes | mask: 4 bytes | content

Nothing here reads or writes: see :class:`agym.agents.serving.websocket.WebSocket`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

# In a frame's first two bytes.
FIN, RESERVED, OPCODE, MASKED, LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
# Lengths that say that another follows, in 2 or in 8 bytes.
IN_TWO, IN_EIGHT = 126, 127


class Opcode(IntEnum):
    """Kinds of frames; from ``CLOSE`` on they are no part of a message."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """Why a WebSocket is closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    INVALID_TEXT = 1007
    POLICY = 1008
    TOO_LONG = 1009
    INTERNAL_ERROR = 1011


# Plain numbers: members of an enumeration are slower to compare.
CONTINUATION, TEXT, BINARY = int(Opcode.CONTINUATION), int(Opcode.TEXT), int(Opcode.BINARY)
FIRST_CONTROL = int(Opcode.CLOSE)
OPCODES = frozenset(map(int, Opcode))


class FrameError(Exception):
    """The client broke the protocol.

    Attributes:
        code: What the connection is closed with.
    """

    def __init__(self, code: CloseCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class FrameReader:
    """Takes bytes as they come, and returns what they complete."""

    def __init__(self, longest: int) -> None:
        """Read messages of at most ``longest`` bytes."""
        self._longest = longest
        self._bytes = bytearray()
        # The message whose first frames have come, and its opcode.
        self._message = bytearray()
        self._opcode = CONTINUATION

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield each message and control frame that ``data`` completes: its opcode and content.

        Example:
            >>> ping = bytes([0x89, 0x80 | 2]) + b"mask" + bytes([ord("h") ^ ord("m"), 0])
            >>> list(FrameReader(100).feed(ping))
            [(9, b'ha')]

        Raises:
            FrameError: What comes next is no such frame.
        """
        kept = self._bytes
        read: bytes | bytearray = data
        if kept:
            kept += data
            read = kept
        begin, end = 0, len(read)
        while end - begin >= 2:
            first, second = read[begin], read[begin + 1]
            self._check(first, second)
            length, content = second & LENGTH, begin + 6
            if length >= IN_TWO:
                content += 2 if length == IN_TWO else 8
                if content > end:
                    break
                length = int.from_bytes(read[begin + 2 : content - 4], "big")
            opcode, stop = first & OPCODE, content + length
            if opcode < FIRST_CONTROL and length + len(self._message) > self._longest:
                raise FrameError(CloseCode.TOO_LONG, f"a message may have {self._longest} bytes")
            if stop > end:
                break
            unmasked = unmask(read[content:stop], read[content - 4 : content])
            begin = stop
            if first & FIN and opcode != CONTINUATION:
                yield opcode, unmasked
            elif first & FIN:
                message, self._message = self._message, bytearray()
                opcode, self._opcode = self._opcode, CONTINUATION
                yield opcode, bytes(message + unmasked)
            else:
                self._opcode = self._opcode or opcode
                self._message += unmasked
        if read is kept:
            del kept[:begin]
        elif begin < end:
            kept += data[begin:]

    def _check(self, first: int, second: int) -> None:
        """Check a frame's first bytes."""
        opcode = first & OPCODE
        if not second & MASKED:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a client's frame must be masked")
        if first & RESERVED or opcode not in OPCODES:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a frame has unknown bits")
        if opcode >= FIRST_CONTROL:
            if not first & FIN or second & LENGTH >= IN_TWO:
                raise FrameError(CloseCode.PROTOCOL_ERROR, "a control frame must be short")
        elif (opcode == CONTINUATION) != (self._opcode != CONTINUATION):
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a frame continues another message")


def unmask(content: bytes | bytearray, mask: bytes | bytearray) -> bytes:
    """Return content with the mask taken off, as one number: that is faster than byte by byte."""
    length = len(content)
    whole = (mask * (length // 4 + 1))[:length]
    number = int.from_bytes(content, "little") ^ int.from_bytes(whole, "little")
    return number.to_bytes(length, "little")
