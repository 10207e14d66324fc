"""The two waiters, which wait for a ticket: with an event loop, and without one.

Both spin for a bounded time (see ``core/backends/spinning.py``), and then sleep on the backend's
descriptors. No other code waits for a ticket.
"""

from __future__ import annotations

import asyncio
import threading
import time
import types
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from threading import get_ident
from typing import Any

from agym.core._system.defer_signals import RECHECK_SECONDS, Interruptible, Uninterrupted
from agym.core._system.fork_safety import abandon_in_forks
from agym.core._system.platform import sleep_on
from agym.core.backends.outbox import Bell
from agym.core.backends.pool import Pool
from agym.core.backends.spinning import HOLD_SECONDS, LATE_SECONDS, SPIN_SECONDS, give_way
from agym.core.engine.batches.sent_steps import Receive
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.engine import Engine
from agym.core.protocol.messages.operations import Close, Make, Step

# How often to look for dead workers and late calls while the caller never sleeps. A look takes 3 to
# 5 µs per worker.
LOOK_SECONDS = 0.05

# Operations whose waits are not counted in the statistics: workers start and stop in them.
UNCOUNTED = (Make, Close)

# Let the event loop run at least this often, even if results always arrive in time.
TURN_SECONDS = 1e-3


class _Waiter:
    """What the two waiters have in common."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._backend = engine.backend
        self._spinning = self._backend.spinning
        self._traffic = engine.traffic
        self.hooks = engine.hooks
        self._look_at = 0.0


class SyncWaiter(_Waiter):
    """Waits without an event loop, so also inside a running one, and in any number of threads.

    A thread holds the lock while it uses the engine, but not while it sleeps. One thread, the
    leader, sleeps on the backend's descriptors for all. Every other thread sleeps until its own
    ticket is done or it becomes the leader::

        leader    -- lock -- poll engine -- [sleep on descriptors] -- lock -- poll engine -- ...
                                   |                  ^ alarm
                                   v ticket done      | ticket done, other descriptors
        follower  -- lock -- [sleep on a condition] --'

    Attributes:
        lock: Held while the engine is used. It is reentrant, for signal handlers and finalizers.
        late: The last operation whose caller stopped waiting, after a timeout or Ctrl-C.
    """

    late: Ticket | None = None

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.lock: Any = threading.RLock()  # typed Any for the methods that ``Condition`` uses
        # The leader, and the descriptors that it sleeps on.
        self._leader: int | None = None
        self._asleep: Mapping[int, int] | None = None
        self._alarm: Bell | None = None
        self._followers: list[threading.Condition] = []
        abandon_in_forks(self)

    def abandon(self) -> None:
        """Replace the lock in a forked child, where the thread that holds it does not exist."""
        self.lock = threading.RLock()
        self._leader = self._asleep = None
        self._followers = []

    def wait(self, ticket: Ticket, seconds: float | None = None) -> None:
        """Wait until a ticket is done, or for some seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        started = now = time.perf_counter()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            with self.lock:
                self._engine.look_after()
        news = self._backend.news
        envs = ticket.remaining if ticket.alone else self._engine.envs_until_wake

        def ready() -> bool:
            if not ticket.done and news(envs):
                with self.lock:
                    self._engine.poll_for(ticket)
            return ticket.done

        waited = ticket.alone or not ready()  # no check for a lone step, which was just sent
        if waited:
            # While another thread leads, spinning would take the core that the leader needs.
            alone, spinning = self._leader is None, self._spinning
            if alone:
                spinning.learn()
            slept = not (alone and spinning.spin(ready))
            if slept:
                self._sleep(ticket, end)
            now = time.perf_counter()
            if alone:
                spinning.note(started, now, slept=slept, due=due(self._backend, started, now))
            if ticket.kind not in UNCOUNTED:
                self._traffic.waited += now - started
        hooks = self.hooks
        if hooks.all:
            if waited:
                hooks.after_wait(ticket.message.name, started, now, in_task=False)
            if hooks.holds and is_step_result(ticket):
                with self._traffic.holding(), Interruptible():
                    hooks.hold(until(ticket, end))

    def waiting(self, ticket: Ticket, seconds: float | None = None) -> None:
        """Wait as :meth:`wait` does, with signal handlers deferred between sleeps."""
        with Uninterrupted():
            self.wait(ticket, seconds)

    def _sleep(self, ticket: Ticket, end: float | None) -> None:
        """Sleep until a ticket is done, or until a ``time.monotonic()``."""
        with self.lock:
            try:
                while not ticket.done and (end is None or time.monotonic() < end):
                    if self._leader is None or self._leader == get_ident():  # in a signal handler
                        self._lead(ticket, end)
                    else:
                        self._follow(ticket, end)
            finally:
                if not ticket.done:
                    self.late = ticket
                if self._leader is None and self._followers:
                    self._followers[0].notify()

    def _lead(self, ticket: Ticket, end: float | None) -> None:
        """Sleep on the backend's descriptors."""
        backend, engine = self._backend, self._engine
        alarm = self._alarm = self._alarm or Bell()
        before, self._leader = self._leader, get_ident()
        # While this thread sleeps, a follower may poll the engine and finish this ticket.
        ticket.on_done(self._wake)
        try:
            while True:
                # Park before the poll: workers ring only for a parked caller. A step that finishes
                # before the park is found by the poll, a later one rings. In the other order, a
                # step that finishes in between would do neither, and this thread would sleep on.
                backend.park(engine.envs_until_wake)
                engine.poll_for(ticket)
                seconds = sleep_limit(engine, end)
                if ticket.done or seconds <= 0.0:
                    return
                # Set while the lock is held: every thread that gets the lock during the sleep
                # knows what this thread sleeps on, and that it must ring the alarm.
                self._asleep = backend.waitables()
                descriptors = {**self._asleep, alarm.descriptor: EVENT_READ}
                # Release all levels of the reentrant lock, or no other thread could run: in a
                # signal handler, the interrupted call may hold it, too.
                lock_state = self.lock._release_save()
                try:
                    with Interruptible():
                        ready = sleep_on(descriptors, seconds)
                finally:
                    self.lock._acquire_restore(lock_state)
                    self._asleep = None
                if self._alarm is not alarm:
                    return  # a signal handler has closed everything
                if alarm.descriptor in ready:
                    alarm.clear()
                backend.unpark(ready)
        finally:
            if self._alarm is alarm:
                backend.unpark(())
            self._leader = before
            ticket.remove_callback(self._wake)
            if before is not None and self._alarm is alarm:
                # This ran in a signal handler, which interrupted this thread's own sleep. That
                # sleep goes on, but the backend is unparked, so no worker would ring for it.
                alarm.ring()

    def _follow(self, ticket: Ticket, end: float | None) -> None:
        """Sleep while another thread leads."""
        turn = threading.Condition(self.lock)
        ticket.on_done(turn.notify)
        self._followers.append(turn)
        # This thread may have started a worker: the leader must sleep on its descriptor too.
        if self._backend.waitables() != self._asleep:
            self._wake()
        # The leader may sleep until more environments have finished than this ticket waits for.
        # Park for one environment, then poll, in this order as in ``_lead``.
        self._backend.park()
        self._engine.poll()
        try:
            while not ticket.done and self._leader is not None:
                seconds = sleep_limit(self._engine, end)
                if ticket.done or seconds <= 0.0:
                    return
                with Interruptible():
                    turn.wait(seconds)
        finally:
            self._followers.remove(turn)
            ticket.remove_callback(turn.notify)

    def _wake(self) -> None:
        """Wake the leader if it sleeps."""
        if self._asleep is not None and self._alarm is not None:
            self._alarm.ring()

    def wait_until_unused(self) -> None:
        """Wait until no other thread sleeps on descriptors, which are about to be closed.

        Every ticket must be done.
        """
        with self.lock:
            # The leader's ticket is done, too: once awake, it leaves, and notifies the followers.
            turn = threading.Condition(self.lock)
            self._followers.append(turn)
            while self._leader is not None and self._leader != get_ident():
                self._wake()
                turn.wait(RECHECK_SECONDS)
            self._followers.remove(turn)
            self._alarm = None


