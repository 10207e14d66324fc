"""EnvHost: the only code that touches an environment.

A host makes, steps, resets, renders and closes the environments of one contiguous range, all
from the thread that calls it. Serial calls it directly; a worker runs it behind a mailbox.

The hot loop does nothing per environment but ``append(step(action))``: what follows an
episode's end is not a test in the loop but another function in its place in the list of step
functions (:meth:`EnvHost._reset_step`, :func:`_hold_step`), and everything else works on whole columns.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from agym.core.attributes import assign, look_up, peek
from agym.core.autoreset import AtEnd, at_end
from agym.core.layout import Layout
from agym.core.operations import Description, Extras, Failure, Operation, Outcome
from agym.core.slots import Plane, SlotTable, write_rows
from agym.errors import UsageError

Factory = Callable[[], gymnasium.Env[Any, Any]]
Step = tuple[Any, Any, Any, Any, dict[str, Any]]

# Observations are copied while they are still in the cache: after so many bytes of them.
CHUNK_BYTES = 64 * 1024


class EnvHost:
    """The environments ``first : first + len(factories)``, from construction to close."""

    def __init__(
        self,
        factories: Sequence[Factory],
        first: int,
        autoreset: AutoresetMode,
        catch: type[BaseException] = Exception,
    ) -> None:
        """Remember what to make; :meth:`make` makes it.

        Args:
            factories: One per environment.
            first: Id of the first environment.
            autoreset: What follows an episode's end.
            catch: What an environment may raise without ending the host: ``Exception`` where
                the caller's own Ctrl-C can arrive inside a step, else ``BaseException``.
        """
        self.first = first
        self.stop = first + len(factories)
        self._factories = factories
        self._at_end = at_end(autoreset)
        self._catch = catch
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._steps: list[Callable[[Any], Step]] = []
        n = len(factories)
        self._seeds: list[int | None] = [None] * n
        self._options: list[dict[str, Any] | None] = [None] * n
        self._episodes = [0] * n
        # Steps of the whole range so far, and the count at which each episode began.
        self._rounds = 0
        self._begun = [0] * n
        self._extras = Extras()

    # ---------------------------------------------------------------- life

    def make(self) -> tuple[Description | None, list[Failure]]:
        """Construct the environments.

        Returns:
            What the first one is like, and the failures: constructors that raised, and
            environments whose spaces differ from the first one's.
        """
        failures = []
        description = None
        for env_id, factory in enumerate(self._factories, self.first):
            try:
                env = factory()
                self._envs.append(env)
                found = _describe(env)
                description = description or found
                mismatch = description.mismatch(found)
                if mismatch is not None:
                    raise UsageError(mismatch)
            except self._catch as exception:
                failures.append(Failure.of(exception, env_id, "make"))
                break  # the others would only fail alike, and are not needed any more
        self._steps = [env.step for env in self._envs]
        return description, failures

    def layouts(self) -> tuple[Layout, Layout]:
        """Lay out observations and actions, as the engine does from the description."""
        return Layout(self._envs[0].observation_space), Layout(self._envs[0].action_space)

    def attach(self, table: SlotTable) -> None:
        """Take the table whose rows this host fills."""
        self._table = table
        self._whole = [plane.rows(self.first, self.stop) for plane in table.planes]
        row_bytes = sum(block[0].nbytes for block in table.planes[0].observations)
        self._chunk = max(1, CHUNK_BYTES // max(1, row_bytes))

    def close(self) -> list[Failure]:
        """Close every environment, whatever the others do. Closing twice does nothing."""
        failures = []
        for env_id, env in enumerate(self._envs, self.first):
            try:
                env.close()
            except self._catch as exception:
                failures.append(Failure.of(exception, env_id, "close"))
        self._envs = []
        self._steps = []
        return failures

    # ---------------------------------------------------------------- operations

    def run(self, operation: Operation) -> Outcome:
        """Do one operation on the environments that it names; nothing they raise gets out."""
        number, kind, start, stop = operation[:4]
        extras = self._extras
        if kind == "step":
            self._count(start, stop)
            for low in range(start, stop, self._chunk):
                self._step(operation.part(low, min(low + self._chunk, stop)), extras)
        elif kind == "reset":
            self._reset(operation, extras)
        else:
            self._ask(operation, extras)
        if not extras:
            return Outcome(number, start, stop)
        self._extras = Extras()
        return Outcome(number, start, stop, extras)

    def _count(self, start: int, stop: int) -> None:
        """Count a step of each: one addition for the whole range, which is the usual case."""
        if stop - start == len(self._envs):
            self._rounds += 1
        else:
            for i in range(start - self.first, stop - self.first):
                self._begun[i] -= 1

    def _step(self, operation: Operation, extras: Extras) -> None:
        start = operation.start
        steps = self._steps[start - self.first : operation.stop - self.first]
        actions = self._actions(operation)
        results: list[Step] = []
        append = results.append
        spoilt = False
        while len(results) < len(steps):
            done = len(results)
            try:
                for step, action in zip(steps[done:], actions[done:], strict=True):
                    append(step(action))
            except self._catch as exception:
                i = len(results)
                self._fail(exception, start + i, "step", extras, actions[i])
                append(_NOTHING)
                spoilt = True
        rows = self._rows(operation)
        if spoilt:
            self._store_each(operation, rows, results, extras)
            return
        try:
            observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
            self._write(rows.observations, observations, start, extras.objects)
            rows.rewards[:] = rewards
            rows.terminated[:] = terminated
            rows.truncated[:] = truncated
            if any(infos):
                for slot, info in enumerate(infos, start):
                    if info:
                        extras.infos[slot] = dict(info)
        except self._catch:
            # Some environment returned what its space does not hold: find out which.
            self._store_each(operation, rows, results, extras)
            return
        if any(terminated) or any(truncated):
            for i, (ended, cut) in enumerate(zip(terminated, truncated, strict=True)):
                if ended or cut:
                    self._finish(start + i, operation, results[i], extras)

    def _store_each(
        self, operation: Operation, rows: Plane, results: list[Step], extras: Extras
    ) -> None:
        """Store results one by one, so that a bad one spoils no other."""
        for i, result in enumerate(results):
            if result is _NOTHING:
                continue
            slot = operation.start + i
            one = rows.rows(i, i + 1)
            try:
                observation, reward, terminated, truncated, info = result
                self._write(one.observations, [observation], slot, extras.objects)
                one.rewards[0] = reward
                one.terminated[0] = terminated
                one.truncated[0] = truncated
                if info:
                    extras.infos[slot] = dict(info)
            except self._catch as exception:
                self._fail(exception, slot, "step", extras)
                continue
            if terminated or truncated:
                self._finish(slot, operation, result, extras)

    def _finish(self, slot: int, operation: Operation, result: Step, extras: Extras) -> None:
        """An episode ended with ``result``: do now, or arrange for, what follows."""
        i = slot - self.first
        if type(self._steps[i]) is partial:
            return  # it holds still already
        try:
            if self._at_end is AtEnd.RESET_NEXT:
                self._steps[i] = partial(self._reset_step, i)
            elif self._at_end is AtEnd.HOLD:
                # A copy, since the environment may reuse its arrays.
                held = (copy.deepcopy(result[0]), 0.0, result[2], result[3], {})
                self._steps[i] = partial(_hold_step, held)
            else:
                row = slot - operation.start
                one = self._rows(operation).rows(row, row + 1)
                self._write(one.final, [result[0]], slot, extras.final_objects)
                if extras.infos.pop(slot, None):
                    extras.final_infos[slot] = dict(result[4])
                observation, info = self._begin_again(i)
                self._write(one.observations, [observation], slot, extras.objects)
                if info:
                    extras.infos[slot] = dict(info)
        except self._catch as exception:
            self._fail(exception, slot, "reset", extras)

    def _reset_step(self, i: int, _action: Any) -> Step:
        """Stand in for the step after a finished episode: reset, and ignore the action."""
        observation, info = self._begin_again(i)
        return observation, 0.0, False, False, info

    def _reset(self, operation: Operation, extras: Extras) -> None:
        rows = self._rows(operation)
        rows.rewards[:] = 0.0
        rows.terminated[:] = False
        rows.truncated[:] = False
        seeds = operation.each or [None] * (operation.stop - operation.start)
        for row, seed in enumerate(seeds):
            slot = operation.start + row
            i = slot - self.first
            if seed is not None:
                self._seeds[i] = seed
            self._options[i] = operation.shared
            try:
                options = copy.deepcopy(operation.shared)
                observation, info = self._begin(i, {"seed": seed, "options": options})
                blocks = [block[row : row + 1] for block in rows.observations]
                self._write(blocks, [observation], slot, extras.objects)
                if info:
                    extras.infos[slot] = dict(info)
            except self._catch as exception:
                self._fail(exception, slot, "reset", extras)

    def _begin(self, i: int, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._steps[i] = self._envs[i].step
        self._episodes[i] += 1
        self._begun[i] = self._rounds
        observation, info = self._envs[i].reset(**arguments)
        return observation, info

    def _begin_again(self, i: int) -> tuple[Any, dict[str, Any]]:
        """Reset by itself: no seed, so that its random stream goes on, but the same options."""
        options = self._options[i]
        return self._begin(i, {} if options is None else {"options": copy.deepcopy(options)})

    def _ask(self, operation: Operation, extras: Extras) -> None:
        """Render, call, or look up: each environment answers with a value."""
        for slot in range(operation.start, operation.stop):
            env = self._envs[slot - self.first]
            try:
                if operation.kind == "render":
                    value: Any = env.render()
                elif operation.kind == "call":
                    name, arguments, keywords = operation.shared
                    value = look_up(env, name)
                    value = value(*arguments, **keywords) if callable(value) else value
                elif operation.kind == "get_attr":
                    value = peek(env, operation.shared)
                else:
                    assert operation.kind == "set_attr" and operation.each is not None
                    value = assign(env, operation.shared, operation.each[slot - operation.start])
                extras.values[slot] = value
            except self._catch as exception:
                self._fail(exception, slot, operation.kind, extras)

    # ---------------------------------------------------------------- rows

    def _rows(self, operation: Operation) -> Plane:
        if operation.start == self.first and operation.stop == self.stop:
            return self._whole[operation.plane]
        return self._table.planes[operation.plane].rows(operation.start, operation.stop)

    def _actions(self, operation: Operation) -> Sequence[Any]:
        """One action per environment, out of the table: an environment may keep what it got."""
        start, stop = operation.start, operation.stop
        layout = self._table.action
        blocks = [block[start:stop].copy() for block in self._table.actions]
        if layout.single and blocks:
            return blocks[0]
        objects = operation.each or [[]] * (stop - start)
        return [
            layout.join([block[i] for block in blocks], objects[i]) for i in range(stop - start)
        ]

    def _write(
        self,
        blocks: list[Any],
        observations: Sequence[Any],
        start: int,
        objects: dict[int, list[Any]],
    ) -> None:
        layout = self._table.observation
        if layout.single and blocks:
            write_rows(blocks[0], observations)
            return
        flat = [layout.flatten(observation) for observation in observations]
        for block, leaf in zip(blocks, layout.fixed, strict=True):
            write_rows(block, [values[leaf] for values in flat])
        if layout.objects:
            for slot, values in enumerate(flat, start):
                objects[slot] = [copy.deepcopy(values[leaf]) for leaf in layout.objects]

    def _fail(
        self, exception: BaseException, slot: int, operation: str, extras: Extras, action: Any = None
    ) -> None:
        """Note down that an environment raised; the engine asks for a reset before its next step."""
        i = slot - self.first
        extras.problems.append(
            Failure.of(
                exception,
                slot,
                operation,
                seed=self._seeds[i],
                episode=self._episodes[i],
                step=self._rounds - self._begun[i],
                action=action,
            )
        )


def _hold_step(held: Step, _action: Any) -> Step:
    """Stand in for every step of a finished environment that waits for its reset."""
    return held


# Stands where a result would, for an environment that raised.
_NOTHING: Any = (None, 0.0, False, False, {})


def _describe(env: gymnasium.Env[Any, Any]) -> Description:
    return Description(
        env.observation_space,
        env.action_space,
        dict(env.metadata),
        getattr(env, "spec", None),
        getattr(env, "render_mode", None),
    )
