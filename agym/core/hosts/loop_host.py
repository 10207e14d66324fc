"""LoopHost: runs coroutine environments, and is the only code that calls them.

All environments of its range run concurrently, on the event loop that calls it. Each has a queue,
and a single task until it is closed, as cancel scopes and sessions require. An environment runs its
operations in order, and completes each separately::

    enqueue(operation) --> queue of env i --> task of env i --> report(operation, slot, payload)

A runner is an environment with its queue and its task. An environment that is given up may ignore
its cancellation. Another runner then replaces it, and everything that the old one still does is
ignored.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from agym.core.hosts.base import Host, RunningSlot
from agym.core.hosts.episode import Phase
from agym.core.hosts.rows import Extra
from agym.core.hosts.slot import PROGRAMS, Program, Slot, Stopped, close_env
from agym.core.protocol.messages.completions import Description, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Operation, Replace, Step
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
    """Await ``awaitable``, and record the environment's id while each turn of it runs.

    Many environments share one event loop, so the running environment is recorded at every turn,
    and a hang or a crash can be attributed::

        marker[0] = id + 1;  run until the next await;  marker[0] = 0

    The marker is in memory that another process or thread reads at any moment. It is cleared in a
    ``finally``, so that an exception never leaves an innocent environment recorded.
    """
    turns = awaitable.__await__()
    answer: Any = None
    thrown: BaseException | None = None
    while True:
        marker[0] = env_id + 1
        try:
            awaited = turns.send(answer) if thrown is None else turns.throw(thrown)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            marker[0] = 0
        answer = thrown = None
        try:
            answer = yield awaited
        except BaseException as error:  # such as cancellation
            thrown = error


async def drive(program: Program[T], check: Callable[[], object] = bool) -> T:
    """Run a program: await what it yields, and return what it returns.

    After each call ``check`` may raise, to stop the program there. A given-up environment may catch
    its cancellation and return later. Without the check, it would go on to write rows that now
    belong to its replacement.
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


