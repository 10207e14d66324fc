"""Spin-then-park wake-up between two parties that share memory and a channel.

A waiting party first spins: it watches the shared counters for a bounded time, yielding its core
between two looks. Then it sleeps on the channel. It says so in a shared word, and the other party
sends a bell only if that word is set::

    waiter:  asleep = 1; fence; anything new? -> no: sleep on the channel; asleep = 0
    ringer:  write news; fence; asleep?       -> yes: send a bell

With the full fence on both sides, one of the two always sees what the other wrote, so no bell
is lost. Waits have a coarse timeout all the same: a lost bell would be a delay, not a hang.

A counter is written after the data that it announces, and read before it. x86 keeps that order by
itself; other architectures need a fence (``publish`` and ``read``).
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
        read: Reads a counter; the data that it announces may be read afterwards.
    """

    def __init__(self, words: memoryview, mine: int, theirs: int, channel: Channel) -> None:
        """Use two words of shared memory.

        Args:
            words: Shared ``int64`` memory.
            mine: Index of the word that says that this party sleeps.
            theirs: Index of the word that says that the other party sleeps.
            channel: The channel that wakes it.
        """
        self._words = words
        self._mine = mine
        self._theirs = theirs
        self._channel = channel
        self._lock = threading.Lock()
        self.read: Callable[[int], int] = words.__getitem__
        if _WEAK_ORDER:
            self.read = partial(_look, words, self._lock)

    def publish(self, counter: int, value: int) -> None:
        """Announce what was written to shared memory, and wake the other party if it sleeps."""
        words, lock = self._words, self._lock
        if _WEAK_ORDER:
            _fence(lock)
        words[counter] = value
        lock.acquire()  # a fence, as below
        lock.release()
        if words[self._theirs]:
            self._channel.ring()

    def park(self) -> None:
        """Say that this party is about to sleep; it must check for news once more."""
        self._words[self._mine] = 1
        _fence(self._lock)

    def unpark(self) -> None:
        """Say that this party is awake."""
        self._words[self._mine] = 0


def _fence(lock: threading.Lock) -> None:
    # An uncontended lock is an atomic read-modify-write, which orders all accesses around it.
    lock.acquire()
    lock.release()


def _look(words: memoryview, lock: threading.Lock, counter: int) -> int:
    value: int = words[counter]
    _fence(lock)
    return value
