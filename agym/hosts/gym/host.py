"""EnvHost: runs Gymnasium environments, and is the only code that calls them.

A host makes, steps, resets, renders and closes the environments of one contiguous range, all from
the thread that calls it. The serial backend calls it directly; a worker runs it behind a mailbox.
Coroutine environments have their own host (``hosts/coroutine/``).

::

    host.py         steps, and the rows that they fill
    beginning.py    resets, and what follows an episode's end
    calls.py        renders, calls, attributes
    continuing.py   what a fault or another worker left, and snapshots

The hot loop does only ``append(step(action))`` per environment; everything else works on whole
columns. The loop does not test for an episode's end: instead, another function replaces the
environment's entry in the list of step functions, by the phase of its episode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import compress, count, pairwise
from threading import RLock
from typing import Any, ClassVar

from gymnasium.vector import AutoresetMode

from agym.hosts.base import ALL_INFOS, Factory, Host
from agym.hosts.coroutine.running_env import RunningSlot
from agym.hosts.episode import Phase
from agym.hosts.fleet.setup import FleetSetup, stand_in_key
from agym.hosts.gym import beginning, calls, continuing
from agym.hosts.gym.fleet_calls import FleetCalls
from agym.hosts.gym.owner import OwnerThread
from agym.hosts.gym.spares import SpareThreads
from agym.hosts.rows import REWARD, write_column, write_flag
from agym.hosts.snapshots.codecs import Registered, learn
from agym.hosts.snapshots.replaying import Recorder
from agym.hosts.snapshots.ways import Proof, kind_of, prove
from agym.protocol.infos.policy import InfoPolicy
from agym.protocol.infos.table import FINAL_OBSERVATION
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import (
    Call,
    CloseEnv,
    Export,
    GetAttr,
    Import,
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
from agym.protocol.table import FIRST_BUFFER, Plane, SlotTable
from agym.protocol.typing import Array, Info
from agym.protocol.value_copies import copy_info

StepResult = tuple[Any, Any, Any, Any, Info]


class EnvHost(Host):
    """Runs Gymnasium environments, one after the other."""

    def __init__(
        self,
        factories: Sequence[Factory],
        first: int,
        autoreset: AutoresetMode,
        catch: type[BaseException] = Exception,
        *,
        log: bool = False,
        marker: RunningSlot | None = None,
        guard: AbstractContextManager[None] | None = None,
        infos: InfoPolicy = ALL_INFOS,
        fleet: FleetSetup | None = None,
        closes_within: Callable[[float], bool] | None = None,
    ) -> None:
        """Store the arguments; :class:`~agym.hosts.base.Host` describes most of them.

        ``marker[0]`` is the id of the running environment plus one, else 0. ``guard`` is held while
        rows of the table are written. ``closes_within`` waits for a turn; see
        :class:`~agym.hosts.gym.fleet_calls.FleetCalls`.
        """
        super().__init__(factories, first, autoreset, catch, log=log, infos=infos)
        n = len(factories)
        self._fleet = None if fleet is None else FleetCalls(fleet, first, n, closes_within)
        self._spares: SpareThreads | None = None
        if self._fleet is not None and fleet is not None and fleet.spares:
            self._spares = SpareThreads(self._fleet, factories, fleet.spares, self._make_spare)
        self._marker = marker
        self._timing = False
        self._guard = guard or RLock()  # faster than a null context, and never contended
        self._steps: list[Callable[[Any], StepResult]] = []
        # Steps of the whole range so far, and the count at which each episode began.
        self._rounds = 0
        self._begun = [0] * len(factories)
        # Rows of a plane whose mark (``Plane.unflagged``, ``Plane.blank``) equals this counter have
        # no flag set, or no info. The host increments the counter when it sets one anywhere, so
        # that all rows are rewritten once. Other marks may be those of a previous host.
        self._unflagged = self._blank = 1
        self._payload: Payload | None = None
        # The infos of a step whose caller is in this thread, and takes them as they are; and by
        # environment the last observations and infos of episodes that it ended.
        self._here: list[Info] | None = None
        self._finals: dict[int, tuple[Any, Info]] = {}
        self._closed: set[int] = set()
        # How the latest episodes began, if that is logged.
        self._starts: dict[int, EpisodeStart] = {}
        self._recorder = Recorder(len(factories), on=log)
        self._kinds: dict[int, Any] = {}
        # The environment that is in its ``reset``, to tell what raised.
        self._resetting: int | None = None

    # ---------------------------------------------------------------- life

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        described, failures = super().make()
        self._steps = [] if failures else [*map(self._step_of, range(len(self._envs)))]
        return described, failures

    def _construct(self, factory: Factory) -> Any:
        if self._fleet is None or self._spares is None:
            return factory()
        owner = OwnerThread(stand_in_key(factory))
        self._fleet.owners.append(owner)
        return owner.call(factory)

    def _look_at(self, env: Any) -> Description:
        found = super()._look_at(env)
        if self._fleet is not None:
            self._fleet.check(env)
        return found

    def attach(self, table: SlotTable) -> None:
        super().attach(table)
        if self._fleet is not None:
            self._fleet.attach(table.gauges)

    def _step_of(self, i: int) -> Callable[[Any], StepResult]:
        """Return what steps a running environment."""
        env = self._envs[i]
        return env.step if self._fleet is None else partial(self._fleet.step, i, env)

    def _in_owner(self, i: int, function: Callable[[], Any]) -> Any:
        """Call a function in the thread that owns an environment, while this one waits."""
        if self._fleet is None or not self._fleet.owners:
            return function()
        return self._fleet.owners[i].call(function)

    def close(self) -> list[Failure]:
        """Close every environment, even if others fail. Idempotent."""
        failures = []
        for env_id, env in enumerate(self._envs, self.first):
            if env_id in self._closed:
                continue
            try:
                closing = self._in_owner(env_id - self.first, env.close)
                if inspect.iscoroutine(closing):  # the host refused a coroutine environment
                    closing.close()
            except self._catch as exception:
                failures.append(Failure.of(exception, env_id, "close"))
        self._envs = []
        self._steps = []
        if self._fleet is not None:
            self._fleet.close()
        if self._spares is not None:
            self._spares.close()
        return failures

    # ---------------------------------------------------------------- operations

    def run(self, operation: Operation) -> Completion:
        """Run one operation on its environments; what they raise is in the completion."""
        number, start, stop, message = operation
        # Ctrl-C may have interrupted an earlier operation and left these set.
        self._payload = self._resetting = None
        if isinstance(message, Step):
            payload = self.step(start, stop, message.plane, message.parts)
            return Completion(number, start, stop, payload)
        begun = clock()
        handle = self._handlers[type(message)]
        for k, slot in enumerate(range(start, stop)):
            self._mark(slot)
            try:
                if self._spares is None:
                    value = handle(self, slot, message, k)
                else:
                    run = partial(handle, self, slot, message, k)
                    value = self._in_owner(slot - self.first, run)
                if not message.writes_rows:
                    self._extra.values[slot] = value
            except self._catch as error:
                self._fail(error, slot, message.name)
        self._mark(None)
        self._meter.did(message.name, stop - start, begun)
        return Completion(number, start, stop, self._take_payload())

    def _mark(self, slot: int | None) -> None:
        """Record the running environment, so that a hang or a crash can be attributed."""
        if self._marker is not None:
            self._marker[0] = 0 if slot is None else slot + 1

    def step(
        self, start: int, stop: int, plane: int, each: list[list[Any]] | Array | None = None
    ) -> Payload | None:
        """Step the environments ``start:stop``; return what does not fit into their rows.

        For ``each`` see :meth:`Rows.actions`.
        """
        self._step_range(start, stop, plane, each)
        return self._take_payload() if self._payload or self._writer.new else None

    def step_here(self, plane: int, each: list[list[Any]] | Array | None) -> list[Info] | Payload:
        """Step all environments for a caller in this thread.

        Returns:
            Copies of their infos, which are not in the rows; or, if anything else does not fit into
            the rows either, all that does not.
        """
        infos: list[Info] = [{} for _ in self._envs]
        finals: dict[int, tuple[Any, Info]] = {}
        self._here, self._finals = infos, finals
        try:
            self._step_range(self.first, self.stop, plane, each)
        finally:
            self._here = None
        if not self._payload and not self._writer.new:
            for slot, (observation, final) in finals.items():
                info = infos[slot - self.first]
                info["final_obs"], info["final_info"] = observation, final
            return infos
        self._blank += 1
        for slot, info in enumerate(infos, self.first):
            self._put_info(self._rows.plane(plane, slot, slot + 1), slot, info)
        for slot, (observation, final) in finals.items():
            self._extra.final_infos[slot] = {**final, FINAL_OBSERVATION: observation}
        return self._take_payload() or Payload()

    def _step_range(
        self, start: int, stop: int, plane: int, each: list[list[Any]] | Array | None
    ) -> None:
        width = stop - start
        whole = width == len(self._envs)
        if whole:
            self._rounds += 1
        else:
            for i in range(start - self.first, stop - self.first):
                self._begun[i] -= 1
        self._timing = self._meter.begin(start, stop, whole=whole)
        chunk = self._rows.chunk
        if width <= chunk:
            self._step_chunk(start, stop, plane, each)
        else:
            for low in range(start, stop, chunk):
                high = min(low + chunk, stop)
                part = None if each is None else each[low - start : high - start]
                self._step_chunk(low, high, plane, part)
        self._meter.end(width, timed=self._timing)

    def _step_chunk(
        self, start: int, stop: int, plane: int, each: list[list[Any]] | Array | None
    ) -> None:
        steps = self._steps
        if stop - start < len(steps):
            steps = steps[start - self.first : stop - self.first]
        actions = self._rows.actions(start, stop, each)
        if self._recorder.on:
            self._recorder.add(start - self.first, actions)
        results: list[StepResult] = []
        try:
            if self._timing:
                self._step_timed(steps, actions, start, results)
            elif self._marker is None:
                for step, action in zip(steps, actions):  # noqa: B905
                    results.append(step(action))
            else:
                marker = self._marker
                for mark, step, action in zip(count(start + 1), steps, actions):
                    marker[0] = mark
                    results.append(step(action))
                marker[0] = 0
            self._store(results, start, stop, plane)
        except self._catch as error:
            continuing.step_others(self, error, results, actions, start, stop, plane)

    def _step_timed(
        self,
        steps: Sequence[Callable[[Any], StepResult]],
        actions: Sequence[Any],
        start: int,
        results: list[StepResult],
    ) -> None:
        """Step environments, and time each that is not held."""
        meter = self._meter
        ticks = [clock()]
        for slot, step, action in zip(count(start), steps, actions):
            self._mark(slot)
            results.append(step(action))
            ticks.append(clock())
        self._mark(None)
        idle = meter.idle_until(ticks[0])
        meter.end_timing()
        for slot, (begun, ended) in zip(count(start), pairwise(ticks)):
            if self._episodes[slot - self.first].phase is not Phase.HELD:
                waited = 0 if self._fleet is None else self._fleet.waited[slot - self.first]
                meter.timed(slot, ended - begun - waited, idle)
            idle = 0

    def _store(self, results: Sequence[StepResult], start: int, stop: int, plane: int) -> None:
        """Write results as whole columns, then handle the episodes that ended."""
        rows = self._rows.plane(plane, start, stop)
        infos: Sequence[Info]
        if len(results) == 1:  # quicker than zip, which matters for one environment alone
            ((observation, reward, over_now, cut_now, info),) = results
            observations, rewards, infos = (observation,), (reward,), (info,)
            terminated, truncated = (over_now,), (cut_now,)
        else:
            observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        raw = infos  # before the filter
        done = any(terminated) or any(truncated)
        over = [*compress(count(), terminated)] if done else ()
        cut = [*compress(count(), truncated)] if done else ()
        if self._filter.active:
            infos = self._select(results, infos, start, done=done)
        self._infos[start - self.first : stop - self.first] = infos
        # The marks change first, in case an exception ends the rest.
        if done:
            self._unflagged += 1
        any_info = any(infos)
        if any_info and self._here is None:
            self._blank += 1
        with self._guard:
            objects = self._rows.write(rows.observations, observations, start)
            try:  # write_column's usual case, without its call
                rows.rewards[...] = rewards
            except Exception:
                write_column(rows.rewards, rewards, REWARD)
            if rows.unflagged != self._unflagged:
                rows.terminated[...] = rows.truncated[...] = False
                for k in over:
                    write_flag(rows.terminated, k, terminated[k])
                for k in cut:
                    write_flag(rows.truncated, k, truncated[k])
                if not done and plane < FIRST_BUFFER:  # buffers have other writers
                    rows.unflagged = self._unflagged
            if self._here is not None:
                if any_info:
                    self._here[start - self.first : stop - self.first] = map(_copied, infos)
            elif rows.blank != self._blank:
                for slot, info in enumerate(infos, start):
                    self._put_info(rows, slot, info)
                if not any_info:
                    rows.blank = self._blank
        if objects is not None:
            self._extra.objects.update(objects)
            self._objects.update(objects)
        if any_info or (raw is not infos and any(raw)):
            self._add_costs(start, raw)
        if self._filter.active:
            self._filter.add(start - self.first, rewards)
        if done:
            for k in sorted({*over, *cut}):
                beginning.finish(self, start + k, results[k], infos[k], plane)

    def _add_costs(self, start: int, infos: Sequence[Info]) -> None:
        for slot, info in enumerate(infos, start):
            # That of a reset was added already.
            if "cost" in info and self.steps_of(slot - self.first):
                self._meter.spent(slot, info)

    def _select(
        self, results: Sequence[StepResult], infos: Sequence[Info], start: int, *, done: bool
    ) -> Sequence[Info]:
        running = self._filter.running(infos)
        if not done:
            return running
        selected = [*running]
        for k, (_, reward, terminated, truncated, info) in enumerate(results):
            i = start - self.first + k
            if (terminated or truncated) and self._episodes[i].phase is not Phase.HELD:
                length = self.steps_of(i)
                selected[k] = self._filter.ended(i, info or {}, reward, length)
        return selected

    def _reset_row(self, slot: int, row: Plane, observation: Any, info: dict[str, Any]) -> None:
        self._infos[slot - self.first] = info
        with self._guard:
            objects = self._rows.write(row.observations, [observation], slot)
            if self._here is not None:
                self._here[slot - self.first] = _copied(info)
            else:
                if info:
                    self._blank += 1
                self._put_info(row, slot, info)
        if objects is not None:
            self._extra.objects.update(objects)
            self._objects.update(objects)

    def _put_info(self, rows: Plane, slot: int, info: Info) -> None:
        """Write an info to its row, or else into the payload."""
        if not self._writer.put(rows.infos, slot, info):
            self._extra.infos[slot] = copy_info(info)

    def steps_of(self, i: int) -> int:
        """Return the number of steps of an environment's episode."""
        return self._rounds - self._begun[i]

    def env(self, slot: int) -> Any:
        """Return an environment."""
        return self._envs[slot - self.first]

    def prove(self, codecs: Registered) -> dict[int, list[Proof]]:
        """Prove how to copy each environment, before :meth:`attach`."""
        learn(codecs)
        return {
            self.first + i: prove(env, self.kind_of(i), self._factories[i], self._envs)
            for i, env in enumerate(self._envs)
        }

    def kind_of(self, i: int) -> Any:
        """Return what an environment has in common with others that are copied likewise."""
        factory = self._factories[i]
        if id(factory) not in self._kinds:
            self._kinds[id(factory)] = kind_of(self._envs[i], factory)
        return self._kinds[id(factory)]

    _handlers: ClassVar[Mapping[type[Message], Callable[..., Any]]] = {
        Reset: beginning.reset,
        Render: calls.render,
        Call: calls.call,
        GetAttr: calls.get_attr,
        SetAttr: calls.set_attr,
        CloseEnv: calls.close_env,
        InjectFault: calls.inject,
        Recreate: continuing.recreate,
        Import: continuing.recreate,
        Export: continuing.export,
        TakeSnapshot: continuing.take,
        Restore: continuing.restore,
    }

    # ---------------------------------------------------------------- payload

    @property
    def _extra(self) -> Payload:
        """The payload of the current operation, created on demand: most operations have none."""
        if self._payload is None:
            self._payload = Payload()
        return self._payload

    def _take_payload(self) -> Payload | None:
        if self._writer.new:
            self._extra.schemas = self._writer.take_new()
        payload, self._payload = self._payload, None
        return payload

    def _fail(self, error: BaseException, slot: int, operation: str, action: Any = None) -> None:
        i = slot - self.first
        if self._resetting == i:  # a reset within a step
            operation, self._resetting = "reset", None
        step = self.steps_of(i)
        self._extra.problems.append(self._failure(error, slot, operation, step, action))


def _copied(info: Info) -> Info:
    return copy_info(info) if info else {}
