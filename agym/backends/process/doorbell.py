"""Doorbell: spin-then-park wake-up between two parties that share memory and a channel.

A party that waits first watches the shared counters for a bounded time, giving its core away
between two looks; only then does it sleep on the channel. It says so in a shared word, and the
other party sends a bell only when that word is set::

    waiter:  asleep = 1; fence; anything new? -> no: sleep on the channel; asleep = 0
    ringer:  write news; fence; asleep?       -> yes: send a bell

With the full fence on both sides, one of the two always sees what the other wrote, so no bell
is lost; waits have a coarse timeout all the same, so that a lost one would be late, not fatal.

News is a counter that is written after all that it announces, and read before it. x86 keeps that
order by itself; elsewhere a fence has to (``publish`` and ``read``).
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from functools import partial

from agym.backends.process.channel import Channel

# How long to watch before sleeping. Waking a sleeper would cost a longer wait less than a
# twentieth. (The design says 100 us; CartPole x64 is 20 % faster with this.)
SPIN_SECONDS = 1e-3

# The part of it that may hold up an event loop; for the rest of it the loop turns between looks.
HOLD_SECONDS = 100e-6

# What waking a sleeper costs, roughly: a wait that slept would have been this much shorter.
WAKE_SECONDS = 50e-6

_WEAK_ORDER = platform.machine().lower() not in ("x86_64", "amd64")

if hasattr(os, "sched_yield"):
    give_way = os.sched_yield
else:

    def give_way() -> None:
        """Let another thread run."""
        time.sleep(0)


class Doorbell:
    """One party's end of the handshake.

    Attributes:
        read: Read a counter; what it announces may be read after this.
    """

    def __init__(self, words: memoryview, mine: int, theirs: int, channel: Channel) -> None:
        """Use two words of shared memory.

        Args:
            words: Shared ``int64`` memory.
            mine: Index of the word that says this party sleeps.
            theirs: Index of the word that says the other party sleeps.
            channel: The way to wake it.
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
        """Say that this party is about to sleep; look for news once more after this."""
        self._words[self._mine] = 1
        _fence(self._lock)

    def unpark(self) -> None:
        """Say that this party is awake."""
        self._words[self._mine] = 0


def _fence(lock: threading.Lock) -> None:
    # An uncontended lock is an atomic read-modify-write, which orders all that is around it.
    lock.acquire()
    lock.release()


def _look(words: memoryview, lock: threading.Lock, counter: int) -> int:
    value: int = words[counter]
    _fence(lock)
    return value


class SpinPolicy:
    """Decides whether watching is worth it: only when waits have been shorter than the budget."""

    def __init__(self) -> None:
        """Begin with watching."""
        self._expected = 0.0

    def spin(self, ready: Callable[[], bool], seconds: float = SPIN_SECONDS) -> bool:
        """Watch for at most ``seconds``, and tell whether it became ready."""
        if not self.worth_spinning:
            return False
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            give_way()
            if ready():
                return True
        return False

    @property
    def worth_spinning(self) -> bool:
        """Whether the next wait should be watched."""
        return self._expected <= SPIN_SECONDS

    def learn(self, seconds: float, *, slept: bool) -> None:
        """Take in how long a wait was."""
        seconds = min(seconds, 4 * SPIN_SECONDS) - WAKE_SECONDS * slept
        self._expected += (seconds - self._expected) / 8
