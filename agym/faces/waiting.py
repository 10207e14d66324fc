"""The two waiters: how a caller waits for a ticket, with an event loop and without one.

Both first watch for a bounded time (see ``executors/doorbell.py``), and then sleep on the
executor's descriptors. Nothing else in agym waits.
"""

from __future__ import annotations

import asyncio
import select
import time
import types
from collections.abc import Generator
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from agym.core.brake import HELD_KINDS, Brake
from agym.core.engine import Engine
from agym.core.interrupts import Interruptible
from agym.core.recorders import WAITING, note
from agym.core.ticket import Ticket
from agym.executors.base import Executor
from agym.executors.doorbell import (
    HOLD_SECONDS,
    RECHECK_SECONDS,
    SPIN_SECONDS,
    Patience,
    give_way,
)

# A caller whose results are always there in time still lets the loop turn this often.
TURN_SECONDS = 1e-3


class SyncWaiter:
    """Waits without an event loop, so also inside a running one.

    Attributes:
        brake: Holds results of steps back, if there is one.
        last: The latest operation, which Ctrl-C may have left under way.
    """

    brake: Brake | None = None
    last: Ticket | None = None

    def __init__(self, engine: Engine, executor: Executor) -> None:
        """Wait for an engine's tickets."""
        self._engine = engine
        self._executor = executor
        self._patience = Patience()

    def wait(self, ticket: Ticket, seconds: float | None = None) -> None:
        """Wait until a ticket is done, or for so many seconds."""
        brake, begun = self.brake, 0.0 if seconds is None else time.monotonic()
        self._await(ticket, seconds)
        if brake is not None and is_held(ticket):
            end = until(ticket, None if seconds is None else begun + seconds)
            with self._engine.holding(brake), Interruptible():
                brake.hold(end)

    def _await(self, ticket: Ticket, seconds: float | None) -> None:
        news = self._executor.news
        if ticket.done or (news() and self._ready(ticket)):
            return
        begun = time.perf_counter()
        slept = not self._patience.watch(lambda: news() and self._ready(ticket))
        if slept:
            self._sleep(ticket, None if seconds is None else time.monotonic() + seconds)
        now = time.perf_counter()
        self._patience.learn(now - begun, slept=slept)
        note(WAITING, ticket.kind, begun, now, in_task=False)

    def _ready(self, ticket: Ticket) -> bool:
        self._engine.poll()
        return ticket.done

    def _sleep(self, ticket: Ticket, end: float | None) -> None:
        executor, engine = self._executor, self._engine
        try:
            while True:
                executor.park()
                engine.poll()
                deadline = engine.expire()
                if ticket.done or (end is not None and time.monotonic() >= end):
                    return
                limits = [RECHECK_SECONDS]
                limits += [] if deadline is None else [deadline]
                limits += [] if end is None else [end - time.monotonic()]
                poller = select.poll()
                for descriptor, events in executor.waitables().items():
                    poller.register(descriptor, _poll_mask(events))
                with Interruptible():
                    poller.poll(max(0.0, min(limits)) * 1000)
                executor.unpark()
                engine.poll()
        finally:
            executor.unpark()
            engine.poll()


def is_held(ticket: Ticket) -> bool:
    """Whether a brake may hold its result back: that of steps, unless it is an error."""
    return ticket.done and ticket.kind in HELD_KINDS and ticket.error is None


def until(ticket: Ticket, end: float | None = None) -> float | None:
    """When the caller wants to hear in any case: ``recv`` has a time of its own."""
    return ticket.deadline if ticket.kind == "recv" else end


def _poll_mask(events: int) -> int:
    read = select.POLLIN if events & EVENT_READ else 0
    return read | (select.POLLOUT if events & EVENT_WRITE else 0)


