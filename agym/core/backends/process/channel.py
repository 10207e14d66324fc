"""Sends framed messages and file descriptors over a socket pair, without blocking.

A frame is a header of 16 bytes, and a payload. A frame without a payload is a bell. A payload that
is too large for the socket's buffer, such as a batch of rendered frames, is written to an anonymous
file instead, and its descriptor is sent.

Bytes that the socket does not accept at once are sent later, so neither side blocks while the other
is busy. EOF, or an invalid frame, means that the other side is gone.
"""

from __future__ import annotations

import array
import mmap
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from agym.core._system.fork_safety import abandon_in_forks
from agym.core._system.platform import anonymous_file, forbid_shrinking
from agym.core.backends.process.serialization import Buffer

# Payload length, and the kind: plain, with a descriptor for the reader, or with the payload's file.
_HEADER = struct.Struct("<QQ")
_PLAIN, _DESCRIPTOR, _FILE = 0, 1, 2

# Larger payloads are sent in a file: through the socket's buffer they would take several turns.
LARGE_BYTES = 64 * 1024

# The largest frame, which a socket accepts at once.
_FRAME_BYTES = _HEADER.size + LARGE_BYTES

# The reason reported for a side that sent invalid data.
UNREADABLE = "sent invalid data"

_READ = 64 * 1024
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # missing on macOS
_DESCRIPTORS_BYTES = 8 * array.array("i").itemsize


