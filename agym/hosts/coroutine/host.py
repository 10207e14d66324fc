"""CoroutineHost: the only code that calls coroutine environments.

All environments of its range run concurrently, on the event loop that calls it. Each has a queue,
and one task until it is closed (cancel scopes and sessions need that). An environment runs its
operations in order, and completes each by itself::

    begin(operation) --> queue of env i --> task of env i --> report(operation, slot, payload)
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from gymnasium.vector import AutoresetMode

from agym._system.pickling import dumps_by_value
from agym.errors import SnapshotError
from agym.hosts.base import ALL_INFOS, Factory, Host
from agym.hosts.coroutine.fleet_calls import FleetCalls
from agym.hosts.coroutine.running_env import RunningSlot, track_running
from agym.hosts.coroutine.spares import Spare, SpareTasks
from agym.hosts.episode import Phase
from agym.hosts.fault_injection import InjectedFault
from agym.hosts.fleet.setup import FleetSetup
from agym.hosts.fleet.spares import Beginning
from agym.hosts.snapshots.replaying import (
    CUT_OFF,
    OTHER_KIND,
    OTHER_REPLAY,
    UNRECORDED,
    Recorder,
    note_start,
    restore_start,
    same_observation,
)
from agym.hosts.snapshots.ways import Copy, EnvState, WayName
from agym.protocol.attributes import assign, look_up, peek
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
from agym.protocol.messages.resets import EpisodeStart, RestoreSpec, as_keywords, lasting
from agym.protocol.metrics.gauges import clock
from agym.protocol.table import SlotTable
from agym.protocol.value_copies import copy_info, copy_value

Report = Callable[[Operation, int, Payload | None], None]

# Instead of an environment's index, that of a task whose environment is a spare.
NO_PLACE = -1


class CoroutineHost(Host):
    """Runs coroutine environments concurrently."""

    coroutines = True

    def __init__(
        self,
        factories: Sequence[Factory],
        first: int,
        autoreset: AutoresetMode,
        report: Report,
        max_concurrency: int | None = None,
        fatal: tuple[type[BaseException], ...] = (),
        *,
        log: bool = False,
        marker: RunningSlot | None = None,
        infos: InfoPolicy = ALL_INFOS,
        fleet: FleetSetup | None = None,
    ) -> None:
        """Store the arguments; :class:`~agym.hosts.base.Host` describes most of them.

        An environment calls ``report`` on completion. At most ``max_concurrency`` run at once.
        ``fatal`` exceptions end the loop; all others are failures of the environment. ``marker[0]``
        is the id of the running environment plus one, else 0.
        """
        self._marker = marker
        super().__init__(factories, first, autoreset, catch=BaseException, log=log, infos=infos)
        self._report = report
        self._concurrency = max_concurrency
        self._limit: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fatal: tuple[type[BaseException], ...] = (GeneratorExit, *fatal)
        n = len(factories)
        self._fleet = None if fleet is None else FleetCalls(fleet, first, marker)
        self._spares: SpareTasks | None = None
        if self._fleet is not None and fleet is not None and fleet.spares:
            self._spares = SpareTasks(
                self._fleet, factories, fleet.spares, self._make_spare, _close,
                partial(self._run_task, NO_PLACE),
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
                self._tasks[i] = task = self._running_loop().create_task(self._run_task(i))
                # asyncio would complain about an idle task that is destroyed with its loop.
                task._log_destroy_pending = False  # type: ignore[attr-defined]

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
                        self._reset_ahead(spares, i)
                        i = NO_PLACE
                else:
                    self._idle[i] = idle = loop.create_future()
                    await idle
        if self._closing and task is self._tasks.get(i):
            await self._close(i)

    async def _close(self, i: int) -> None:
        if i in self._closed:
            return
        self._closed.add(i)
        await _close(self._envs[i])

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
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            problem: BaseException = error  # raised by the environment itself
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
        step = self._steps[i] + stepping  # the failed one was not counted
        return Payload(problems=[self._failure(problem, slot, name, step, action)])

    async def _reset(self, i: int, reset: Reset, seed: int | None) -> Payload | None:
        if seed is not None:
            self._episodes[i].seed = seed
        self._episodes[i].options = lasting(reset.options)
        keywords = as_keywords(reset.options, self.first + i)
        if self._spares is None:
            keywords = copy.deepcopy(keywords)
            observation, info = await self._begin_episode(i, seed=seed, **keywords)
        else:
            beginning = self._beginning(i, seed, keywords.get("options"))
            observation, info = await self._begin_with_spares(i, self._spares, beginning)
        return self._store(i, reset.plane, (observation, 0.0, False, False, info))

    async def _step(self, i: int, step: Step, action: Any) -> Payload | None:
        plane = step.plane
        if i in self._injected_faults:
            await self._injected_faults.pop(i).trigger_async()
        episode = self._episodes[i]
        if episode.phase is Phase.HELD:
            return self._store(i, plane, episode.known_row())
        if episode.phase is Phase.DUE:
            observation, info = await self._autoreset(i)
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
            return await self._finish_and_reset(i, plane, result)
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

    async def _finish_and_reset(self, i: int, plane: int, result: Any) -> Payload | None:
        """Same-step autoreset: store the final observation and info, then reset."""
        slot = self.first + i
        final_observation = copy_value(result[0])
        final_info = self._rows.with_final(copy_info(result[4]), final_observation)
        observation, info = await self._autoreset(i)
        payload = self._store(i, plane, (observation, *result[1:4], info))
        row = self._rows.plane(plane, slot, slot + 1)
        final_objects = self._rows.write(row.final, [final_observation], slot)
        fits = self._writer.put(row.final_infos, slot, final_info)
        if fits and not final_objects:
            return payload
        payload = payload or Payload()
        payload.final_objects.update(final_objects or {})
        if not fits:
            payload.final_infos[slot] = final_info
        return payload

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

    async def _begin_episode(self, i: int, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        env = self._envs[i]
        arguments = self._seeded(i, arguments)
        self._note_begin(i)
        self._resetting[i] = True
        if self._recorder.on:
            self._note_start(i, note_start(env, arguments))
        if self._fleet is None:
            observation, info = await env.reset(**arguments)
        else:
            observation, info = await self._fleet.reset(i, env, arguments)
        self._resetting[i] = False
        return observation, self._first_info(i, info)

    async def _begin_with_spares(
        self, i: int, spares: SpareTasks, beginning: Beginning
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with a spare, if one was reset ahead for it."""
        episode = self._episodes[i]
        episode.lineage, episode.reseed = beginning.lineage, None
        # A failed episode begins again in the environment that is in place, which is a fresh one.
        again = episode.retry is not None
        begun = None if again else await spares.begin(i, beginning, self._envs[i])
        if begun is None:
            arguments = copy.deepcopy(beginning.arguments())
            observation, info = await self._begin_episode(i, **arguments)
            self._reset_ahead(spares, i)
        else:
            (start, observation, info), self._envs[i] = begun
            self._note_begin(i)
            if self._recorder.on:
                self._note_start(i, start)
            info = self._first_info(i, info)
        return observation, info

    def _reset_ahead(self, spares: SpareTasks, i: int) -> None:
        """Reset idle spares ahead, now that an episode of environment ``i`` has begun."""
        steps, episodes = self._steps, self._episodes
        spares.reset_ahead(
            i, lambda k: steps[k] if episodes[k].number else -1, self._next_beginning
        )

    def _note_begin(self, i: int) -> None:
        self._episodes[i].begin()
        self._meter.begin_episode(self.first + i)
        self._steps[i] = 0

    def _note_start(self, i: int, start: EpisodeStart) -> None:
        start = start._replace(lineage=self._episodes[i].lineage)
        self._recorder.begin(i, start)
        if self._log:
            self._starts[i] = start

    def _first_info(self, i: int, info: dict[str, Any]) -> dict[str, Any]:
        self._meter.spent(self.first + i, info)
        if self._filter.active:
            self._filter.begin(i)
            (info,) = self._filter.running([info])
        return info

    async def _autoreset(self, i: int) -> tuple[Any, dict[str, Any]]:
        """Reset with the same options, but no seed, so that the random stream continues."""
        if self._spares is not None:
            return await self._begin_with_spares(i, self._spares, self._next_beginning(i))
        options = self._episodes[i].options
        arguments = {} if options is None else {"options": copy.deepcopy(options)}
        return await self._begin_episode(i, **arguments)

    # ---------------------------------------------------------------- calls and attributes

    async def _render(self, i: int, message: Render, _: None) -> Any:
        return self.frames.keep(await self._call(i, Call("render"), None))

    async def _call(self, i: int, call: Call, _: None) -> Any:
        """Call a method, which may be a coroutine."""
        value = look_up(self._envs[i], call.method)
        if callable(value):
            value = value(*call.positional, **(call.keywords or {}))
        return await value if inspect.isawaitable(value) else value

    async def _get_attr(self, i: int, message: GetAttr, _: None) -> Any:
        return peek(self._envs[i], message.attribute)

    async def _set_attr(self, i: int, message: SetAttr, value: Any) -> Any:
        return assign(self._envs[i], message.attribute, value, create=message.create)

    async def _close_env(self, i: int, message: CloseEnv, _: None) -> None:
        await self._close(i)

    # ---------------------------------------------------------------- snapshots

    async def _take(self, i: int, message: TakeSnapshot, plane: int) -> EnvState | str:
        """Return an environment's state, or why it cannot be had."""
        env = self._envs[i]
        if self._episodes[i].phase is Phase.CUT:
            return CUT_OFF
        name: WayName
        data: Any
        if all(callable(getattr(env, name, None)) for name in ("snapshot", "restore")):
            name, detail = "coroutine", f"what {type(env).__name__}.snapshot returns"
            try:
                data = dumps_by_value(await env.snapshot())  # so that nothing can change it
            except (TypeError, pickle.PicklingError) as error:
                return f"{detail} cannot be pickled: {error}"
        else:
            why = (
                f"{type(env).__name__} has no `async def snapshot(self)` and `restore(self, state)`"
            )
            name, detail, data = "replay", f"its actions, since {why}", self._recorder.of(i)
            if data is None:
                self._recorder.on = True
                return f"{why}. {UNRECORDED}"
        return self._state(i, Copy(name, detail, data), self._steps[i], plane)

    async def _restore(self, i: int, message: Restore, state: EnvState) -> Payload | None:
        """Continue from a state."""
        await self._continue_from(i, state)
        (info,) = self._filter.running([state.info])
        return self._store(i, message.plane, (state.observation, 0.0, *state.flags, info))

    async def _continue_from(self, i: int, state: EnvState) -> None:
        """Set the state of an environment, and its host's record of it."""
        env, state = self._envs[i], state.unpacked()
        if state.way == "replay":
            observation, _ = await env.reset(**copy.deepcopy(restore_start(env, state.data.start)))
            for action in state.data.actions:
                observation, *_ = await env.step(action)
            if not same_observation(self._layout, observation, state.observation):
                raise SnapshotError(OTHER_REPLAY)
            self._recorder.set(i, state.data)
        elif state.way != "coroutine":
            raise SnapshotError(OTHER_KIND.format(state.detail))
        else:
            await env.restore(pickle.loads(state.data))
            self._recorder.set(i, None)
        self._episodes[i], self._steps[i] = state.episode.copy(), state.steps
        self._filter.resume(i, state.statistics)

    # ---------------------------------------------------------------- after a fault

    async def _inject_fault(self, i: int, message: InjectFault, fault: InjectedFault) -> None:
        self._injected_faults[i] = fault

    async def _recreate(self, i: int, message: Recreate, restore: RestoreSpec | None) -> str | None:
        """Replace an environment; see :func:`agym.hosts.gym.continuing.recreate`."""
        if restore is None:
            return ""
        if restore.used:
            closing = self._running_loop().create_task(self._close_quietly(self._envs[i]))
            self._track_leftover(closing)
            self._envs[i] = self._make_again(i)
        self._import_env(i, restore)
        self._steps[i], self._resetting[i] = 0, False
        self._injected_faults.pop(i, None)
        reason = None
        if restore.over is not None:
            self._episodes[i].end(self._rule, (restore.observation, 0.0, *restore.over, {}))
            reason = ""
        elif restore.start is not None:
            reason = await self._replay(i, restore, restore.start)
        if reason != "":
            self._episodes[i].cut_off(restore.observation)
            self._filter.cut(i)
        return reason

    async def _close_quietly(self, env: Any) -> None:
        try:
            await _close(env)
        except asyncio.CancelledError:
            raise
        except self._fatal:
            raise
        except BaseException:
            return

    async def _replay(self, i: int, restore: RestoreSpec, start: EpisodeStart | EnvState) -> str:
        """Replay an episode; see ``agym.hosts.gym.continuing``."""
        env, episode = self._envs[i], self._episodes[i]
        reseed, episode.reseed = episode.reseed, None
        try:
            if isinstance(start, EnvState):
                await self._continue_from(i, start)
                observation, episode = start.observation, self._episodes[i]
            else:
                observation, _ = await env.reset(**copy.deepcopy(restore_start(env, start)))
                episode.lineage = start.lineage
                self._filter.begin(i)
            for action in restore.actions:
                result = await env.step(action)
                self._steps[i] += 1
                self._filter.add(i, result[1:2])
                observation = result[0]
                if result[2] or result[3]:
                    episode.end(self._rule, result)
                    break
            if same_observation(self._layout, observation, restore.observation):
                return ""
            reason = "its replay came to another observation"
        except self._fatal:
            raise
        except Exception as error:
            reason = f"its replay raised {type(error).__name__}"
        self._import_env(i, restore)
        self._episodes[i].reseed = reseed
        return reason

    _handlers: ClassVar[Mapping[type[Message], Callable[..., Awaitable[Any]]]] = {
        Step: _step,
        Reset: _reset,
        Render: _render,
        Call: _call,
        GetAttr: _get_attr,
        SetAttr: _set_attr,
        CloseEnv: _close_env,
        InjectFault: _inject_fault,
        Recreate: _recreate,
        TakeSnapshot: _take,
        Restore: _restore,
    }

    # ---------------------------------------------------------------- close

    async def close(self) -> list[Failure]:
        """Cancel all tasks, and close every environment, even if others fail."""
        self._closing = True
        for task in self._tasks.values():
            task.cancel()
        for task in self._leftovers:
            task.cancel()
        await asyncio.gather(*self._leftovers, return_exceptions=True)
        results = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        errors = dict(zip(self._tasks, results, strict=True))
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


async def _close(env: Any) -> None:
    close = getattr(env, "close", None)
    if close is not None:
        done = close()
        if inspect.isawaitable(done):
            await done
