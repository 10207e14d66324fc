"""Outbox: outcomes of this process's own workers, and the bell that wakes a caller who sleeps.

Each end of a socket pair is used by one side. A bell is sent only once for each sleep, however
many outcomes come meanwhile.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from selectors import EVENT_READ
from typing import Any, Generic, TypeVar

from agym.backends.base import Backend, BackendOptions

# Bells that are read at once; there is hardly ever more than one.
_READ = 64


Item = TypeVar("Item")


class Outbox(Generic[Item]):
    """Any thread puts, the caller's takes."""

    def __init__(self) -> None:
        """Begin empty."""
        self._items: deque[Item] = deque()
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        # Guards the flag. Its acquisition is the fence of the handshake, with and without a GIL:
        # the caller sets the flag and then looks, the other side puts and then looks.
        # Reentrant, since a forgotten backend may be closed by the collector in the midst of it.
        self._lock = threading.RLock()
        self._asleep = False

    def put(self, item: Item) -> None:
        """Add an outcome, and ring if the caller sleeps."""
        self._items.append(item)
        self.ring()

    def ring(self) -> None:
        """Wake the caller if it sleeps."""
        with self._lock:
            rings, self._asleep = self._asleep, False
            if rings:
                # Full of bells, or closed after the environments were given up: nobody waits.
                with contextlib.suppress(OSError):
                    self._theirs.send(b"!")

    def take(self) -> list[Item]:
        """Take all that has come, the oldest first."""
        items: list[Item] = []
        while self._items:
            items.append(self._items.popleft())
        return items

    @property
    def filled(self) -> bool:
        """Whether there is something to take."""
        return bool(self._items)

    def waitables(self) -> Mapping[int, int]:
        """The descriptor that a bell makes readable."""
        return {self._ours.fileno(): EVENT_READ}

    def park(self) -> None:
        """The caller is about to sleep."""
        with self._lock:
            self._asleep = True

    def unpark(self) -> None:
        """The caller is awake, and has heard the bells so far."""
        with self._lock:
            self._asleep = False
        with contextlib.suppress(BlockingIOError):
            self._ours.recv(_READ)

    def abandon(self) -> None:
        """Let go of the sockets, which are another process's."""
        self._ours.close()
        self._theirs.close()

    def close(self) -> None:
        """Let go of the sockets, which no thread may be about to use."""
        with self._lock:
            self._ours.close()
            self._theirs.close()


class OutboxBackend(Backend, Generic[Item]):
    """An backend whose outcomes come from other threads, or from an event loop's tasks."""

    _end: weakref.finalize[..., Any]

    def __init__(self, options: BackendOptions) -> None:
        """Remember what to make."""
        super().__init__(options)
        self._outbox: Outbox[Item] = Outbox()

    @property
    def forgotten(self) -> bool:
        """Whether the finalizer has run."""
        return not self._end.alive

    def abandon(self) -> bool:
        """Neither the threads nor the loop were forked, and the bell is the parent's."""
        self._end.detach()
        self._outbox.abandon()
        return True

    def waitables(self) -> Mapping[int, int]:
        """The outbox's bell."""
        return self._outbox.waitables()

    def park(self) -> None:
        """From now on outcomes ring."""
        self._outbox.park()

    def unpark(self) -> None:
        """The caller is awake."""
        self._outbox.unpark()