def close_quickly(engine: Engine) -> None:
    """Close environments at interpreter shutdown, without waiting long."""
    life = engine.life
    if life.closed:
        return
    life.discard(close=True)
    waiter = SyncWaiter(engine)
    try:
        for ticket, seconds in life.closing(fast=True):
            waiter.wait(ticket, seconds)
    finally:
        life.release()


def sleep_limit(engine: Engine, end: float | None = None) -> float:
    """Expire late calls; return how many seconds to sleep at most before the next check."""
    limits = [RECHECK_SECONDS, engine.expire(), None if end is None else end - time.monotonic()]
    return min(limit for limit in limits if limit is not None)


def due(backend: Pool, started: float, now: float) -> float:
    """Return when a wait could have ended, by ``perf_counter``; 0 for a wait too short to ask."""
    return backend.finished_at() if now - started > LATE_SECONDS else 0.0


def is_step_result(ticket: Ticket) -> bool:
    """Whether a ticket has the result of steps, which hooks may delay; they never delay errors."""
    return ticket.done and ticket.kind in (Step, Receive) and ticket.error is None


def until(ticket: Ticket, end: float | None = None) -> float | None:
    """Return when hooks must release a result: the deadline of a ``recv``, otherwise ``end``."""
    return ticket.deadline if ticket.kind is Receive else end


