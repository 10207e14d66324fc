"""A thread-safe queue of completions, with a bell that wakes the sleeping caller.

The bell rings once per sleep, when enough environments have completed an operation or one has
failed. A wake-up for each environment would take the GIL from the threads that the caller waits
for.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from selectors import EVENT_READ
from typing import Any

from agym.core.protocol.messages.completions import Completion

# The most rings to read at once; more than one is rare.
_READ = 64


class Bell:
    """A pair of sockets, with which one thread wakes another that sleeps on descriptors."""

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        for end in self._ends:
            end.setblocking(False)
        # Not ``__del__``: of a forgotten cycle, the collector may finalize the sockets first, which
        # then warn that nobody closed them.
        self.close = weakref.finalize(self, _close, self._ends)

    @property
    def descriptor(self) -> int:
        """The descriptor that becomes readable when the bell rings."""
        return self._ends[0].fileno()

    def ring(self) -> None:
        # The buffer is full of rings, so the sleeper wakes anyway; or the sockets are closed.
        with contextlib.suppress(OSError):
            self._ends[1].send(b"!")

    def clear(self) -> None:
        """Discard the rings so far."""
        with contextlib.suppress(BlockingIOError):
            self._ends[0].recv(_READ)


def _close(ends: Iterable[socket.socket]) -> None:
    for end in ends:
        end.close()


class Outbox:
    """A queue that any thread fills and the caller's thread empties.

    Attributes:
        on_ring: Called with each ring, by the thread that rings it.
        ended_early: The ports whose workers have ended early, each with its error.
    """

    def __init__(self) -> None:
        # Each item, with the port that put it and the number of environments in it.
        self._items: deque[tuple[Any, Any, int]] = deque()
        # Numbers of environments: in all items put so far, in all items taken so far, and the value
        # of the first at which the bell rings.
        self._envs_put = self._envs_taken = self._wake_at = 0
        # Whether there may be an item that wakes the caller in any case.
        self._alarming = False
        self._bell = Bell()
        # The handshake for sleep: the caller sets ``_asleep`` and then looks for items; a worker
        # thread puts an item and then looks at ``_asleep``. With a full fence in between on each
        # side, at least one of them sees the other's write, so no wake-up is lost. Acquiring the
        # lock is that fence, with and without a GIL. It is reentrant because the garbage collector
        # may close a forgotten backend in a thread that holds it.
        self._lock = threading.RLock()
        self._asleep = False
        self.on_ring: Callable[[], None] | None = None
        self.ended_early: deque[tuple[Any, BaseException]] = deque()

    def put(self, port: Any, item: Any) -> None:
        """Add a port's item, and wake the caller if it sleeps and has enough environments now.

        An item that is not a completion, has a problem or returns values wakes the caller in any
        case: the load of a replacement is part of a step, but no environment that the step awaits.
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

        An error that ended a port is added to ``ended_early``; later items of that port are
        dropped.
        """
        completions: list[Completion] = []
        items = self._items
        # Workers put items during this loop. Reset the flag first: an urgent item that comes after
        # the reset sets it again. A reset after the loop could hide such an item from ``news``.
        self._alarming = False
        while items:
            port, item, envs = items.popleft()
            self._envs_taken += envs
            if port.over:
                continue
            if type(item) is not Completion:
                self._take(port, item, completions)
                continue
            operation = item[:3]
            if operation in port.pending:
                del port.pending[operation]
            else:
                port.settle(*operation)
            completions.append(item)
        return completions

    def _take(self, port: Any, item: Any, completions: list[Completion]) -> None:
        try:
            if isinstance(item, BaseException):
                raise item
            for completion in port.take(item):
                completions.append(completion)  # noqa: PERF402 - keep those before an error
        except BaseException as error:
            if error is not item and not isinstance(error, Exception):
                raise
            port.over = True
            self.ended_early.append((port, error))

    def news(self, envs: int = 1) -> bool:
        """Whether ``envs`` environments have arrived, or an item that wakes in any case.

        It takes no lock, because spinning threads call it all the time: a stale value only delays
        the next look, and before a sleep ``park`` is followed by a real look.
        """
        return bool(self._items) and (self._alarming or self._envs_put >= self._envs_taken + envs)

    def waitables(self) -> Mapping[int, int]:
        """Return the descriptor that a ring makes readable."""
        return {self._bell.descriptor: EVENT_READ}

    def park(self, envs: int = 1) -> None:
        """Note that the caller is about to sleep until ``envs`` more environments have arrived."""
        with self._lock:
            self._asleep = True
            self._wake_at = self._envs_taken + envs

    def unpark(self) -> None:
        """Note that the caller is awake, and discard the bells so far."""
        # In this order: once the flag is cleared, nobody rings, so ``clear`` removes the last ring.
        # The other way round, a ring in between would end the next sleep at once.
        with self._lock:
            self._asleep = False
        self._bell.clear()

    def abandon(self) -> None:
        """Close the sockets in a forked child, without the lock, which may be locked forever."""
        self._bell.close()

    def close(self) -> None:
        """Close the sockets, which no thread may be about to use."""
        with self._lock:
            self._bell.close()