@dataclass(slots=True, eq=False)
class _Runner:
    """An environment with its queue and its task.

    Attributes:
        slot: The environment.
        queue: Operations, each with the position of the environment in it.
        task: Runs the operations; ``None`` before the first.
        idle: A future that the task awaits while the queue is empty.
        queued: Whether it waits behind the concurrency limit.
        limit: The concurrency limit, while it counts towards it.
        given_up: Whether another runner has replaced it.
    """

    slot: Slot
    queue: deque[tuple[Operation, int, Any]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    idle: asyncio.Future[None] | None = None
    queued: bool = False
    limit: asyncio.Semaphore | None = None
    given_up: bool = False

    async def enter(self, limit: asyncio.Semaphore) -> int:
        """Wait behind a concurrency limit; return the waiting time in nanoseconds."""
        started, self.queued = clock(), True
        try:
            await limit.acquire()
        finally:
            self.queued = False
        self.limit = limit
        return clock() - started

    def leave(self) -> None:
        """Let another environment pass the concurrency limit."""
        if self.limit is not None:
            self.limit.release()
            self.limit = None

    def check(self) -> None:
        """Stop if the environment was given up and has ignored its cancellation."""
        if self.given_up:
            raise asyncio.CancelledError


@dataclass(eq=False, repr=False, kw_only=True)
class LoopHost(Host):
    """Runs coroutine environments concurrently.

    Attributes:
        report: Called by an environment on completion.
        fail: Called with an exception that ended a task outside its environment, whose operations
            then never complete.
        max_concurrency: How many environments may run at once.
        fatal: Exceptions that end the loop; all others are failures of the environment.
    """

    coroutines: ClassVar[bool] = True

    catch: type[BaseException] = BaseException
    report: Report
    fail: Fail
    max_concurrency: int | None = None
    fatal: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._limit: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fatal: tuple[type[BaseException], ...] = (GeneratorExit, *self.fatal)
        self._runners: list[_Runner] = []
        # Tasks of environments that were given up, and tasks that close such environments.
        self._leftovers: set[asyncio.Task[None]] = set()
        self._closing = False

    # ---------------------------------------------------------------- life

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        described, failures = super().make()
        self._runners = [*map(_Runner, self.shared.slots)]
        return described, failures

    # ---------------------------------------------------------------- operations

    def enqueue(self, operation: Operation) -> None:
        """Queue an operation for each of its environments."""
        _, start, stop, message = operation
        actions: Sequence[Any] = [None] * (stop - start)
        if isinstance(message, Step):
            actions = self.shared.results.actions(start, stop, message.parts)
        for k, action in enumerate(actions):
            i = start - self.first + k
            runner = self._runners[i]
            if isinstance(message, Replace):
                runner = self._replace(i, operation, k)
            else:
                runner.queue.append((operation, k, action))
            # A task that is being cancelled is neither idle nor done. It finds the new operation
            # in its queue when it ends, and starts another task for it, see ``_serve``.
            if runner.idle is not None and not runner.idle.done():
                idle, runner.idle = runner.idle, None
                idle.set_result(None)
            elif runner.queue and (runner.task is None or runner.task.done()):
                self._start(runner)

    def _start(self, runner: _Runner) -> None:
        runner.task = task = self._running_loop().create_task(self._serve(runner))
        # asyncio would warn about an idle task that is destroyed with its loop.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """Report the exception of a task, unless it was cancelled or the loop ends with it."""
        if self._closing or task.cancelled() or task.cancelling():
            return
        error = task.exception()
        if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            self.fail(error)

    def _replace(self, i: int, operation: Operation, k: int) -> _Runner:
        """Give an environment up: another runner replaces it, and starts with an operation."""
        old = self._runners[i]
        old.given_up = True
        if old.task is not None:
            old.task.cancel()
            self._track_leftover(old.task)
        if old.queued:
            # Still queued behind the concurrency limit: not at fault, so reuse it.
            runner = _Runner(old.slot)
            self.report(operation, old.slot.id, Payload(values={old.slot.id: None}))
        else:
            old.leave()  # now, because the task may ignore its cancellation and never leave
            runner = _Runner(replace(old.slot, extra=Extra()))
            runner.queue.append((operation, k, None))
        runner.queue.extend(old.queue)
        self._runners[i], self.shared.slots[i] = runner, runner.slot
        return runner

    def _discard(self, env: Any) -> None:
        """Close an environment that was replaced, in a task, because closing may hang."""
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
        """Return the running loop, with a new semaphore if the loop is new."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            if self.max_concurrency is not None:
                self._limit = asyncio.Semaphore(self.max_concurrency)
        return loop

    async def _serve(self, runner: _Runner) -> None:
        """Run the operations of an environment, from the first until its end."""
        task, slot = runner.task, runner.slot
        assert task is not None
        loop = task.get_loop()
        with suppress(asyncio.CancelledError):
            while not task.cancelling():  # also if the environment swallowed the cancellation
                if not runner.queue:
                    runner.idle = idle = loop.create_future()
                    await idle
                    continue
                operation, k, action = runner.queue.popleft()
                # A replacement does not wait: its place is that of the environment it replaces.
                if self._limit is not None and not isinstance(operation.message, Replace):
                    self.shared.meter.waits(slot.id)
                    try:
                        waited = await runner.enter(self._limit)
                    except asyncio.CancelledError:
                        if not (runner.given_up or self._closing):  # other code cancelled the task
                            runner.queue.appendleft((operation, k, action))
                        raise
                    self.shared.meter.waited(slot.id, waited)
                running: Awaitable[None] = self._run(runner, operation, k, action)
                if self.marker is not None:
                    running = track_running(running, self.marker, slot.id)
                try:
                    await running
                finally:
                    runner.leave()
                # The environment may return after it was given up. Its result must not be reported.
                if runner.given_up:
                    return
                writer = self.shared.results.writer
                waits = slot.extra.made is not None or writer.new
                self.report(operation, slot.id, slot.extra.take(writer) if waits else None)
        if runner.given_up:
            return
        if self._closing:
            await drive(slot.close(), runner.check)
        elif runner.queue:
            self._start(runner)  # other code cancelled the task

    async def _run(self, runner: _Runner, operation: Operation, k: int, action: Any) -> None:
        """Run an operation; an exception becomes part of its completion."""
        message, slot, meter = operation.message, runner.slot, self.shared.meter
        name = message.name
        started = meter.start_one(slot.id, name)
        try:
            if isinstance(message, Step):
                await self._step(runner, message.plane, action)
                return
            value = await drive(PROGRAMS[type(message)](slot, message, k), runner.check)
            if not message.writes_rows:
                slot.extra.payload.values[slot.id] = value
        except self._fatal:
            raise
        except BaseException as error:  # including a cancellation that agym did not request
            if isinstance(error, asyncio.CancelledError) and (self._closing or runner.given_up):
                raise
            slot.extra.payload.problems.append(self._failure(error, slot, name, action))
        finally:
            meter.end_one(slot.id, name, started)

    async def _step(self, runner: _Runner, plane: int, action: Any) -> None:
        slot, shared = runner.slot, self.shared
        meter = shared.meter
        started = clock()
        idle = meter.idle_until(started)
        phase = slot.episode.phase
        slot.count_step()  # first, because the step may reset the environment
        if shared.recording:
            slot.record_action(action)
        if phase is Phase.RUNNING and slot.fault is None and shared.turns is None:
            result = await slot.env.step(action)
            if runner.given_up:
                raise asyncio.CancelledError
        else:
            result = await drive(slot.step(action), runner.check)
        if phase is Phase.RUNNING or phase is Phase.CUT:
            meter.spent(slot.id, result[-1])
            meter.timed(slot.id, clock() - started - slot.waited, idle)
        if shared.filter.active:
            info = slot.select_info(result)
            shared.filter.add(slot.i, result[1:2])
            result = (*result[:4], info)
        shared.results.put(plane, slot.id, result, slot.extra)
        if result[2] or result[3]:
            program = slot.end(result, result[4], plane)
            if program is not None:
                await drive(program, runner.check)

    # ---------------------------------------------------------------- close

    async def close(self) -> list[Failure]:
        """Cancel all tasks, and close every environment, even if others fail."""
        self._closing = True
        # Tasks that have ended may belong to a closed loop, and cannot be awaited.
        tasks = {p.slot.id: p.task for p in self._runners if p.task and not p.task.done()}
        leftovers = [task for task in self._leftovers if not task.done()]
        for task in (*tasks.values(), *leftovers):
            task.cancel()
        await asyncio.gather(*leftovers, return_exceptions=True)
        errors = await _gather_by_id(tasks)
        # Environments without a task, or whose task was cancelled before it started.
        unclosed = [runner for runner in self._runners if not runner.slot.closed]
        errors |= await _gather_by_id({p.slot.id: drive(p.slot.close(), p.check) for p in unclosed})
        self._runners, self.shared.slots = [], []
        return [
            Failure.of(error, env_id, "close")
            for env_id, error in sorted(errors.items())
            if isinstance(error, BaseException)
        ]


async def _gather_by_id(closing: Mapping[int, Awaitable[Any]]) -> dict[int, Any]:
    """Return the result or the exception of each awaitable."""
    results = await asyncio.gather(*closing.values(), return_exceptions=True)
    return dict(zip(closing, results, strict=True))
