"""VectorHost: the environments of one worker as one VectorEnv, a ``gymnasium.vector.VectorEnv``.

It makes, renders and closes them together, and copies the state of each. How it steps and resets
them is in ``vector_episodes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np

from agym.core.hosts.episode import Phase
from agym.core.hosts.states.env_state import CUT_OFF, OTHER_KIND, Copy, EnvState
from agym.core.hosts.vector.batch import write
from agym.core.hosts.vector.calls import assign, call, peek, render
from agym.core.hosts.vector.vector_episodes import VectorEpisodes
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.completions import Completion, Description, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Operation, Step
from agym.core.protocol.metrics.gauges import clock
from agym.core.protocol.typing import Info
from agym.core.protocol.value_copies import copy_info, copy_value
from agym.errors import SnapshotError, UsageError

NO_STATE = (
    "{} has no get_state(index) and set_state(index, state) to copy the state of one environment"
)


class VectorHost(VectorEpisodes):
    """Runs one vector environment."""

    # ---------------------------------------------------------------- life

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        try:
            self._description = self._make()
            return {self.first: self._description}, []
        except self.catch as exception:
            return {}, [self._failed(exception, "make", self.first, self.stop)]

    def close(self) -> list[Failure]:
        """Close the VectorEnv. Idempotent."""
        env, self._env = self._env, None
        try:
            if env is not None:
                env.close()
        except self.catch as exception:
            return [self._failed(exception, "close", self.first, self.stop)]
        return []

    # ---------------------------------------------------------------- operations

    def run(self, operation: Operation) -> Completion:
        """Run one operation; the VectorEnv's exceptions are in the completion."""
        self._run(operation.message, operation.start, operation.stop)
        return Completion(*operation.span, self._payload)

    def _run(self, message: ops.Message, start: int, stop: int) -> None:
        self._payload, self._finals, self._resetting = Payload(), {}, False
        started = clock()
        try:
            if isinstance(message, Step):
                self._step(message, start - self.first, stop - self.first)
            else:
                ids = range(start, stop)
                values = self._handlers[type(message)](self, message, ids)
                if values is not None:
                    for slot in ids:
                        self._payload.values[slot] = values[slot - self.first]
                self._meter.did(message.name, stop - start, started)
        except self.catch as error:
            action = None
            if isinstance(message, Step):
                action = self._batch(message.parts, start - self.first, stop - self.first)
            name = "reset" if self._resetting else message.name
            # Other VectorEnvs do not tell which environment failed.
            if message.writes_rows and not self.traits.steps_some:
                start, stop = self.first, self.stop
            failure = self._failed(error, name, start, stop, action)
            self._payload = Payload(problems=[failure])

    def step_here(self, plane: int, parts: Any) -> list[Info] | Payload:
        """Step all environments for a caller in this thread.

        Args:
            plane: The plane of the slot table to write.
            parts: The parts of the actions that are not in the table, or an array of all actions.

        Returns:
            Their infos, with the last observations of episodes, if nothing else is beside the rows;
            otherwise the payload.
        """
        self._ended = False
        self._run(Step(plane, parts), self.first, self.stop)
        payload = self._payload
        if payload.problems or payload.vector_infos or payload.objects:
            return payload
        infos: list[Info] = [{} for _ in self._no_infos]
        for slot, info in payload.infos.items():
            infos[slot - self.first] = copy_info(info)  # ``_infos`` has it, for snapshots
        if self.table.final and self._ended:
            flags = self.table.planes[plane]
            ended = flags.terminated | flags.truncated
            places = {i: (i, plane) for i in np.flatnonzero(ended).tolist()}
            self.table.put_finals(infos, places, payload.final_objects)
        return infos

    # ---------------------------------------------------------------- calls and attributes

    def _render(self, _: ops.Render, ids: range) -> Sequence[Any]:
        chosen = range(ids.start - self.first, ids.stop - self.first)
        frames: list[Any] = [None] * self._count
        if self.traits.renders_ids:
            rendered = render(self._env, len(chosen), chosen)
        else:
            rendered = render(self._env, self._count)[chosen.start : chosen.stop]
        frames[chosen.start : chosen.stop] = map(copy_value, rendered)
        return frames

    def _call(self, message: ops.Call, ids: range) -> Sequence[Any]:
        return call(self._env, self._count, message)

    def _get_attr(self, message: ops.GetAttr, ids: range) -> Sequence[Any]:
        return peek(self._env, self._count, message.attribute)

    def _set_attr(self, message: ops.SetAttr, ids: range) -> Sequence[Any]:
        return assign(self._env, message.attribute, message.assigned, create=message.create)

    def _close_env(self, _: ops.CloseEnv, ids: range) -> None:
        self._payload.problems += self.close()  # the only environment of its VectorEnv

    def _inject(self, message: ops.InjectFault, ids: range) -> None:
        self._injected_faults += message.faults

    # ---------------------------------------------------------------- states

    def _save(self, message: ops.Save, ids: range) -> Sequence[EnvState | str]:
        """Return the states of environments, if the VectorEnv can copy them."""
        name = type(self._env).__name__
        saved: list[EnvState | str] = [NO_STATE.format(name)] * self._count
        if self._layout.objects or not callable(getattr(self._env, "get_state", None)):
            return saved
        for slot, plane in zip(ids, message.planes, strict=True):
            i = slot - self.first
            if self._phases[i] == Phase.CUT:
                saved[i] = CUT_OFF
                continue
            episode = self._episodes[i].copy()
            episode.phase, episode.number = Phase(self._phases[i]), int(self._numbers[i])
            data = self._env.get_state(i), bool(self._over[i])
            copied = Copy("methods", f"the state that {name} returns", data)
            observation, flags = self.table.row(plane, slot, [])
            saved[i] = EnvState(episode, observation, copy_info(self._infos[i]), flags, copied)
        return saved

    def _load(self, message: ops.Load, ids: range) -> None:
        """Continue environments from states."""
        assert message.plane is not None
        if not self._started:
            self._reset_env(np.ones(self._count, bool))
        rows = self._plane(message.plane)
        for slot, state in zip(ids, message.states, strict=True):
            i, copied = slot - self.first, state.unpacked().copied
            if copied.way != "methods" or not isinstance(copied.data, tuple):
                raise SnapshotError(OTHER_KIND.format(copied.detail))
            program, self._over[i] = copied.data
            self._env.set_state(i, program)
            episode = self._rule.restored(state.episode, state.observation, state.flags)
            self._episodes[i] = episode
            self._phases[i], self._numbers[i] = episode.phase, episode.number
            with self.guard:
                write(rows.observations, [i], self._columns_of([state.observation]))
                rows.rewards[i], (rows.terminated[i], rows.truncated[i]) = 0.0, state.flags
            if episode.phase is Phase.HELD:
                write(self._rows_to_repeat, [i], rows.columns, [i])
            self._infos = [*self._infos]
            (self._infos[i],) = self._filter.running([state.info])
            if self._infos[i]:
                self._payload.infos[slot] = copy_info(self._infos[i])

    def _replace(self, message: ops.Replace, ids: range) -> Sequence[str]:
        """Make another VectorEnv, unless this one is new; the episodes are lost."""
        if not message.fresh:
            with suppress(self.catch):
                self._env.close()
            mismatch = self._description.mismatch(self._make())
            if mismatch is not None:
                raise UsageError(mismatch)
        self._forget()
        self._injected_faults.clear()
        for i, state in enumerate(message.states):
            lost = state.otherwise or state
            self._episodes[i] = lost.episode.copy()
            self._numbers[i] = self._meter.episodes(self.first + i)
            if lost.observation is not None:
                self._phases[i] = Phase.CUT
                flags = [np.array([value]) for value in (0.0, False, True)]
                write(self._rows_to_repeat, [i], [*self._columns_of([lost.observation]), *flags])
        return [""] * self._count

    _handlers: ClassVar[Mapping[type[ops.Message], Callable[..., Sequence[Any] | None]]] = {
        ops.Reset: VectorEpisodes.reset,
        ops.Render: _render,
        ops.Call: _call,
        ops.GetAttr: _get_attr,
        ops.SetAttr: _set_attr,
        ops.CloseEnv: _close_env,
        ops.InjectFault: _inject,
        ops.Save: _save,
        ops.Load: _load,
        ops.Replace: _replace,
    }
