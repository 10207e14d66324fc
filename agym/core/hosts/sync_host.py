"""SyncHost: runs Gymnasium environments, and is the only code that calls them.

A host makes, steps, resets, renders and closes the environments of one contiguous range, all from
the thread that calls it. The serial backend calls it directly; a worker runs it behind a mailbox.

The hot loop does only ``append(step(action))`` per environment; everything else works on whole
columns. The loop does not check for an episode's end. Instead, a function that drives a program of
the environment's slot (``hosts/slot.py``) replaces its entry in the list of step functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress, count, pairwise
from typing import Any

from agym.core.hosts.base import Host
from agym.core.hosts.episode import Phase
from agym.core.hosts.rows import REWARD, Extra, StepResult, copied, write_column, write_flag
from agym.core.hosts.slot import PROGRAMS, Program, Slot, Stopped, T, close_env
from agym.core.hosts.states.codecs import Registered, learn
from agym.core.hosts.states.ways import Proof
from agym.core.protocol.infos.info_table import FINAL_INFO, FINAL_OBSERVATION
from agym.core.protocol.messages.completions import Completion, Description, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Operation, Step
from agym.core.protocol.metrics.gauges import clock
from agym.core.protocol.table import FIRST_BUFFER
from agym.core.protocol.typing import Array, Info


def drive(program: Program[T]) -> T:
    """Run a program: call what it yields, and return what it returns."""
    try:
        function = next(program)
        while True:
            try:
                answer = function()
            except StopIteration as error:
                function = program.throw(Stopped(error))
            except BaseException as error:
                function = program.throw(error)
            else:
                function = program.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value
    except Stopped as stopped:
        raise stopped.error from None


class SyncHost(Host):
    """Runs Gymnasium environments, one after another."""

    _timing = False

    # Shared by all environments, which complete their operations together.
    _extra: Extra

    # The function that steps each environment, by the phase of its episode.
    _steps: list[Callable[[Any], StepResult]]

    # ---------------------------------------------------------------- life

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        described, failures = super().make()
        self._extra = Extra()
        for slot in self.shared.slots:
            slot.extra = self._extra
        self._steps = [*map(self._step_of, self.shared.slots)]
        return described, failures

    def _step_of(self, slot: Slot) -> Callable[[Any], StepResult]:
        """Return the function for the next step of an environment."""
        running = slot.episode.phase is Phase.RUNNING and slot.fault is None
        if running and self.shared.turns is None:
            step: Callable[[Any], StepResult] = slot.env.step
            return step
        return partial(self._step_by_program, slot)

    def _step_by_program(self, slot: Slot, action: Any) -> StepResult:
        if slot.episode.phase is Phase.DUE and slot.fault is None:
            # Does the same as the program in half of the time: fast environments reset often.
            result = slot.started(slot.restart_episode()())
        else:
            result = drive(slot.step(action))
        self._steps[slot.i] = self._step_of(slot)
        return result

    def close(self) -> list[Failure]:
        """Close every environment, even if others fail. Idempotent."""
        failures = []
        for slot in self.shared.slots:
            try:
                closing = drive(slot.close())
                if inspect.iscoroutine(closing):  # the host refused a coroutine environment
                    closing.close()
            except self.catch as exception:
                failures.append(Failure.of(exception, slot.id, "close"))
        self.shared.slots, self._steps = [], []
        return failures

    def _discard(self, env: Any) -> None:
        with suppress(self.catch):
            drive(close_env(env))

    def prove(self, codecs: Registered) -> dict[int, Proof]:
        """Prove how to copy each environment, before :meth:`attach`."""
        learn(codecs)
        return {slot.id: slot.prove() for slot in self.shared.slots}

    # ---------------------------------------------------------------- operations

    def run(self, operation: Operation) -> Completion:
        """Run one operation on its environments; their exceptions are in the completion."""
        number, start, stop, message = operation
        self._extra.made = None  # Ctrl-C may have interrupted an earlier operation
        if isinstance(message, Step):
            payload = self.step(start, stop, message.plane, message.parts)
            return Completion(number, start, stop, payload)
        started = clock()
        program = PROGRAMS[type(message)]
        for k, slot in enumerate(self._range(start, stop)):
            self._mark(slot.id)
            slot.resetting = False
            try:
                value = drive(program(slot, message, k))
                if not message.writes_rows:
                    self._extra.payload.values[slot.id] = value
            except self.catch as error:
                self._fail(error, slot, message.name)
            finally:
                self._steps[slot.i] = self._step_of(slot)
        self._mark(None)
        self.shared.meter.did(message.name, stop - start, started)
        return Completion(number, start, stop, self._extra.take(self.shared.results.writer))

    def _range(self, start: int, stop: int) -> list[Slot]:
        return self.shared.slots[start - self.first : stop - self.first]

    def _mark(self, env_id: int | None) -> None:
        """Record the running environment, so that a hang or a crash can be attributed."""
        if self.marker is not None:
            self.marker[0] = 0 if env_id is None else env_id + 1

    def _fail(self, error: BaseException, slot: Slot, operation: str, action: Any = None) -> None:
        self._extra.payload.problems.append(self._failure(error, slot, operation, action))

    # ---------------------------------------------------------------- steps

    def step(
        self, start: int, stop: int, plane: int, each: list[list[Any]] | Array | None = None
    ) -> Payload | None:
        """Step the environments ``start:stop``; return the payload that does not fit into the rows.

        For ``each``, see :meth:`Rows.actions`.
        """
        self._step_range(start, stop, plane, each)
        writer = self.shared.results.writer
        return self._extra.take(writer) if self._extra.made is not None or writer.new else None

    def step_here(self, plane: int, each: list[list[Any]] | Array | None) -> list[Info] | Payload:
        """Step all environments for a caller in this thread.

        Returns:
            Copies of their infos, which are then not in the rows; or, if anything else does not fit
            into the rows, the whole payload.
        """
        results, extra = self.shared.results, self._extra
        extra.made = None
        infos: list[Info] = [{} for _ in self._steps]
        finals: dict[int, tuple[Any, Info]] = {}
        results.here, results.finals = infos, finals
        try:
            self._step_range(self.first, self.stop, plane, each)
        finally:
            results.here = None
        if extra.made is None and not results.writer.new:
            for env_id, (observation, final) in finals.items():
                info = infos[env_id - self.first]
                info["final_obs"], info["final_info"] = observation, final
            return infos
        results.blank += 1
        area = results.table.planes[plane].infos
        for env_id, (observation, final) in finals.items():
            infos[env_id - self.first][FINAL_INFO] = {**final, FINAL_OBSERVATION: observation}
        for env_id, info in enumerate(infos, self.first):
            results.put_info(area, env_id, info, extra)
        return extra.take(results.writer) or Payload()

    def _step_range(
        self, start: int, stop: int, plane: int, each: list[list[Any]] | Array | None
    ) -> None:
        shared, width = self.shared, stop - start
        whole = width == len(self._steps)
        if whole:
            shared.rounds += 1
        else:
            for slot in self._range(start, stop):
                slot.count_step()
        self._timing = shared.meter.start(start, stop, whole=whole)
        chunk = shared.results.chunk
        if width <= chunk:
            self._step_chunk(start, stop, plane, each)
        else:
            for low in range(start, stop, chunk):
                high = min(low + chunk, stop)
                part = None if each is None else each[low - start : high - start]
                self._step_chunk(low, high, plane, part)
        shared.meter.end(width, timed=self._timing)

    def _step_chunk(
        self, start: int, stop: int, plane: int, each: list[list[Any]] | Array | None
    ) -> None:
        shared, steps = self.shared, self._steps
        if stop - start < len(steps):
            steps = steps[start - self.first : stop - self.first]
        actions = shared.results.actions(start, stop, each)
        if shared.recording:
            for slot, action in zip(self._range(start, stop), actions, strict=True):
                slot.record_action(action)
        results: list[StepResult] = []
        try:
            if self._timing:
                self._step_timed(steps, actions, start, results)
            elif self.marker is None:
                for step, action in zip(steps, actions):  # noqa: B905
                    results.append(step(action))
            else:
                marker = self.marker
                for mark, step, action in zip(count(start + 1), steps, actions):
                    marker[0] = mark
                    results.append(step(action))
                marker[0] = 0
            self._store(results, start, stop, plane)
        except self.catch as error:
            self._step_others(error, results, actions, start, stop, plane)

    def _step_timed(
        self,
        steps: Sequence[Callable[[Any], StepResult]],
        actions: Sequence[Any],
        start: int,
        results: list[StepResult],
    ) -> None:
        """Step environments, and time each step that neither resets nor is on hold."""
        meter = self.shared.meter
        slots = self._range(start, start + len(steps))
        phases = [slot.episode.phase for slot in slots]
        ticks = [clock()]
        for env_id, step, action in zip(count(start), steps, actions):
            self._mark(env_id)
            results.append(step(action))
            ticks.append(clock())
        self._mark(None)
        idle = meter.idle_until(ticks[0])
        meter.end_timing()
        for slot, phase, (started, ended) in zip(slots, phases, pairwise(ticks), strict=True):
            if phase is Phase.RUNNING or phase is Phase.CUT:
                meter.timed(slot.id, ended - started - slot.waited, idle)
            idle = 0

    def _step_others(
        self,
        error: BaseException,
        results: list[StepResult],
        actions: Sequence[Any],
        start: int,
        stop: int,
        plane: int,
    ) -> None:
        """Continue one environment at a time after one raised, so that the others also step."""
        written = self.shared.results
        written.unflagged += 1  # the engine decides about rows of environments that failed
        written.blank += 1
        slots = self._range(start, stop)
        rescued: list[StepResult | None] = [*results]
        if len(results) < stop - start:
            self._fail(error, slots[len(results)], "step", actions[len(results)])
            rescued.append(None)
        for slot, action in zip(slots[len(rescued) :], actions[len(rescued) :], strict=True):
            self._mark(slot.id)
            try:
                rescued.append(self._steps[slot.i](action))
            except self.catch as another:
                if another.__context__ is error:  # the two are unrelated
                    another.__context__ = None
                self._fail(another, slot, "step", action)
                rescued.append(None)
        self._mark(None)
        for slot, result, action in zip(slots, rescued, actions, strict=True):
            if result is not None:
                try:
                    self._store([result], slot.id, slot.id + 1, plane)
                except self.catch as misfit:  # the result does not fit the space
                    self._fail(misfit, slot, "step", action)

    def _store(self, results: Sequence[StepResult], start: int, stop: int, plane: int) -> None:
        """Write results as whole columns, then handle the episodes that ended."""
        shared, written = self.shared, self.shared.results
        rows = written.plane(plane, start, stop)
        infos: Sequence[Info]
        if len(results) == 1:  # faster than zip, which matters for a single environment
            ((observation, reward, over_now, cut_now, info),) = results
            observations, rewards, infos = (observation,), (reward,), (info,)
            terminated, truncated = (over_now,), (cut_now,)
        else:
            observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        raw = infos  # not filtered
        done = any(terminated) or any(truncated)
        over = [*compress(count(), terminated)] if done else ()
        cut = [*compress(count(), truncated)] if done else ()
        if shared.filter.active:
            infos = shared.filter.running(infos)
            if done:
                infos = [*map(Slot.select_info, self._range(start, stop), results)]
        low, high = start - self.first, stop - self.first
        written.infos[low:high] = infos
        # Change the marks before writing. If Ctrl-C or an exception interrupts the writes, the rows
        # then count as unknown, and the next step writes all of their flags and infos.
        if done:
            written.unflagged += 1
        any_info = any(infos)
        if any_info and written.here is None:
            written.blank += 1
        with written.guard:
            objects = written.write(rows.observations, observations, start)
            try:  # the usual case of write_column, without the call
                rows.rewards[...] = rewards
            except Exception:
                write_column(rows.rewards, rewards, REWARD)
            if rows.unflagged != written.unflagged:
                rows.terminated[...] = rows.truncated[...] = False
                for k in over:
                    write_flag(rows.terminated, k, terminated[k])
                for k in cut:
                    write_flag(rows.truncated, k, truncated[k])
                if not done and plane < FIRST_BUFFER:  # step buffers have other writers
                    rows.unflagged = written.unflagged
            if written.here is not None:
                if any_info:
                    written.here[low:high] = map(copied, infos)
            elif rows.blank != written.blank:
                for env_id, info in enumerate(infos, start):
                    written.put_info(rows.infos, env_id, info, self._extra)
                if not any_info:
                    rows.blank = written.blank
        if objects is not None:
            written.note_objects(objects, self._extra)
        if any_info or (raw is not infos and any(raw)):
            for slot, info in zip(self._range(start, stop), raw, strict=True):
                if "cost" in info and slot.steps:  # a reset's cost was added already
                    shared.meter.spent(slot.id, info)
        if shared.filter.active:
            shared.filter.add(low, rewards)
        if done:
            for k in sorted({*over, *cut}):
                self._end_episode(shared.slots[low + k], results[k], infos[k], plane)
            self._mark(None)

    def _end_episode(self, slot: Slot, result: StepResult, info: Info, plane: int) -> None:
        if self.marker is not None:
            self._mark(slot.id)
        try:
            program = slot.end(result, info, plane)
            if program is not None:
                drive(program)
        except self.catch as error:
            self._fail(error, slot, "reset")
        self._steps[slot.i] = self._step_of(slot)