class AsyncWaiter(_Waiter):
    """Waits on the running event loop, which runs other tasks during that time.

    Only the loop's thread uses the engine. Other tasks run at each ``yield`` and nowhere else.

    Attributes:
        hooks: The hooks. While there are any, :meth:`wait` must be called even if a ticket is done.
        turn_at: When the loop must run other tasks, even if results always arrive in time.
        lock: A null context, in the place of :class:`SyncWaiter`'s lock.
    """

    lock = nullcontext()

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._spinning.limit = SPIN_SECONDS  # because the loop has other tasks to run
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: dict[int, int] = {}
        self._sleepers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._parked = False
        self.turn_at = 0.0

    @types.coroutine
    def wait(self, ticket: Ticket) -> Generator[Any, None, None]:
        """Wait until a ticket is done."""
        started = now = time.perf_counter()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._engine.look_after()
        slept = False
        news = self._backend.news
        envs = ticket.remaining if ticket.alone else self._engine.envs_until_wake

        def ready() -> bool:
            return ticket.done or (news(envs) and self.ready(ticket))

        waited = not ready()
        if waited:
            self._spinning.learn()
            slept = not (yield from self._spin(ticket, ready, started + SPIN_SECONDS))
            if slept:
                yield from self._sleep(ticket)
            now = time.perf_counter()
            self._spinning.note(started, now, slept=slept, due=due(self._backend, started, now))
            if ticket.kind not in UNCOUNTED:
                self._traffic.waited += now - started
        hooks = self.hooks
        if hooks.all:
            if waited:
                hooks.after_wait(ticket.message.name, started, now, in_task=True)
            if hooks.holds and is_step_result(ticket):
                with self._traffic.holding():
                    yield from hooks.holding(until(ticket))
        if slept:
            self.turn_at = now + TURN_SECONDS
        elif now > self.turn_at:
            yield from self.let_loop_turn()

    waiting = wait  # the name that plug-ins use, as in :class:`SyncWaiter`

    @types.coroutine
    def let_loop_turn(self) -> Generator[Any, None, None]:
        """Let other tasks of the loop run."""
        self.turn_at = time.perf_counter() + TURN_SECONDS
        yield

    def _spin(
        self, ticket: Ticket, ready: Callable[[], bool], end: float
    ) -> Generator[Any, None, bool]:
        """Spin: first ``HOLD_SECONDS`` without a break, then with other tasks between two polls."""
        if not self._backend.watchable:
            return False
        if self._spinning.spin(ready, HOLD_SECONDS):
            return True
        while self._spinning.worth_spinning(now := time.perf_counter()) and now < end:
            yield
            give_way()
            if self.ready(ticket):
                return True
        return False

    def ready(self, ticket: Ticket) -> bool:
        """Poll for completions, and return whether a ticket is done."""
        self._engine.poll_for(ticket)
        return ticket.done

    def _sleep(self, ticket: Ticket) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            self._sleepers -= 1
            if not self._sleepers and self._parked:  # the workers need not wake this process
                self._parked = False
                self._backend.unpark()
                self._cancel_timer()
            if not woken.done():
                woken.set_result(None)

        # A cancelled await stays counted as a sleeper until its ticket is done. The backend stays
        # parked longer than necessary, and a superfluous wake-up is harmless.
        ticket.on_done(wake)
        self._traffic.lag.follow(loop)
        self._sleepers += 1
        self._park(loop)
        yield from woken

    def _park(self, loop: asyncio.AbstractEventLoop) -> None:
        """Arrange to be woken, and poll for completions that arrived before that.

        Park before the poll: a completion before the park is found by the poll, and a later one
        wakes the loop. The poll may finish the last ticket, whose ``wake`` unparks the backend.
        """
        self._parked = True
        self._backend.park(self._engine.envs_until_wake)
        self._engine.poll()
        self._watch(loop)
        seconds = sleep_limit(self._engine)
        self._cancel_timer()
        self._timer = loop.call_later(seconds, self._wake)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        """Handle a wake-up from a descriptor or the timer."""
        self._parked = False
        self._cancel_timer()
        self._backend.unpark()
        self._engine.poll()
        self._engine.expire()
        assert self._loop is not None
        if self._sleepers:
            self._park(self._loop)
        else:
            self._watch(self._loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Update the loop's readers and writers to the backend's descriptors."""
        if loop is not self._loop:
            self._watched = {}  # the previous loop, with its readers, is gone
            self._loop = loop
        wanted = self._backend.waitables()
        if wanted == self._watched:
            return
        try:
            for descriptor, _ in self._watched.items() - wanted.items():
                loop.remove_reader(descriptor)
                loop.remove_writer(descriptor)
            for descriptor, events in wanted.items() - self._watched.items():
                if events & EVENT_READ:
                    loop.add_reader(descriptor, self._wake)
                if events & EVENT_WRITE:
                    loop.add_writer(descriptor, self._wake)
        except NotImplementedError:  # asyncio's default loop on Windows
            ring = partial(_wake_on, loop, weakref.ref(self))
            self._backend.on_ring(ring)
            ring()  # because a completion may have arrived before the callback was set
        self._watched = dict(wanted)

    def stop_watching(self) -> None:
        """Remove all readers and writers, because their descriptors are about to be closed."""
        self._cancel_timer()
        if self._loop is not None and not self._loop.is_closed():
            with suppress(NotImplementedError):
                for descriptor in self._watched:
                    self._loop.remove_reader(descriptor)
                    self._loop.remove_writer(descriptor)
        self._watched = {}


def _wake_on(loop: asyncio.AbstractEventLoop, reference: weakref.ref[AsyncWaiter]) -> None:
    """Wake a waiter from any thread, without keeping it alive."""

    def wake() -> None:
        # This runs later, in the loop's thread: the waiter may be gone, or its descriptors closed.
        waiter = reference()
        if waiter is not None and waiter._watched:
            waiter._wake()

    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(wake)
