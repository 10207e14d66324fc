"""LoopHost: runs coroutine environments, and is the only code that calls them.

All environments of its range run concurrently, on the event loop that calls it. Each has a queue,
and one task until it is closed (cancel scopes and sessions need that). An environment runs its
operations in order, and completes each by itself::

    begin(operation) --> queue of env i --> task of env i --> report(operation, slot, payload)

A place is an environment with its queue and its task. Where an environment is given up, which may
ignore its cancellation, another place takes over, and nothing that the old one still does counts.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from gymnasium.vector import AutoresetMode

from agym.core.hosts.base import Host, RunningSlot
from agym.core.hosts.episode import Phase
from agym.core.hosts.factories import Factory
from agym.core.hosts.rows import Extra
from agym.core.hosts.slot import PROGRAMS, Program, Slot, Stopped, close_env
from agym.core.protocol.messages.completions import Description, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Load, Operation, Step
from agym.core.protocol.metrics.gauges import clock

T = TypeVar("T")
Report = Callable[[Operation, int, Payload | None], None]
Fail = Callable[[BaseException], None]


def guarded(fail: Fail, function: Callable[..., object], *arguments: Any) -> None:
    """Call a function, and pass its exception to ``fail``: the event loop would only log it."""
    try:
        function(*arguments)
    except (KeyboardInterrupt, SystemExit):  # these end the loop
        raise
    except BaseException as error:
        fail(error)


@types.coroutine
def track_running(
    awaitable: Awaitable[T], marker: RunningSlot, env_id: int
) -> Generator[Any, Any, T]:
    """Await something, and record the environment's id while each turn of it runs.

    Many environments share one event loop, so the running one is recorded at every turn, and a hang
    or a crash can be attributed::

        marker[0] = id + 1;  run until the next await;  marker[0] = 0
    """
    turns = awaitable.__await__()
    answer: Any = None
    thrown: BaseException | None = None
    while True:
        marker[0] = env_id + 1
        try:
            asked = turns.send(answer) if thrown is None else turns.throw(thrown)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            marker[0] = 0
        answer = thrown = None
        try:
            answer = yield asked
        except BaseException as error:  # such as cancellation
            thrown = error


async def drive(program: Program[T], check: Callable[[], object] = bool) -> T:
    """Run a program: await what it yields, and return what it returns.

    After each call ``check`` may raise, to stop there.
    """
    try:
        function = next(program)
        while True:
            try:
                answer = function()
                if inspect.isawaitable(answer):
                    answer = await answer
            except StopIteration as error:
                check()
                function = program.throw(Stopped(error))
            except BaseException as error:
                check()
                function = program.throw(error)
            else:
                check()
                function = program.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value
    except Stopped as stopped:
        raise stopped.error from None


class _Place:
    """An environment with its queue and its task.

    Attributes:
        slot: The environment.
        queue: Operations, each with the position of the environment in it.
        task: Runs them; ``None`` before the first.
        idle: What the task waits for while the queue is empty.
        queued: It waits behind the limit of concurrency.
        limit: The limit of concurrency, while it takes one of its places.
        given_up: Another place took over.
    """

    __slots__ = ("given_up", "idle", "limit", "queue", "queued", "slot", "task")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.queue: deque[tuple[Operation, int, Any]] = deque()
        self.task: asyncio.Task[None] | None = None
        self.idle: asyncio.Future[None] | None = None
        self.queued = False
        self.limit: asyncio.Semaphore | None = None
        self.given_up = False

    async def enter(self, limit: asyncio.Semaphore) -> int:
        """Wait behind a limit of concurrency; return for how many nanoseconds."""
        begun, self.queued = clock(), True
        await limit.acquire()
        self.queued, self.limit = False, limit
        return clock() - begun

    def leave(self) -> None:
        """Let another environment pass the limit of concurrency."""
        if self.limit is not None:
            self.limit.release()
            self.limit = None

    def check(self) -> None:
        """Go no further if the environment was given up, and ignored that."""
        if self.given_up:
            raise asyncio.CancelledError


class LoopHost(Host):
    """Runs coroutine environments concurrently."""

    coroutines = True

    def __init__(
        self,
        factories: Sequence[Factory],
        first: int,
        autoreset: AutoresetMode,
        report: Report,
        fail: Fail,
        max_concurrency: int | None = None,
        fatal: tuple[type[BaseException], ...] = (),
        **keywords: Any,
    ) -> None:
        """Store the arguments; :class:`~agym.core.hosts.base.Host` describes the others.

        An environment calls ``report`` on completion. ``fail`` is called with an exception that
        ended a task outside of its environment, whose operations then never complete. At most
        ``max_concurrency`` run at once. ``fatal`` exceptions end the loop; all others are failures
        of the environment.
        """
        super().__init__(factories, first, autoreset, BaseException, **keywords)
        self._report = report
        self._fail = fail
        self._concurrency = max_concurrency
        self._limit: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fatal: tuple[type[BaseException], ...] = (GeneratorExit, *fatal)
        self._places: list[_Place] = []
        # Tasks of environments that were given up, and tasks that close such environments.
        self._leftovers: set[asyncio.Task[None]] = set()
        self._closing = False

    # ---------------------------------------------------------------- life

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        described, failures = super().make()
        self._places = [*map(_Place, self.shared.slots)]
        return described, failures

    # ---------------------------------------------------------------- operations

    def begin(self, operation: Operation) -> None:
        """Queue an operation for each environment that it names."""
        _, start, stop, message = operation
        actions: Sequence[Any] = [None] * (stop - start)
        if isinstance(message, Step):
            actions = self.shared.results.actions(start, stop, message.parts)
        for k, action in enumerate(actions):
            i = start - self.first + k
            place = self._places[i]
            if isinstance(message, Load) and message.replaces:
                place = self._replace(i, operation, k)
            else:
                place.queue.append((operation, k, action))
            if place.idle is not None and not place.idle.done():
                idle, place.idle = place.idle, None
                idle.set_result(None)
            elif place.queue and (place.task is None or place.task.done()):
                self._start(place)

    def _start(self, place: _Place) -> None:
        place.task = task = self._running_loop().create_task(self._run_place(place))
        # asyncio would complain about an idle task that is destroyed with its loop.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """Report what ended a task, unless it was cancelled or ends the loop too."""
        if self._closing or task.cancelled() or task.cancelling():
            return
        error = task.exception()
        if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            self._fail(error)

    def _replace(self, i: int, operation: Operation, k: int) -> _Place:
        """Give an environment up: another place takes over, and begins with an operation."""
        old = self._places[i]
        old.given_up = True
        if old.task is not None:
            old.task.cancel()
            self._track_leftover(old.task)
        if old.queued:
            # Still queued behind the concurrency limit: not at fault, so it goes on.
            place = _Place(old.slot)
            self._report(operation, old.slot.id, Payload(values={old.slot.id: None}))
        else:
            old.leave()  # the task may ignore its cancellation
            place = _Place(replace(old.slot, extra=Extra()))
            place.queue.append((operation, k, None))
        place.queue.extend(old.queue)
        self._places[i], self.shared.slots[i] = place, place.slot
        return place

    def _discard(self, env: Any) -> None:
        """Close an environment that was replaced, which may hang in that."""
        ends: tuple[type[BaseException], ...] = asyncio.CancelledError, *self._fatal

        async def close() -> None:
            try:
                await drive(close_env(env))
            except ends:
                raise
            except BaseException:
                return

        self._track_leftover(self._running_loop().create_task(close()))

    def _track_leftover(self, task: asyncio.Task[None]) -> None:
        self._leftovers.add(task)
        task.add_done_callback(self._leftovers.discard)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, with a semaphore for it if it is a new one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            if self._concurrency is not None:
                self._limit = asyncio.Semaphore(self._concurrency)
        return loop

    async def _run_place(self, place: _Place) -> None:
        """Run the operations of an environment, from the first until its end."""
        task, slot = place.task, place.slot
        assert task is not None
        loop = task.get_loop()
        with suppress(asyncio.CancelledError):
            while not task.cancelling():  # also if the environment ignored it
                if not place.queue:
                    place.idle = idle = loop.create_future()
                    await idle
                    continue
                operation, k, action = place.queue.popleft()
                if self._limit is not None:
                    self.shared.meter.queued(slot.id, await place.enter(self._limit))
                running: Awaitable[None] = self._run(place, operation, k, action)
                if self._marker is not None:
                    running = track_running(running, self._marker, slot.id)
                try:
                    await running
                finally:
                    place.leave()
                if place.given_up:
                    return
                writer = self.shared.results.writer
                waits = slot.extra.made is not None or writer.new
                self._report(operation, slot.id, slot.extra.take(writer) if waits else None)
        if place.given_up:
            return
        if self._closing:
            await drive(slot.close(), place.check)
        elif place.queue:
            self._start(place)  # others cancelled it

    async def _run(self, place: _Place, operation: Operation, k: int, action: Any) -> None:
        """Run an operation; an exception becomes part of its completion."""
        message, slot, meter = operation.message, place.slot, self.shared.meter
        name = message.name
        begun = meter.begin_one(slot.id, name)
        try:
            if isinstance(message, Step):
                await self._step(place, message.plane, action)
                return
            value = await drive(PROGRAMS[type(message)](slot, message, k), place.check)
            if not message.writes_rows:
                slot.extra.payload.values[slot.id] = value
        except self._fatal:
            raise
        except BaseException as error:  # also if it was cancelled by itself, or by others
            if isinstance(error, asyncio.CancelledError) and (self._closing or place.given_up):
                raise
            slot.extra.payload.problems.append(self._failure(error, slot, name, action))
        finally:
            meter.end_one(slot.id, name, begun)

    async def _step(self, place: _Place, plane: int, action: Any) -> None:
        slot, shared = place.slot, self.shared
        meter = shared.meter
        begun = clock()
        idle = meter.idle_until(begun)
        phase = slot.episode.phase
        slot.count_step()  # first, since the step may reset
        if shared.recording:
            slot.record_action(action)
        if phase is Phase.RUNNING and slot.fault is None and shared.turns is None:
            result = await slot.env.step(action)
            if place.given_up:
                raise asyncio.CancelledError
        else:
            result = await drive(slot.step(action), place.check)
        if phase is Phase.RUNNING or phase is Phase.CUT:
            meter.spent(slot.id, result[-1])
            meter.timed(slot.id, clock() - begun - slot.waited, idle)
        if shared.filter.active:
            info = slot.select_info(result)
            shared.filter.add(slot.i, result[1:2])
            result = (*result[:4], info)
        shared.results.put(plane, slot.id, result, slot.extra)
        if result[2] or result[3]:
            program = slot.end(result, result[4], plane)
            if program is not None:
                await drive(program, place.check)

    # ---------------------------------------------------------------- close

    async def close(self) -> list[Failure]:
        """Cancel all tasks, and close every environment, even if others fail."""
        self._closing = True
        # Those that have ended may belong to a loop that is closed, and cannot be awaited.
        tasks = {p.slot.id: p.task for p in self._places if p.task and not p.task.done()}
        leftovers = [task for task in self._leftovers if not task.done()]
        for task in (*tasks.values(), *leftovers):
            task.cancel()
        await asyncio.gather(*leftovers, return_exceptions=True)
        errors = await _gather_by_id(tasks)
        # Environments without a task, or whose task was cancelled before it began.
        left = [place for place in self._places if not place.slot.closed]
        errors |= await _gather_by_id({p.slot.id: drive(p.slot.close(), p.check) for p in left})
        self._places, self.shared.slots = [], []
        return [
            Failure.of(error, env_id, "close")
            for env_id, error in sorted(errors.items())
            if isinstance(error, BaseException)
        ]


async def _gather_by_id(closing: Mapping[int, Awaitable[Any]]) -> dict[int, Any]:
    """Return the result or the exception of each."""
    results = await asyncio.gather(*closing.values(), return_exceptions=True)
    return dict(zip(closing, results, strict=True))
