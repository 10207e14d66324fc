"""VectorHost: the environments of one worker as one VectorEnv, a ``gymnasium.vector.VectorEnv``.

It steps, resets, renders and closes them together, and copies whole batches between the program and
the slot table, one copy per leaf. Some rows differ from what the program returned::

    actions --> VectorEnv.step --> batch --> rows <-- cut off: replaced after a fault
                                                  <-- due:     reset by the host, not stepped
                                                  <-- held:    finished, under autoreset="disabled"

Held rows are independent of the program's own mode: the program continues these environments, and
the results are ignored. In Gymnasium's mode ``DISABLED`` they are reset before the program's next
step, since finished environments must not be stepped, unless the program leaves them as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar, cast

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.errors import SnapshotError, UsageError
from agym.hosts.base import ALL_INFOS, Factory, Host
from agym.hosts.episode import Phase
from agym.hosts.fault_injection import InjectedFault
from agym.hosts.rows import Rows
from agym.hosts.snapshots.replaying import CUT_OFF, OTHER_KIND
from agym.hosts.snapshots.ways import Copy, EnvState
from agym.hosts.vector.batch import RESET, STEP, Columns, check_columns, check_result
from agym.hosts.vector.calls import assign, call, options_of_all, peek, render
from agym.hosts.vector.construction import Traits, check_vector, describe_vector
from agym.hosts.vector.held_rows import HeldRows
from agym.protocol.infos.policy import InfoPolicy
from agym.protocol.infos.vector import VectorInfos, split_info, take_columns
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import (
    Call,
    CloseEnv,
    GetAttr,
    GivenAction,
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
from agym.protocol.messages.resets import lasting
from agym.protocol.metrics.gauges import Meter, clock
from agym.protocol.table import Plane, SlotTable
from agym.protocol.typing import Array
from agym.protocol.value_copies import copy_info, copy_value

# A dict for each environment, or all in vector form.
Infos = list[dict[str, Any]]
Finals = dict[int, tuple[Any, dict[str, Any]]]

NO_STATE = (
    "{} has no get_state(index) and set_state(index, state), which give the state of one game"
)


class VectorHost(Host):
    """Runs one vector environment.

    Attributes:
        found: What the environment can do, once it is made.
    """

    found: Traits | None = None
    _env: Any = None

    def __init__(
        self,
        factories: Sequence[Factory],
        first: int,
        autoreset: AutoresetMode,
        catch: type[BaseException] = Exception,
        *,
        guard: AbstractContextManager[None] | None = None,
        infos: InfoPolicy = ALL_INFOS,
        vector_infos: bool = False,
    ) -> None:
        """Store the arguments; :class:`~agym.hosts.base.Host` describes most of them.

        The first factory makes the program. ``guard`` is held while rows of the table are written.
        Infos are returned all or not at all; with ``vector_infos`` as the program gives them, where
        that is possible.
        """
        super().__init__(factories, first, autoreset, catch, infos=infos)
        self._autoreset = autoreset
        self._vector_infos = vector_infos and not infos.active
        self._guard = guard or nullcontext()
        self._count = len(factories)
        self._no_infos: Infos = [{}] * self._count  # made once, since there may be a million
        self._payload = Payload()
        self._resetting = False
        self._injected_faults: list[InjectedFault] = []
        # How many episodes of each environment have begun.
        self._numbers = np.zeros(self._count, np.int64)
        self._forget()

    def _forget(self) -> None:
        """Reset the state of the episodes, for a new VectorEnv."""
        self._began = False
        self._phases = np.full(self._count, Phase.RUNNING, np.int8)
        self._held = HeldRows()
        # Environments whose episode ended with the program's last step, as the program knows.
        self._over = np.zeros(self._count, bool)
        # The last known observations of environments that were cut off.
        self._cut: dict[int, Any] = {}

    # ---------------------------------------------------------------- life

    @property
    def traits(self) -> Traits:
        """What the environment can do."""
        assert self.found is not None
        return self.found

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        try:
            return {self.first: self._make()}, []
        except self._catch as exception:
            return {}, [self._failed(exception, "make", self.first, self.stop)]

    def _make(self) -> Description:
        factory: Any = self._factories[0]
        self._env = factory(num_envs=self._count, first=self.first, mode=self._autoreset)
        check_vector(self._env, self._count)
        self.found = Traits.of(self._env)
        reason = self.traits.unsupported_mode(self._autoreset, type(self._env).__name__)
        if reason is not None:
            raise UsageError(reason)
        return describe_vector(self._env)

    def attach(self, table: SlotTable) -> None:
        self._description = describe_vector(self._env)
        self.table, self._layout = table, table.observation
        self._action_layout = table.action
        self._actions = [block[self.first : self.stop] for block in table.actions]
        self._meter = Meter(table.gauges, self.first)
        self._rows = Rows(table, self.first, self.stop)

    def close(self) -> list[Failure]:
        """Close the program. Idempotent."""
        env, self._env = self._env, None
        try:
            if env is not None:
                env.close()
        except self._catch as exception:
            return [self._failed(exception, "close", self.first, self.stop)]
        return []

    # ---------------------------------------------------------------- operations

    def run(self, operation: Operation) -> Completion:
        """Run one operation; what the program raises is in the completion."""
        _, start, stop, message = operation
        self._payload, self._resetting = Payload(), False
        begun = clock()
        try:
            if isinstance(message, Step):
                self._step(message)
            else:
                values = self._handlers[type(message)](self, operation)
                if values is not None:
                    for slot in range(start, stop):
                        self._payload.values[slot] = values[slot - self.first]
                self._meter.did(message.name, stop - start, begun)
        except self._catch as error:
            action = self._batch(message.parts) if isinstance(message, Step) else None
            name = "reset" if self._resetting else message.name
            if message.writes_rows:  # a VectorEnv does not say which environment failed
                start, stop = self.first, self.stop
            failure = self._failed(error, name, start, stop, action)
            self._payload = Payload(problems=[failure])
        return Completion(*operation.span, self._payload)

    def _failed(
        self, error: BaseException, name: str, start: int, stop: int, action: Any = None
    ) -> Failure:
        i = start - self.first
        return Failure.of(
            error, start, name, count=stop - start,
            seed=self._episodes[i].seed, episode=int(self._numbers[i]), action=action,
        )  # fmt: skip

    # ---------------------------------------------------------------- calls and attributes

    def _render(self, operation: Operation) -> Sequence[Any]:
        frames = [*render(self._env, self._count, ids=self.traits.renders_ids)]
        chosen = slice(operation.start - self.first, operation.stop - self.first)
        frames[chosen] = map(copy_value, frames[chosen])
        return frames

    def _call(self, operation: Operation) -> Sequence[Any]:
        method, positional, keywords = operation.message.arguments(0)
        return call(self._env, self._count, method, positional, keywords)

    def _get_attr(self, operation: Operation) -> Sequence[Any]:
        (name,) = operation.message.arguments(0)
        return peek(self._env, self._count, name)

    def _set_attr(self, operation: Operation) -> Sequence[Any]:
        message = cast(SetAttr, operation.message)
        return assign(self._env, message.attribute, message.assigned, create=message.create)

    def _close_env(self, operation: Operation) -> None:
        self._payload.problems += self.close()  # the only one of its VectorEnv

    def _inject(self, operation: Operation) -> None:
        self._injected_faults += operation.message.values or ()

    # ---------------------------------------------------------------- step

    def _step(self, step: Step) -> None:
        timed = self._meter.begin(self.first, self.stop, whole=True)
        begun = clock()
        rows = self._rows.plane(step.plane, self.first, self.stop)
        infos: Any = []
        phases = self._phases
        due, cut = self._due, phases == Phase.CUT
        ours = due | cut
        finals: Finals = {}
        if not ours.all():
            plain = not ours.any() and not (phases == Phase.HELD).any()
            infos, finals = self._step_env(step, rows, vector_form=self._vector_infos and plain)
        if finals or ours.any() or (self._rule.resets_now and self._over.any()):
            infos = infos or [{} for _ in range(self._count)]
        if ours.any():
            self._put_cut(rows, infos)
            self._begin(due, rows, infos)
            with self._guard:
                rows.rewards[due], rows.terminated[due], rows.truncated[due] = 0.0, False, False
        if finals or phases.any() or self._over.any():
            self._end_episodes(rows, infos, finals, cut)
        self._put_infos(infos)
        self._infos = infos or self._no_infos
        if timed:
            self._meter.timed_alike(self.first, self.stop, (clock() - begun) // self._count)
        self._meter.end(self._count, timed=timed)

    @property
    def _due(self) -> Array:
        """The environments that the host must reset, because the program does not."""
        due: Array = (self._phases == Phase.DUE) & ~self._over
        return due

    def _batch(self, parts: Sequence[Any] | None) -> Any:
        """Return the actions in the form that the program takes; copies, if it may keep them.

        ``parts`` are those without a fixed size.
        """
        if parts and type(parts[0]) is GivenAction:
            actions = [given.action for given in parts]
            return self._action_layout.batch(actions, cast=self.traits.compiled)
        blocks = self._actions
        if not self.traits.writes_into:
            blocks = [block.copy() for block in blocks]
        return self._action_layout.join(blocks, list(zip(*parts or (), strict=True)))

    def _step_env(
        self, step: Step, rows: Plane, *, vector_form: bool
    ) -> tuple[Infos | VectorInfos, Finals]:
        """Step the program, and write its results.

        With ``vector_form``, infos are returned whole, if the program does all that follows an
        episode's end.

        Returns:
            The infos, empty if there are none; and the final observation and info of each episode
            after which the program has already reset.
        """
        while self._injected_faults:
            self._injected_faults.pop().trigger()
        mode, over = self.traits.mode, self._over
        if over.any():
            if mode is AutoresetMode.DISABLED and not self.traits.holds:
                self._begin(over)
            self._count_episodes(over & (self._phases != Phase.HELD))
        vector_form = vector_form and mode is self._autoreset
        finals_here = rows.final[0] if rows.final and not vector_form else None
        if self.traits.writes_into:
            info = self._step_into(step, rows, finals_here)
        else:
            info = self._step_and_copy(step, rows)
        self._over = ended = rows.terminated | rows.truncated
        resets = mode is AutoresetMode.SAME_STEP and bool(ended.any())
        if resets:
            self._count_episodes(ended & (self._phases != Phase.HELD))
            self._over = np.zeros_like(over)
        if vector_form:
            infos = self._take_vector_infos(info, ended if resets else None)
            if infos is not None:
                return infos, {}
        finals = {}
        if resets:
            written = self.traits.writes_into and finals_here is not None
            finals = self._take_finals(info, ended, written=written)
        return split_info(info, self._count), finals

    def _take_vector_infos(self, info: dict[str, Any], ended: Array | None) -> VectorInfos | None:
        """Return infos in vector form, if they have it and nothing in them is read here.

        ``ended`` are the environments that the program has reset, if any.
        """
        if "cost" in info or (self.first and "env_id" in info):
            return None
        if ended is not None:
            if "final_obs" not in info:
                return None
            info.setdefault("_final_obs", ended)
            info.setdefault("final_info", {})
            info.setdefault("_final_info", ended)
        columns = take_columns(info, self._count)
        return None if columns is None else VectorInfos(self._count, columns)

    def _step_into(self, step: Step, rows: Plane, finals: Array | None) -> dict[str, Any]:
        """Step a program that writes the rows itself. Only its second half needs the guard."""
        self._env.play(self._batch(step.parts))
        with self._guard:
            info: dict[str, Any] = self._env.show_into(
                rows.observations[0], rows.rewards, rows.terminated, rows.truncated, finals
            )
        return info

    def _step_and_copy(self, step: Step, rows: Plane) -> dict[str, Any]:
        """Step a program that returns arrays of its own."""
        result = self._env.step(self._batch(step.parts))
        check_result(result, STEP, "step")
        columns = Columns(self._layout, result[0], (self._count,), "step")
        scalars = check_columns(result, self._count, "step")
        with self._guard:
            self._put(rows, columns, slice(None))
            rows.rewards[:], rows.terminated[:], rows.truncated[:] = scalars
        return {**result[4]}

    def _take_finals(self, info: dict[str, Any], over: Array, *, written: bool) -> Finals:
        """Remove and return the final observations and infos of finished episodes.

        ``written`` says that the program wrote the observations into the rows. Then only infos are
        left to deliver, and nothing is returned.
        """
        if written:
            info.pop("_final_info")
            infos = split_info(info.pop("final_info"), self._count)
            ended = np.flatnonzero(over).tolist() if infos else ()
            self._payload.final_infos.update((self.first + i, infos[i]) for i in ended)
            return {}
        observations = info.pop("final_obs", None)
        if observations is None:
            raise ValueError("step gave no info['final_obs'], as AutoresetMode.SAME_STEP wants")
        infos = split_info(info.pop("final_info", {}), self._count)
        infos = infos or [{} for _ in range(self._count)]
        info.pop("_final_obs", None)
        info.pop("_final_info", None)
        if not (isinstance(observations, np.ndarray) and observations.dtype.hasobject):
            observations = self._layout.rows(observations, self._count)
        return {i: (observations[i], infos[i]) for i in np.flatnonzero(over).tolist()}

    def _put_cut(self, rows: Plane, infos: Infos) -> None:
        """Write the rows of replaced environments: their episode is truncated."""
        cut, self._cut = self._cut, {}
        for i, observation in cut.items():
            infos[i] = {}
            with self._guard:
                self._put_one(rows.observations, i, observation, self._payload.objects)
                rows.rewards[i], rows.terminated[i], rows.truncated[i] = 0.0, False, True

    def _end_episodes(
        self,
        rows: Plane,
        infos: Infos,
        finals: Finals,
        cut: Array,
    ) -> None:
        """Apply the autoreset mode where the program does not do so by itself."""
        phases, objects = self._phases, self._payload.objects
        if self._rule.resets_now:
            self._reset_ended(rows, infos, finals, self._over | cut)
        else:
            with self._guard:
                for i, (observation, info) in finals.items():
                    self._put_one(rows.observations, i, observation, objects)
                    infos[i] = info
                self._held.put(rows, phases == Phase.HELD, infos, objects, self.first)
        ended = rows.terminated | rows.truncated
        self._phases = self._rule.table[phases, ended.astype(np.int8)]
        held = (self._phases == Phase.HELD) & (phases != Phase.HELD)
        if held.any():
            self._held.keep(rows, held, objects, self.first)

    def _reset_ended(
        self,
        rows: Plane,
        infos: Infos,
        finals: Finals,
        ours: Array,
    ) -> None:
        """Same-step autoreset: keep final rows, and reset what the program did not (``ours``)."""
        with self._guard:
            for i, (observation, info) in finals.items():
                self._put_one(rows.final, i, observation, self._payload.final_objects)
                final_info = self._rows.with_final(info, observation)
                self._payload.final_infos[self.first + i] = final_info
            for block, final in zip(rows.observations, rows.final, strict=True):
                final[ours] = block[ours]
        for i in np.flatnonzero(ours).tolist():
            slot = self.first + i
            self._payload.final_infos[slot], infos[i] = infos[i], {}
            if slot in self._payload.objects:
                self._payload.final_objects[slot] = self._payload.objects[slot]
        self._begin(ours, rows, infos)

    # ---------------------------------------------------------------- reset

    def _reset(self, operation: Operation) -> None:
        """Reset all environments, or some if the program supports that."""
        reset = cast(Reset, operation.message)
        chosen = slice(operation.start - self.first, operation.stop - self.first)
        mask = np.zeros(self._count, bool)
        mask[chosen] = True
        seeds = reset.seeds
        for i, seed in zip(range(self._count)[chosen], seeds or (), strict=False):
            if seed is not None:
                self._episodes[i].seed = seed
        options = options_of_all(reset.options, operation.start, operation.stop)
        for i in range(self._count)[chosen]:
            self._episodes[i].options = lasting(reset.options)
            self._cut.pop(i, None)
        self._phases[mask] = Phase.RUNNING
        rows = self._rows.plane(reset.plane, self.first, self.stop)
        infos: Infos = [{} for _ in range(self._count)]
        self._begin(mask, rows, infos, seeds, options)
        with self._guard:
            rows.rewards[mask], rows.terminated[mask], rows.truncated[mask] = 0.0, False, False
        self._put_infos(infos)
        self._infos = [*self._infos]
        self._infos[chosen] = infos[chosen]

    def _begin(
        self,
        mask: Array,
        rows: Plane | None = None,
        infos: Infos | None = None,
        seeds: Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Begin episodes.

        Args:
            mask: The environments, ``bool[count]``.
            rows: Receives their observations; ``None`` to discard them.
            infos: Receives their infos.
            seeds: A seed for each.
            options: Options, by default those of the last explicit reset.
        """
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return
        # The first reset of a VectorEnv is of all environments, even if some results are discarded.
        whole = len(chosen) == self._count or not self._began
        options = copy.deepcopy(options or self._episodes[chosen[0]].options)
        if not whole:
            options = {**(options or {}), "reset_mask": mask.copy()}
        seeds = self._seeds_of(chosen.tolist(), seeds)
        if seeds is not None and whole and len(chosen) < self._count:
            by_env = dict(zip(chosen.tolist(), seeds, strict=True))
            seeds = [by_env.get(i) for i in range(self._count)]
        seed = self.traits.seed_argument(seeds, np.ones_like(mask) if whole else mask)
        self._resetting = True
        result = self._env.reset(seed=seed, options=options)
        check_result(result, RESET, "reset")
        # For some of the environments, a VectorEnv may return all rows, as Gymnasium's do, or only
        # theirs.
        columns = Columns(self._layout, result[0], (self._count, len(chosen)), "reset")
        split = split_info(result[1], columns.count)
        self._resetting, self._began = False, True
        self._over &= ~mask & (not whole)
        if rows is None or infos is None:
            return
        given = chosen if columns.count == self._count else np.arange(len(chosen))
        with self._guard:
            self._put(rows, columns, chosen, given)
        for i, k in zip(chosen.tolist(), given.tolist(), strict=True) if split else ():
            infos[i] = split[k]
        self._count_episodes(mask)

    def _seeds_of(
        self, chosen: list[int], seeds: Sequence[int | None] | None
    ) -> Sequence[int | None] | None:
        """Return the seeds of a reset, by default those for replacements after a fault."""
        reseeds = [self._episodes[i].reseed for i in chosen]
        for i in chosen:
            self._episodes[i].reseed = None
        if seeds is not None and any(seed is not None for seed in seeds):
            return seeds
        first = reseeds[0]
        if first is None or (len(chosen) < self._count and self.traits.seeds == "none"):
            return None
        return [first + k for k in range(len(chosen))]

    # ---------------------------------------------------------------- after a fault

    def _recreate(self, operation: Operation) -> None:
        """Replace a VectorEnv that is broken or gone."""
        restores = cast(Recreate, operation.message).restores
        if any(restore.used for restore in restores):
            with suppress(self._catch):
                self._env.close()
            mismatch = self._description.mismatch(self._make())
            if mismatch is not None:
                raise UsageError(mismatch)
        self._forget()
        self._injected_faults.clear()
        for i, restore in enumerate(restores):
            self._import_env(i, restore)
            self._numbers[i] = restore.episode
            if restore.observation is not None:
                self._cut[i], self._phases[i] = restore.observation, Phase.CUT

    # ---------------------------------------------------------------- snapshots

    def _take_snapshot(self, operation: Operation) -> Sequence[EnvState | str]:
        """Return the states of environments, if the VectorEnv gives them."""
        message = cast(TakeSnapshot, operation.message)
        taken: list[EnvState | str] = [NO_STATE.format(type(self._env).__name__)] * self._count
        if self._layout.objects or not callable(getattr(self._env, "get_state", None)):
            return taken
        for slot, plane in zip(range(operation.start, operation.stop), message.planes, strict=True):
            i = slot - self.first
            if i in self._cut:
                taken[i] = CUT_OFF
                continue
            episode = self._episodes[i]
            episode.phase, episode.number = Phase(self._phases[i]), int(self._numbers[i])
            copied = self._env.get_state(i), bool(self._over[i])
            detail = f"what {type(self._env).__name__} gives as its state"
            taken[i] = self._state(i, Copy("program", detail, copied), 0, plane)
        return taken

    def _restore(self, operation: Operation) -> None:
        """Continue environments from states."""
        message = cast(Restore, operation.message)
        if not self._began:
            self._begin(np.ones(self._count, bool))
        for slot, state in zip(range(operation.start, operation.stop), message.states, strict=True):
            i = slot - self.first
            if state.way != "program":
                raise SnapshotError(OTHER_KIND.format(state.detail))
            program, self._over[i] = state.unpacked().data
            self._env.set_state(i, program)
            episode = self._rule.restored(state.episode, state.observation, state.flags)
            self._episodes[i] = episode
            self._phases[i], self._numbers[i] = episode.phase, episode.number
            self._cut.pop(i, None)
            rows = self._rows.plane(message.plane, self.first, self.stop)
            with self._guard:
                self._put_one(rows.observations, i, state.observation, self._payload.objects)
                rows.rewards[i], (rows.terminated[i], rows.truncated[i]) = 0.0, state.flags
                if episode.phase is Phase.HELD:
                    only = np.arange(self._count) == i
                    self._held.keep(rows, only, self._payload.objects, self.first)
            self._infos = [*self._infos]
            (self._infos[i],) = self._filter.running([state.info])
            if self._infos[i]:
                self._payload.infos[slot] = copy_info(self._infos[i])

    _handlers: ClassVar[Mapping[type[Message], Callable[..., Sequence[Any] | None]]] = {
        Reset: _reset,
        Render: _render,
        Call: _call,
        GetAttr: _get_attr,
        SetAttr: _set_attr,
        CloseEnv: _close_env,
        InjectFault: _inject,
        Recreate: _recreate,
        TakeSnapshot: _take_snapshot,
        Restore: _restore,
    }

    # ---------------------------------------------------------------- rows

    def _put(self, rows: Plane, columns: Columns, chosen: Any, given: Any = slice(None)) -> None:
        """Write rows of a batch of observations."""
        for block, column in zip(rows.observations, columns.fixed, strict=True):
            block[chosen] = column[given]
        if self._layout.objects:
            slots = range(self.first, self.stop)
            chosen, given = np.arange(self._count)[chosen], np.arange(columns.count)[given]
            for i, k in zip(chosen.tolist(), given.tolist(), strict=True):
                self._payload.objects[slots[i]] = columns.objects(k)

    def _put_one(
        self, blocks: list[Array], i: int, observation: Any, objects: dict[int, list[Any]]
    ) -> None:
        slot = self.first + i
        rows = [block[i : i + 1] for block in blocks]
        objects.update(self._rows.write(rows, [observation], slot) or {})

    def _put_infos(self, infos: Infos | VectorInfos) -> None:
        if isinstance(infos, VectorInfos):
            if infos.columns:
                self._payload.vector_infos[self.first] = infos.copy()  # the caller's to change
            return
        finals = self._payload.final_infos
        for slot, info in [*enumerate(infos, self.first), *finals.items()]:
            self._meter.spent(slot, info)
        if self._filter.active:
            self._payload.final_infos.clear()
        for slot, info in enumerate(self._filter.running(infos), self.first):
            if info:
                self._payload.infos[slot] = self._with_our_id(info)

    def _with_our_id(self, info: dict[str, Any]) -> dict[str, Any]:
        """Shift ``env_id`` to the caller's numbering; a VectorEnv counts its own from 0."""
        if self.first and "env_id" in info:
            info["env_id"] += self.first
        return info

    def _count_episodes(self, mask: Array) -> None:
        self._numbers += mask
        self._meter.begin_episodes(self.first, mask)
