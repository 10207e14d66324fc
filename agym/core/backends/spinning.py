"""Spinning: a thread that waits for a short time watches shared memory instead of sleeping.

A spinning thread yields its core between two looks. On a quiet machine that is the fastest way to
wait. If another program wants the core, each yield gives it a whole time slice of the scheduler, up
to 4 ms, whereas a sleeping thread is woken at once. So both sides of a worker's mailbox record when
they wrote, and a spinning thread measures how late it noticed. If it was late, it sleeps between
steps for a while before it tries to spin again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# How long to spin before sleeping. A wake-up adds less than a twentieth to a longer wait.
# CartPole x64 is 20 % faster with this than with 100 us.
SPIN_SECONDS = 1e-3

# The same for a caller without an event loop that waits for worker processes, and for workers that
# have a core each. A caller that yields its core between two looks takes almost nothing from
# workers that compute on every core; sleeping and waking costs 5 to 15 % of a batch of this
# length. A worker that watches while the caller computes keeps its caches warm: PPO's rollouts of
# Pong x8 are 12 % faster.
WATCH_SECONDS = 5e-3

# The part of ``SPIN_SECONDS`` that may block an event loop; then the loop turns between looks.
HOLD_SECONDS = 100e-6

# A thread that notices later than this was off its core, which another thread had for a time
# slice. On a quiet machine, the caller takes up to 0.1 ms from its message to a worker to its next
# yield, and two workers that the scheduler has left on one core are about 0.5 ms late.
LATE_SECONDS = 1e-3

# How long to sleep instead of spinning after that: at first, and at most. An attempt to spin while
# another program is busy costs 4 ms.
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 1.28

# After waits of this many seconds in total that were not late, the next pause is the first, short
# one again. Other time does not count: while the caller learns from a rollout, nothing shows
# whether the cores are crowded.
CALM_SECONDS = 0.1

# Rough cost of waking a sleeper: a wait that slept would have been this much shorter.
WAKE_SECONDS = 50e-6

if hasattr(os, "sched_yield"):
    give_way = os.sched_yield
else:

    def give_way() -> None:
        """Yield the core to another thread."""
        time.sleep(0)


class SpinPolicy:
    """Decides whether to spin: only if recent waits were shorter than its limit, and none was late.

    Attributes:
        limit: How long to spin before sleeping, in seconds.
        crowded_until: After a late wait, no spinning before this time of ``perf_counter``.
    """

    def __init__(self, limit: float = SPIN_SECONDS) -> None:
        self.limit = limit
        self.crowded_until = 0.0
        self._expected = 0.0
        self._pause = FIRST_PAUSE_SECONDS  # the length of the next pause
        self._calm = 0.0  # seconds of spinning since the last pause
        self._latest: tuple[float, float, float, bool] | None = None

    def spin(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Spin for at most ``seconds``, or the limit; return whether ``ready`` became true."""
        now = time.perf_counter()
        if not self.worth_spinning(now):
            return False
        end = now + (self.limit if seconds is None else seconds)
        while True:
            give_way()
            if ready():
                return True
            if time.perf_counter() >= end:
                return False

    def worth_spinning(self, now: float) -> bool:
        """Whether to spin in the next wait."""
        return self._expected <= self.limit and now >= self.crowded_until

    def note(self, started: float, stopped: float, *, slept: bool, due: float = 0.0) -> None:
        """Store the times of a wait, by ``perf_counter``.

        Args:
            started: When the wait started.
            stopped: When the wait ended.
            slept: Whether the wait ended in sleep.
            due: When the wait could have ended, 0 if unknown.
        """
        self._latest = started, stopped, due, slept

    def learn(self) -> None:
        """Learn from the last wait.

        Called at the start of the next wait: right after a wait, another process needs this thread.
        """
        latest, self._latest = self._latest, None
        if latest is None:
            return
        started, stopped, due, slept = latest
        seconds = min(stopped - started, 4 * self.limit)
        if slept:
            seconds -= WAKE_SECONDS
        elif due > started and stopped - due > LATE_SECONDS:
            # ``due`` is the time that the other process wrote with its news. The clock is the same
            # for all processes, so the difference is the time that this thread was off its core.
            self._pause_spinning(stopped)
        else:
            self._calm += seconds
        self._expected += (seconds - self._expected) / 8

    def _pause_spinning(self, now: float) -> None:
        """Do not spin during a pause, which is twice as long as the previous pause.

        If spinning has worked for long enough since then, it is as short as the first pause.
        """
        if self._calm > CALM_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
        self._calm = 0.0
        self.crowded_until = now + self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)
