"""CoroutineHost: the only code that calls coroutine environments.

All environments of its range run concurrently, on the event loop that calls it. Each has a queue,
and one task until it is closed (cancel scopes and sessions need that). An environment runs its
operations in order, and completes each by itself::

    begin(operation) --> queue of env i --> task of env i --> report(operation, slot, payload)

The other files beside it hold what is not a step, as in ``hosts/gym/``::

    beginning.py    resets
    calls.py        renders, calls, attributes
    continuing.py   what a fault left, and snapshots
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from gymnasium.vector import AutoresetMode

from agym.errors import InvalidResult
from agym.hosts.base import ALL_INFOS, Factory, Host
from agym.hosts.coroutine import beginning, calls, continuing
from agym.hosts.coroutine.fleet_calls import FleetCalls
from agym.hosts.coroutine.running_env import RunningSlot, track_running
from agym.hosts.coroutine.spares import Spare, SpareTasks
from agym.hosts.episode import Phase
from agym.hosts.fault_injection import InjectedFault
from agym.hosts.fleet.setup import FleetSetup
from agym.hosts.snapshots.replaying import Recorder
from agym.protocol.infos.policy import InfoPolicy
from agym.protocol.messages.completions import Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import (
    Call,
    CloseEnv,
    GetAttr,
    InjectFault,
    Message,
    Operation,
    Recreate,
    Render,
    Reset,
    Restore,
    SetAttr,
    Step,
    TakeSnapshot,
)
from agym.protocol.messages.resets import EpisodeStart
from agym.protocol.metrics.gauges import clock
from agym.protocol.table import SlotTable
from agym.protocol.value_copies import copy_info

Report = Callable[[Operation, int, Payload | None], None]
Fail = Callable[[BaseException], None]

# Instead of an environment's index, that of a task whose environment is a spare.
NO_PLACE = -1


def guarded(fail: Fail, function: Callable[..., object], *arguments: Any) -> None:
    """Call a function for an event loop, which would only log what it raises, and go on."""
    try:
        function(*arguments)
    except (KeyboardInterrupt, SystemExit):  # these end the loop
        raise
    except BaseException as error:
        fail(error)


class CoroutineHost(Host):
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
        *,
        log: bool = False,
        marker: RunningSlot | None = None,
        infos: InfoPolicy = ALL_INFOS,
        fleet: FleetSetup | None = None,
    ) -> None:
        """Store the arguments; :class:`~agym.hosts.base.Host` describes most of them.

        An environment calls ``report`` on completion. ``fail`` is called with an exception that
        ended a task outside of its environment, whose operations then never complete. At most
        ``max_concurrency`` run at once. ``fatal`` exceptions end the loop; all others are failures
        of the environment. ``marker[0]`` is the id of the running environment plus one, else 0.
        """
        self._marker = marker
        super().__init__(factories, first, autoreset, catch=BaseException, log=log, infos=infos)
        self._report = report
        self._fail = fail
        self._concurrency = max_concurrency
        self._limit: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fatal: tuple[type[BaseException], ...] = (GeneratorExit, *fatal)
        n = len(factories)
        self._fleet = None if fleet is None else FleetCalls(fleet, first, marker)
        self._spares: SpareTasks | None = None
        if self._fleet is not None and fleet is not None and fleet.spares:
            self._spares = SpareTasks(
                self._fleet, factories, fleet.spares, self._make_spare, calls.close,
                partial(self._start_task, NO_PLACE),
            )  # fmt: skip
        # Operations, each with the environment's own argument, if there is one.
        self._queues: list[deque[tuple[Operation, Any]]] = [deque() for _ in range(n)]
        self._tasks: dict[int, asyncio.Task[None]] = {}
        # Futures that the tasks of idle environments wait for.
        self._idle: list[asyncio.Future[None] | None] = [None] * n
        self._steps = [0] * n
        self._recorder = Recorder(n, on=log)
        # How the latest episode began, until that is reported.
        self._starts: dict[int, EpisodeStart] = {}
        self._injected_faults: dict[int, InjectedFault] = {}
        self._turns: dict[int, _Turn] = {}
        # Tasks of environments that were given up, and tasks that close such environments.
        self._leftovers: set[asyncio.Task[None]] = set()
        self._resetting = [False] * n
        # Whether any task was ever given up.
        self._gave_up = False
        self._closing = False
        self._closed: set[int] = set()

    # ---------------------------------------------------------------- life

    def _look_at(self, env: Any) -> Description:
        found = super()._look_at(env)
        if self._fleet is not None:
            self._fleet.check(env)
        return found

    def attach(self, table: SlotTable) -> None:
        super().attach(table)
        if self._fleet is not None:
            self._fleet.attach(table.gauges)

    # ---------------------------------------------------------------- operations

    def begin(self, operation: Operation) -> None:
        """Queue an operation for each environment that it names."""
        _, start, stop, message = operation
        if isinstance(message, Step):
            arguments = self._rows.actions(start, stop, message.parts)
        else:
            arguments = message.values or [None] * (stop - start)
        recreates = isinstance(message, Recreate)
        for i, argument in enumerate(arguments, start - self.first):
            if recreates and argument.used:
                # Still queued behind the concurrency limit: not at fault, so reuse it.
                queued = i in self._turns and self._turns[i].waiting
                self._give_up(i)
                self._queues[i].appendleft((operation, None if queued else argument))
            else:
                self._queues[i].append((operation, argument))
            idle = self._idle[i]
            if idle is not None and not idle.done():
                self._idle[i] = None
                idle.set_result(None)
            elif i not in self._tasks or self._tasks[i].done():
                self._tasks[i] = self._start_task(i)

    def _start_task(self, i: int, spare: Spare | None = None) -> asyncio.Task[None]:
        task = self._running_loop().create_task(self._run_task(i, spare))
        # asyncio would complain about an idle task that is destroyed with its loop.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """Report what ended a task, unless it was cancelled or ends the loop too."""
        if self._closing or task.cancelled() or task.cancelling():
            return
        error = task.exception()
        if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            self._fail(error)

    def _give_up(self, i: int) -> None:
        """Cancel an environment's task, and ignore what it still does."""
        self._gave_up = True
        task = self._tasks.pop(i, None)
        self._idle[i] = None
        if i in self._turns:
            self._turns.pop(i).end()  # the task may ignore its cancellation
        if task is not None:
            task.cancel()
            self._track_leftover(task)

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

    async def _run_task(self, i: int, spare: Spare | None = None) -> None:
        """Run the operations of an environment, from the first until its end.

        The task of a spare runs those of the environment whose place it takes, until another takes
        its own. Between two places ``i`` is ``NO_PLACE``.
        """
        task, spares = asyncio.current_task(), self._spares
        assert task is not None
        loop = task.get_loop()
        with suppress(asyncio.CancelledError):
            while not task.cancelling():  # also if the environment ignored it
                if spare is not None and spares is not None:
                    i, spare = await spares.stand_by(spare), None
                elif queue := self._queues[i]:
                    operation, argument = queue.popleft()
                    if self._limit is None:
                        payload = await self._running(i, operation, argument)
                    else:
                        self._turns[i] = turn = _Turn(self._limit)
                        async with turn:
                            self._meter.queued(self.first + i, turn.waited)
                            payload = await self._running(i, operation, argument)
                    if task is not self._tasks.get(i):
                        return  # it was given up
                    if self._writer.new:
                        payload = payload or Payload()
                        payload.schemas = self._writer.take_new()
                    self._report(operation, self.first + i, payload)
                    if spares is not None and i in spares.successors:
                        self._tasks[i], spare = spares.succeed(i, task)
                        beginning.reset_ahead(self, spares, i)
                        i = NO_PLACE
                else:
                    self._idle[i] = idle = loop.create_future()
                    await idle
        if self._closing and task is self._tasks.get(i):
            await self._close(i)
        elif task is self._tasks.get(i) and self._queues[i]:
            self._tasks[i] = self._start_task(i)  # others cancelled it

    async def _close(self, i: int) -> None:
        if i in self._closed:
            return
        self._closed.add(i)
        await calls.close(self._envs[i])

    def _running(self, i: int, operation: Operation, argument: Any) -> Awaitable[Payload | None]:
        """Return an operation that is about to run, with a marker if there is one."""
        running = self._run(i, operation, argument)
        if self._marker is None:
            return running
        return track_running(running, self._marker, self.first + i)

    async def _run(self, i: int, operation: Operation, argument: Any) -> Payload | None:
        """Run an operation; an exception becomes part of its completion."""
        message, slot, meter = operation.message, self.first + i, self._meter
        begun = meter.begin_one(slot, message.name)
        try:
            answer: Any = await self._handlers[type(message)](self, i, message, argument)
            if message.writes_rows:
                payload: Payload | None = answer
                return payload
            return Payload(values={slot: answer})
        except asyncio.CancelledError as error:
            if self._closing or asyncio.current_task() is not self._tasks.get(i):
                raise  # it was given up
            problem: BaseException = error  # by the environment itself, or by others
        except self._fatal:
            raise
        except BaseException as error:
            problem = error
        finally:
            meter.end_one(slot, message.name, begun)
        name, stepping = message.name, isinstance(message, Step)
        action = argument if stepping else None
        if self._resetting[i]:
            name, stepping, self._resetting[i] = "reset", False, False
        counted = isinstance(problem, InvalidResult)  # a step that raised was not
        step = self._steps[i] + (stepping and not counted)
        return Payload(problems=[self._failure(problem, slot, name, step, action)])

    async def _step(self, i: int, step: Step, action: Any) -> Payload | None:
        plane = step.plane
        if i in self._injected_faults:
            await self._injected_faults.pop(i).trigger_async()
        episode = self._episodes[i]
        if episode.phase is Phase.HELD:
            return self._store(i, plane, episode.known_row())
        if episode.phase is Phase.DUE:
            observation, info = await beginning.autoreset(self, i)
            return self._store(i, plane, (observation, 0.0, False, False, info))
        begun = clock()
        idle = self._meter.idle_until(begun)
        if episode.phase is Phase.CUT:
            result = episode.known_row()
        else:
            if self._recorder.on:
                self._recorder.add(i, [action])
            if self._fleet is None or self._fleet.plain:
                result = await self._envs[i].step(action)
            else:
                begun, result = await self._fleet.step(i, self._envs[i], action)
            self._meter.spent(self.first + i, result[-1])
        self._meter.timed(self.first + i, clock() - begun, idle)
        self._steps[i] += 1
        if self._filter.active:
            result = self._select(i, result)
        if not (result[2] or result[3]):
            return self._store(i, plane, result)
        if self._rule.resets_now:
            return await beginning.finish_and_reset(self, i, plane, result)
        payload = self._store(i, plane, result)
        episode.end(self._rule, result)
        if self._log:
            payload = payload or Payload()
            payload.nexts[self.first + i] = self._next_start(i)
        return payload

    def _select(self, i: int, result: Any) -> Any:
        observation, reward, terminated, truncated, info = result
        if terminated or truncated:
            info = self._filter.ended(i, info or {}, reward, self._steps[i])
        else:
            (info,) = self._filter.running([info])
        self._filter.add(i, [reward])
        return observation, reward, terminated, truncated, info

    def _store(self, i: int, plane: int, result: Any) -> Payload | None:
        """Write a row; return what does not fit into it."""
        if self._gave_up and asyncio.current_task() is not self._tasks.get(i):
            raise asyncio.CancelledError  # it was given up, and ignored that
        slot = self.first + i
        observation, reward, terminated, truncated, info = result
        objects = self._rows.store(plane, slot, observation, reward, terminated, truncated)
        if objects is not None:
            self._objects.update(objects)
        self._infos[i] = info
        start = self._starts.pop(i, None)
        area = self._rows.plane(plane, self.first, self.stop).infos
        fits = self._writer.put(area, slot, info)
        if fits and objects is None and start is None:
            return None
        infos = {} if fits else {slot: copy_info(info)}
        starts = {} if start is None else {slot: start}
        return Payload(infos=infos, objects=objects or {}, starts=starts)

    _handlers: ClassVar[Mapping[type[Message], Callable[..., Awaitable[Any]]]] = {
        Step: _step,
        Reset: beginning.reset,
        Render: calls.render,
        Call: calls.call,
        GetAttr: calls.get_attr,
        SetAttr: calls.set_attr,
        CloseEnv: calls.close_env,
        InjectFault: calls.inject,
        Recreate: continuing.recreate,
        TakeSnapshot: continuing.take,
        Restore: continuing.restore,
    }

    # ---------------------------------------------------------------- close

    async def close(self) -> list[Failure]:
        """Cancel all tasks, and close every environment, even if others fail."""
        self._closing = True
        # Those that have ended may belong to a loop that is closed, and cannot be awaited.
        tasks = {i: task for i, task in self._tasks.items() if not task.done()}
        leftovers = [task for task in self._leftovers if not task.done()]
        for task in (*tasks.values(), *leftovers):
            task.cancel()
        await asyncio.gather(*leftovers, return_exceptions=True)
        results = await asyncio.gather(*tasks.values(), return_exceptions=True)
        errors = dict(zip(tasks, results, strict=True))
        # Environments without a task, or whose task was cancelled before it began.
        left = [i for i in range(len(self._envs)) if i not in self._closed]
        if self._spares is not None:
            await self._spares.aclose()
        if self._fleet is not None:
            await self._fleet.aclose()
        results = await asyncio.gather(*map(self._close, left), return_exceptions=True)
        errors.update(zip(left, results, strict=True))
        self._envs = []
        return [
            Failure.of(error, self.first + i, "close")
            for i, error in sorted(errors.items())
            if error is not None
        ]


class _Turn:
    """A slot of the concurrency limit, which other tasks may release."""

    def __init__(self, limit: asyncio.Semaphore) -> None:
        self._limit = limit
        self._held = False
        self.waiting = True
        self.waited = 0  # nanoseconds

    async def __aenter__(self) -> None:
        begun = clock()
        await self._limit.acquire()
        self.waited = clock() - begun
        self._held, self.waiting = True, False

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self._held:
            self._held = False
            self._limit.release()