class Channel:
    """One end of the pair.

    Attributes:
        ended: The other side is gone.
        corrupt: Why the other side is treated as gone, if it sent invalid data.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # macOS gives them 8 KiB
            if end.getsockopt(socket.SOL_SOCKET, buffer) < _FRAME_BYTES:
                end.setsockopt(socket.SOL_SOCKET, buffer, _FRAME_BYTES)
        self._socket = end
        # Frames to send, each with a descriptor to send with it, and whether to close that then.
        self._outgoing: deque[tuple[memoryview, int | None, bool]] = deque()
        self._incoming = bytearray()
        self._arrived: deque[int] = deque()
        self._payloads: list[Buffer] = []
        self._descriptors: deque[int] = deque()
        self.ended = False
        self.corrupt: str | None = None
        abandon_in_forks(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def backlog(self) -> bool:
        return bool(self._outgoing)

    def ring(self) -> None:
        self._queue(_HEADER.pack(0, _PLAIN))

    def send(self, parts: Sequence[Buffer], descriptor: int | None = None) -> None:
        """Send a payload, now or when the socket accepts it; ``descriptor`` stays open here."""
        size = sum(len(part) for part in parts)
        if descriptor is not None:
            self._queue(_HEADER.pack(0, _DESCRIPTOR), descriptor)
        if size > LARGE_BYTES:
            file = anonymous_file(size)
            with open(file, "wb", closefd=False) as stream:
                stream.writelines(parts)
            self._queue(_HEADER.pack(size, _FILE), file, close=True)
        else:
            self._queue(b"".join([_HEADER.pack(size, _PLAIN), *parts]))

    def _queue(self, frame: bytes, descriptor: int | None = None, *, close: bool = False) -> None:
        self._outgoing.append((memoryview(frame), descriptor, close))
        self.flush()

    def flush(self) -> None:
        while self._outgoing and not self.ended:
            frame, descriptor, close = self._outgoing[0]
            try:
                if descriptor is None:
                    sent = self._socket.send(frame)
                else:
                    sent = socket.send_fds(self._socket, [frame], [descriptor])
            except BlockingIOError:
                return
            except OSError:  # the other side is gone, which reading shows after its last frames
                self._discard()
                return
            if close and descriptor is not None:
                os.close(descriptor)
            if sent == len(frame):
                self._outgoing.popleft()
            else:
                # The descriptor went with the first byte: do not send it again with the rest.
                self._outgoing[0] = (frame[sent:], None, False)

    def flush_all(self) -> None:
        """Send everything, and sleep until that is done."""
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT)
        while self.backlog and not self.ended:
            poller.poll()
            self.flush()

    def drain(self) -> list[Buffer]:
        """Return the payloads of all complete frames that have arrived, without bells."""
        self._read()
        payloads, self._payloads = self._payloads, []
        return payloads

    def next_descriptor(self) -> int:
        """Wait for a descriptor that was sent with a payload; the reader owns it.

        Raises:
            EOFError: The other side is gone.
        """
        while not self._descriptors:
            if self.ended:
                raise EOFError("the other side is gone")
            self.wait()
            self._read()
        return self._descriptors.popleft()

    def _read(self) -> None:
        while not self.ended:
            try:
                room = socket.CMSG_LEN(_DESCRIPTORS_BYTES)
                data, ancillary, _, _ = self._socket.recvmsg(_READ, room, _CLOSE_ON_EXEC)
            except BlockingIOError:
                break
            except OSError:
                data, ancillary = b"", []
            for _, _, received in ancillary:
                for descriptor in array.array("i", received):
                    os.set_inheritable(descriptor, False)
                    self._arrived.append(descriptor)
            self._incoming += data
            self.ended = not data
            if len(data) < _READ and not ancillary:
                break
        try:
            self._parse()
        except ValueError as error:
            self.give_up(str(error))

    def _parse(self) -> None:
        incoming, at = self._incoming, 0
        while len(incoming) - at >= _HEADER.size:
            size, kind = _HEADER.unpack_from(incoming, at)
            if kind not in (_PLAIN, _DESCRIPTOR, _FILE):
                raise ValueError(f"a frame of unknown kind {kind}")
            if size > LARGE_BYTES and kind != _FILE:
                raise ValueError(f"a frame that claims {size} bytes")
            end = at + _HEADER.size + (0 if kind == _FILE else size)
            if len(incoming) < end:
                break
            # A descriptor arrives with the first byte of its frame, so it must be here by now.
            if kind != _PLAIN and not self._arrived:
                raise ValueError("a frame without its descriptor")
            if kind == _FILE:
                self._payloads.append(_map_file(self._arrived.popleft(), size))
            elif size:
                self._payloads.append(bytes(incoming[at + _HEADER.size : end]))
            if kind == _DESCRIPTOR:
                self._descriptors.append(self._arrived.popleft())
            at = end
        del incoming[:at]
        if self._arrived and not incoming:
            raise ValueError("a descriptor without a frame")

    def give_up(self, what: str) -> None:
        """Treat the other side as gone, because it sent invalid data."""
        self.corrupt = self.corrupt or f"{UNREADABLE}: {what}"
        self.ended = True
        self._incoming.clear()
        self._discard()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that sleeps on it

    def wait(self, timeout: float | None = None) -> None:
        """Sleep until something can be read, or more can be sent."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if self.backlog else 0))
        poller.poll(None if timeout is None else timeout * 1000)
        self.flush()

    def _discard(self) -> None:
        for _, descriptor, close in self._outgoing:
            if close and descriptor is not None:
                os.close(descriptor)
        self._outgoing.clear()

    def close(self) -> None:
        """Close this end; data that was not sent or read is lost."""
        self._discard()
        for descriptor in [*self._arrived, *self._descriptors]:
            os.close(descriptor)
        self._arrived.clear()
        self._descriptors.clear()
        self._socket.close()

    def abandon(self) -> None:
        """Close this end in a forked child, without a message: the parent goes on using it."""
        self._socket.close()


def _map_file(descriptor: int, size: int) -> Buffer:
    """Return the payload in a file; reject a file that cannot be mapped safely.

    If the file is, or becomes, shorter than its mapping, reading the mapping kills this process.
    """
    try:
        if not forbid_shrinking(descriptor):  # macOS
            payload = os.pread(descriptor, size, 0)
            if len(payload) < size:
                raise ValueError(f"a file of fewer than {size} bytes")
            return payload
        if os.fstat(descriptor).st_size != size:
            raise ValueError(f"a file whose size is not {size} bytes")
        return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ValueError(f"a file that cannot be mapped: {error}") from error
    finally:
        os.close(descriptor)
