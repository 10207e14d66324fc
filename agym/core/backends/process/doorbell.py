"""Spin-then-park wake-up between two parties that share memory and a channel.

A waiting party first spins: it watches the shared counters for a bounded time, and yields its core
between two looks. Then it sleeps on the channel. It sets a shared word before it sleeps, and the
other party sends a bell only if that word is set::

    waiter:  asleep = 1; fence; anything new? -> no: sleep on the channel; asleep = 0
    ringer:  write news; fence; asleep?       -> yes: send a bell

Each side writes one word and then reads the other. Without a fence, a CPU may read before its own
write is visible: the waiter would see no news, the ringer would see no sleeper, and the bell would
be lost. With a full fence on both sides, at least one of them sees what the other wrote. Waits
still have a coarse timeout, so that a lost bell would be a delay and not a hang.

A counter is written after the data that it announces, and read before that data. x86 keeps this
order by itself; other architectures need a fence (``publish`` and ``read``).
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from functools import partial

from agym.core.backends.process.channel import Channel

_WEAK_ORDER = platform.machine().lower() not in ("x86_64", "amd64")


class Doorbell:
    """One party's end of the handshake.

    Attributes:
        read: Reads a counter; the data that it announces may be read after that.
    """

    def __init__(self, words: memoryview, own_flag: int, other_flag: int, channel: Channel) -> None:
        """Use two words of shared memory as flags.

        Args:
            words: Shared ``int64`` memory.
            own_flag: Index of the word that is 1 while this party sleeps.
            other_flag: Index of the word that is 1 while the other party sleeps.
            channel: The channel that wakes the other party.
        """
        self._words = words
        self._own_flag = own_flag
        self._other_flag = other_flag
        self._channel = channel
        self._lock = threading.Lock()
        self.read: Callable[[int], int] = words.__getitem__
        if _WEAK_ORDER:
            self.read = partial(_look, words, self._lock)

    def publish(self, counter: int, value: int) -> None:
        """Announce data in shared memory, and wake the other party if it sleeps."""
        words, lock = self._words, self._lock
        if _WEAK_ORDER:
            _fence(lock)  # the data before the counter
        words[counter] = value
        # The counter before the flag, see the module's docstring. The two calls are ``_fence``,
        # written out: this runs once or twice per step.
        lock.acquire()
        lock.release()
        if words[self._other_flag]:
            self._channel.ring()

    def park(self) -> None:
        """Announce that this party is about to sleep; it must check for news once more."""
        self._words[self._own_flag] = 1
        _fence(self._lock)

    def unpark(self) -> None:
        """Announce that this party is awake."""
        # No fence: if the other party still sees the flag, it sends a bell that nobody needs.
        self._words[self._own_flag] = 0


def _fence(lock: threading.Lock) -> None:
    # Acquiring an uncontended lock is an atomic read-modify-write, which orders all accesses around
    # it. Python has no other portable fence.
    lock.acquire()
    lock.release()


def _look(words: memoryview, lock: threading.Lock, counter: int) -> int:
    value: int = words[counter]
    _fence(lock)
    return value
