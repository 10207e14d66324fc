"""A thread-safe queue of completions, with a bell that wakes the sleeping caller.

The bell rings once per sleep, when enough environments
have completed something or one has failed: to be woken for each of them would take the GIL from the
threads that the caller waits for.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from selectors import EVENT_READ
from typing import Any

from agym.core.protocol.messages.completions import Completion

# Bells to read at once; more than one is rare.
_READ = 64


class Bell:
    """A pair of sockets, by which one thread wakes another that sleeps on descriptors."""

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        for end in self._ends:
            end.setblocking(False)

    @property
    def descriptor(self) -> int:
        """What becomes readable when the bell rings."""
        return self._ends[0].fileno()

    def ring(self) -> None:
        # The buffer is full of rings, or the sockets are closed: nobody waits.
        with contextlib.suppress(OSError):
            self._ends[1].send(b"!")

    def clear(self) -> None:
        """Discard the rings so far."""
        with contextlib.suppress(BlockingIOError):
            self._ends[0].recv(_READ)

    def close(self) -> None:
        for end in getattr(self, "_ends", ()):  # there may have been no descriptors left
            end.close()

    __del__ = close


class Outbox:
    """A queue that any thread fills and the caller's thread empties.

    Attributes:
        on_ring: Called with each bell, by the thread that rings it.
        fallen: The ports whose workers have ended early, each with what ended it.
    """

    def __init__(self) -> None:
        # Each with the port that has put it, and with how many environments are in it.
        self._items: deque[tuple[Any, Any, int]] = deque()
        # How many environments are in what was put and taken so far, and are to have been put
        # before the bell rings.
        self._envs_put = self._envs_taken = self._wake_at = 0
        # Whether there may be an item that wakes the caller whatever it waits for.
        self._alarming = False
        self._bell = Bell()
        # Guards the flag. Acquiring it is the fence of the handshake, with and without a GIL: the
        # caller sets the flag and then looks, the other side puts and then looks.
        # Reentrant, since the garbage collector may close a forgotten backend while it is held.
        self._lock = threading.RLock()
        self._asleep = False
        self.on_ring: Callable[[], None] | None = None
        self.fallen: deque[tuple[Any, BaseException]] = deque()

    def put(self, port: Any, item: Any) -> None:
        """Add a port's item, and wake the caller if it sleeps and waits for no more than that.

        What is no completion wakes the caller whatever it waits for, as does a problem.
        """
        envs = item.num_without_problem if type(item) is Completion else 0
        with self._lock:
            self._items.append((port, item, envs))
            self._envs_put += envs
            self._alarming = self._alarming or not envs
            if not envs or self._envs_put >= self._wake_at:
                self.ring()

    def ring(self) -> None:
        """Wake the caller if it sleeps."""
        with self._lock:
            rings, self._asleep = self._asleep, False
            if rings:
                self._bell.ring()
                if self.on_ring is not None:
                    self.on_ring()

    def collect(self) -> list[Completion]:
        """Return the completions that ports have put, and settle them.

        What ended a port is added to ``fallen``; what the port puts afterwards is dropped.
        """
        completions: list[Completion] = []
        items = self._items
        self._alarming = False
        while items:
            port, item, envs = items.popleft()
            self._envs_taken += envs
            if port.over:
                continue
            if type(item) is not Completion:
                self._take(port, item, completions)
                continue
            number, start, stop, _ = item
            pending, key = port.pending, (number, start)
            if key in pending and pending[key][0] == stop:
                del pending[key]
            else:
                port.settle(number, start, stop)
            completions.append(item)
        return completions

    def _take(self, port: Any, item: Any, completions: list[Completion]) -> None:
        try:
            if isinstance(item, BaseException):
                raise item
            for completion in port.take(item):
                completions.append(completion)  # noqa: PERF402 - what precedes an error counts
        except BaseException as error:
            if error is not item and not isinstance(error, Exception):
                raise
            port.over = True
            self.fallen.append((port, error))

    def news(self, envs: int = 1) -> bool:
        """Whether ``envs`` environments are there, or something that wakes at once."""
        return bool(self._items) and (self._alarming or self._envs_put >= self._envs_taken + envs)

    def waitables(self) -> Mapping[int, int]:
        """Return the descriptor that a bell makes readable."""
        return {self._bell.descriptor: EVENT_READ}

    def park(self, envs: int = 1) -> None:
        """Note that the caller is about to sleep until ``envs`` more environments are there."""
        with self._lock:
            self._asleep = True
            self._wake_at = self._envs_taken + envs

    def unpark(self) -> None:
        """Note that the caller is awake, and discard the bells so far."""
        with self._lock:
            self._asleep = False
        self._bell.clear()

    def abandon(self) -> None:
        """Close the sockets in a forked child, without the lock."""
        self._bell.close()

    def close(self) -> None:
        """Close the sockets, which no thread may be about to use."""
        with self._lock:
            self._bell.close()