class AsyncWaiter:
    """Waits on the running event loop, which turns meanwhile.

    Attributes:
        brake: Holds results of steps back, if there is one.
    """

    brake: Brake | None = None

    def __init__(self, engine: Engine, executor: Executor) -> None:
        """Wait for an engine's tickets."""
        self._engine = engine
        self._executor = executor
        self._patience = Patience()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: dict[int, int] = {}
        self._sleepers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last_turn = 0.0

    async def wait_at_most(self, ticket: Ticket, seconds: float) -> None:
        """Wait until a ticket is done, or for so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.waiting(ticket)
        except TimeoutError:
            return

    @types.coroutine
    def waiting(self, ticket: Ticket) -> Generator[Any, None, None]:
        """:meth:`wait` as a coroutine."""
        yield from self.wait(ticket)

    def wait(self, ticket: Ticket) -> Generator[Any, None, None]:
        """Wait until a ticket is done."""
        begun = now = time.perf_counter()
        slept = False
        if not self.ready(ticket):
            slept = not (yield from self._watch_for(ticket, begun + SPIN_SECONDS))
            if slept:
                yield from self._sleep(ticket)
            now = time.perf_counter()
            self._patience.learn(now - begun, slept=slept)
            note(WAITING, ticket.kind, begun, now, in_task=True)
        if slept:
            self._last_turn = now
        elif now - self._last_turn > TURN_SECONDS:
            self._last_turn = now
            yield
        brake = self.brake
        if brake is not None and is_held(ticket):
            with self._engine.holding(brake):
                yield from brake.holding(until(ticket))

    def _watch_for(self, ticket: Ticket, end: float) -> Generator[Any, None, bool]:
        """Watch for a while, soon with a turn of the loop between two looks."""
        if not self._executor.watchable:
            return False
        news = self._executor.news
        if self._patience.watch(lambda: news() and self.ready(ticket), HOLD_SECONDS):
            return True
        while self._patience.worthwhile and time.perf_counter() < end:
            yield
            give_way()
            if self.ready(ticket):
                return True
        return False

    def ready(self, ticket: Ticket) -> bool:
        """Take in what has come, and tell whether a ticket is done."""
        self._engine.poll()
        return ticket.done

    def _sleep(self, ticket: Ticket) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            self._sleepers -= 1
            self._rest()
            if not woken.done():
                woken.set_result(None)

        # A cancelled await stays counted until its ticket is done: a bell too many does no harm.
        ticket.on_done(wake)
        self._sleepers += 1
        try:
            self._park(loop)
            yield from woken
        finally:
            self._rest()

    def _rest(self) -> None:
        """When nobody sleeps, nobody has to be woken."""
        if not self._sleepers:
            self._executor.unpark()
            self._cancel_timer()

    def _park(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the loop wake us; what came just before is taken in at once."""
        self._executor.park()
        self._engine.poll()
        self._watch(loop)
        deadline = self._engine.expire()
        self._cancel_timer()
        delay = RECHECK_SECONDS if deadline is None else min(RECHECK_SECONDS, deadline)
        self._timer = loop.call_later(delay, self._wake)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        """Something came, or it is time to look."""
        self._executor.unpark()
        self._engine.poll()
        self._engine.expire()
        assert self._loop is not None
        if self._sleepers:
            self._park(self._loop)
        else:
            self._watch(self._loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bring the loop's readers and writers in line with the executor's waitables."""
        if loop is not self._loop:
            self._watched = {}  # the loop they were registered with is gone
            self._loop = loop
        wanted = self._executor.waitables()
        if wanted == self._watched:
            return
        for descriptor, events in self._watched.items():
            gone = events & ~wanted.get(descriptor, 0)
            if gone & EVENT_READ:
                loop.remove_reader(descriptor)
            if gone & EVENT_WRITE:
                loop.remove_writer(descriptor)
        for descriptor, events in wanted.items():
            new = events & ~self._watched.get(descriptor, 0)
            if new & EVENT_READ:
                loop.add_reader(descriptor, self._wake)
            if new & EVENT_WRITE:
                loop.add_writer(descriptor, self._wake)
        self._watched = dict(wanted)

    def forget(self) -> None:
        """Take all readers and writers off the loop; its descriptors are about to close."""
        self._cancel_timer()
        if self._loop is not None and not self._loop.is_closed():
            for descriptor in self._watched:
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
        self._watched = {}
