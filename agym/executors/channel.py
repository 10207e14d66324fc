"""Channel: framed messages and file descriptors over a socket pair, never blocking.

A frame is its length (eight bytes, little endian) and so many bytes; an empty frame is a bell.
What the socket does not take at once is kept and sent later, so neither side ever blocks while
the other is busy. The end of the stream is how each side learns that the other is gone.
"""

from __future__ import annotations

import array
import select
import socket
from collections import deque

_LENGTH = 8
_READ = 256 * 1024


class Channel:
    """One end of the pair.

    Attributes:
        ended: The other side is gone.
    """

    def __init__(self, end: socket.socket) -> None:
        """Take over one end of a socket pair."""
        end.setblocking(False)
        self._socket = end
        self._outgoing: deque[tuple[memoryview, int | None]] = deque()
        self._incoming = bytearray()
        self.ended = False
        self._descriptors: deque[int] = deque()

    def fileno(self) -> int:
        """Descriptor to sleep on."""
        return self._socket.fileno()

    @property
    def backlog(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._outgoing)

    def send(self, payload: bytes, descriptor: int | None = None) -> None:
        """Send a frame, now or when the socket takes it.

        Args:
            payload: The frame's content; an empty one is a bell.
            descriptor: A file descriptor to send along; it stays open here.
        """
        frame = len(payload).to_bytes(_LENGTH, "little") + payload
        self._outgoing.append((memoryview(frame), descriptor))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes."""
        while self._outgoing and not self.ended:
            frame, descriptor = self._outgoing[0]
            try:
                if descriptor is None:
                    sent = self._socket.send(frame)
                else:
                    sent = socket.send_fds(self._socket, [frame], [descriptor])
            except BlockingIOError:
                return
            except OSError:  # the other side is gone; reading will say so, after what it left
                self._outgoing.clear()
                return
            if sent == len(frame):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = (frame[sent:], None)

    def drain(self) -> list[bytes]:
        """Read all that has arrived: the payloads of whole frames, bells left out."""
        self._read()
        return self._frames()

    def next_descriptor(self) -> int:
        """Wait for a file descriptor; the reader owns it.

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
        room = socket.CMSG_LEN(array.array("i").itemsize)
        while not self.ended:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_READ, room)
            except BlockingIOError:
                break
            except OSError:
                data, ancillary = b"", []
            for _, _, received in ancillary:
                self._descriptors.extend(array.array("i", received))
            self._incoming += data
            self.ended = not data
            if len(data) < _READ and not ancillary:
                break

    def _frames(self) -> list[bytes]:
        payloads, at = [], 0
        incoming = self._incoming
        while len(incoming) - at >= _LENGTH:
            length = int.from_bytes(incoming[at : at + _LENGTH], "little")
            end = at + _LENGTH + length
            if len(incoming) < end:
                break
            if length:
                payloads.append(bytes(incoming[at + _LENGTH : end]))
            at = end
        del incoming[:at]
        return payloads

    def wait(self, timeout: float | None = None) -> None:
        """Sleep until something can be read, or what waits can be sent on."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if self.backlog else 0))
        poller.poll(None if timeout is None else timeout * 1000)
        self.flush()

    def flush_all(self) -> None:
        """Send all that waits, and sleep as long as that takes."""
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT)
        while self.backlog and not self.ended:
            poller.poll()
            self.flush()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
