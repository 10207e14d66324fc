"""Steps and resets one VectorEnv, and writes the rows of its environments.

It copies whole batches between the VectorEnv and the slot table, one copy per leaf. Some rows do
not come from the VectorEnv::

    actions --> VectorEnv.step --> batch --> rows <-- reset by the host: DUE, not by the VectorEnv
                                               ^
                                               '----- repeated: HELD, or CUT off by a fault

The phases of the environments decide which rows these are (``hosts/episode.py``). They do not
depend on the VectorEnv's mode: it also steps environments on hold, and the results are ignored. In
Gymnasium's mode ``DISABLED``, finished environments must not be stepped, so the host resets them
before the next step, unless the VectorEnv leaves them unchanged.
"""

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, cast

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.core.hosts.base import ALL_INFOS
from agym.core.hosts.episode import Episode, EpisodeRule, Phase
from agym.core.hosts.factories import Factory
from agym.core.hosts.fault_injection import InjectedFault
from agym.core.hosts.rows import Rows
from agym.core.hosts.vector.batch import (
    batch_of,
    check_observations,
    check_reset,
    check_step,
    write,
)
from agym.core.hosts.vector.calls import options_of_all
from agym.core.hosts.vector.construction import SeedList, Traits, check_vector, describe_vector
from agym.core.hosts.vector.twins import PartialStepError
from agym.core.protocol.infos.info_table import FINAL_INFO
from agym.core.protocol.infos.policy import InfoFilter, InfoPolicy
from agym.core.protocol.infos.vector_infos import VectorInfos, split_info, take_columns
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.completions import Description, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Step
from agym.core.protocol.messages.resets import lasting
from agym.core.protocol.metrics.gauges import Meter, clock
from agym.core.protocol.table import Plane, SlotTable
from agym.core.protocol.typing import Array, Info
from agym.errors import UsageError

# One info per environment; empty if all infos are empty.
Infos = Sequence[Info]

# The fastest test of a few flags.
count_nonzero = np.count_nonzero

# Plain numbers, because each use of an enumeration takes half a microsecond.
DUE, HELD = int(Phase.DUE), int(Phase.HELD)


@dataclass(eq=False, repr=False)
class VectorEpisodes:
    """The episodes of the environments of one VectorEnv.

    Attributes:
        factories: One per environment; only the first is called, and makes the VectorEnv.
        first: Id of the first environment.
        autoreset: Behavior at an episode's end.
        catch: The exceptions of the VectorEnv that do not end the host.
        guard: Entered while rows of the table are written.
        infos: The infos to return: all or none.
        vector_infos: Return infos in the form of the VectorEnv, if possible.
        traits: The capabilities of the VectorEnv, once it is made.
    """

    factories: Sequence[Factory]
    first: int
    autoreset: AutoresetMode
    catch: type[BaseException] = Exception
    _: KW_ONLY
    guard: AbstractContextManager[None] = field(default_factory=nullcontext)
    infos: InfoPolicy = ALL_INFOS
    vector_infos: bool = False
    traits: Traits = field(init=False)
    _env: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._count = len(self.factories)
        self.stop = self.first + self._count
        self.vector_infos = self.vector_infos and not self.infos.active
        self._rule = EpisodeRule(self.autoreset)
        self._filter = InfoFilter(self.infos, self._count)
        self._episodes = [Episode() for _ in self.factories]
        self._no_infos: Infos = [{}] * self._count  # made once, because there may be a million
        self._nobody = np.zeros(self._count, bool)
        # The infos of the latest rows, for snapshots.
        self._infos = [*self._no_infos]
        self._payload = Payload()
        # By environment, the info that ended an episode, under same-step autoreset.
        self._finals: dict[int, Info] = {}
        self._resetting = False
        self._injected_faults: list[InjectedFault] = []
        # The number of episodes of each environment that have started.
        self._numbers = np.zeros(self._count, np.int64)
        self._forget()

    def _forget(self) -> None:
        """Reset the state of the episodes, for a new VectorEnv."""
        self._started = False
        self._phases = np.full(self._count, Phase.RUNNING, np.int8)
        # Environments whose episode ended in the VectorEnv's last step, from its point of view.
        self._over = np.zeros(self._count, bool)
        # The rows that HELD and CUT environments repeat, except for their rewards.
        self._kept: list[Array] = []

    def _make(self) -> Description:
        factory: Any = self.factories[0]
        self._env = factory(num_envs=self._count, first=self.first, mode=self.autoreset)
        check_vector(self._env, self._count)
        self.traits = Traits.of(self._env)
        reason = self.traits.unsupported_mode(self.autoreset, type(self._env).__name__)
        if reason is not None:
            raise UsageError(reason)
        return describe_vector(self._env)

    def attach(self, table: SlotTable) -> None:
        self.table, self._layout = table, table.observation
        self._meter = Meter(table.gauges, self.first)
        self._rows = Rows(table, self.first, self.stop)
        # Leaves of observations without a fixed size, which are not in the table: of the latest
        # rows, and of the rows that ended episodes under same-step autoreset.
        objects = range(len(self._layout.objects))
        self._objects_here = [np.empty(self._count, object) for _ in objects]
        self._final_objects = [np.empty(self._count, object) for _ in objects]

    def _failed(
        self, error: BaseException, name: str, start: int, stop: int, action: Any = None
    ) -> Failure:
        i = start - self.first
        return Failure.of(
            error, start, name, count=stop - start,
            seed=self._episodes[i].seed, episode=int(self._numbers[i]), action=action,
        )  # fmt: skip

    # ---------------------------------------------------------------- step

    def _step(self, step: Step, first: int, stop: int) -> None:
        """Step a range of environments; it is all of them, unless the VectorEnv steps some."""
        whole = stop - first == self._count
        timed = self._meter.start(self.first + first, self.first + stop, whole=whole)
        started = clock()
        rows = self._plane(step.plane)
        # Usually, the VectorEnv steps all environments, and resets those that are DUE itself.
        if whole and self._phases.tobytes() == self._over.tobytes():
            infos = self._step_usual(step, rows)
        else:
            infos = self._step_range(step, rows, first, stop)
        if infos or self._finals:
            self._put_infos(infos)
        if self._layout.objects:
            self._payload.objects = self._objects_of(rows.observations)
        if whole:
            self._infos = cast("list[Info]", infos or self._no_infos)
        else:
            self._infos = [*self._infos]
            self._infos[first:stop] = (infos or self._no_infos)[first:stop]
        if timed:
            took = (clock() - started) // (stop - first)
            self._meter.timed_alike(self.first + first, self.first + stop, took)
        self._meter.end(stop - first, timed=timed)

    def _step_usual(self, step: Step, rows: Plane) -> Infos:
        """Step all environments, none of which the host resets or repeats before the step."""
        new_episodes = self._over
        infos, ended = self._step_env(step, rows, self._nobody, 0, self._count)
        self._ended = bool(count_nonzero(ended))
        if self._rule.resets_now:
            if count_nonzero(new_episodes):  # restored environments, which were over
                self._phases = np.zeros(self._count, np.int8)
            if self._ended:
                infos = self._reset_now(ended, self._nobody, rows, infos)
                new_episodes = new_episodes | ended
        elif self._rule.over == DUE:
            # The phases after flags that are no reset's, where ``DUE`` is 1 and ``RUNNING`` is 0.
            self._phases = (ended > new_episodes).view(np.int8)
        elif self._ended:
            self._change_phases(ended, rows)
        if count_nonzero(new_episodes):
            self._count_episodes(new_episodes)
        return infos

    def _step_range(self, step: Step, rows: Plane, first: int, stop: int) -> Infos:
        """Step a range of environments, some of which the host resets, or repeats their rows."""
        phases = _inside(self._phases, first, stop)
        new_episodes: Array = phases == DUE
        reset, repeated = new_episodes & ~self._over, phases >= HELD
        replaced = reset | repeated
        infos: Infos = []
        if not replaced[first:stop].all():
            infos, _ = self._step_env(step, rows, replaced, first, stop)
        infos = self._replace_rows(reset, repeated, rows, infos)
        ended = _inside(rows.terminated | rows.truncated, first, stop)
        self._ended = bool(count_nonzero(ended))
        if self._rule.resets_now and self._ended:
            infos = self._reset_now(ended, replaced, rows, infos)
            new_episodes |= ended
        self._change_phases(ended, rows, first, stop)
        if count_nonzero(new_episodes):
            self._count_episodes(new_episodes)
        return infos

    def _change_phases(
        self, ended: Array, rows: Plane, first: int = 0, stop: int | None = None
    ) -> None:
        """Change the phases of a range after a step, and keep the rows of those now on hold."""
        phases = self._phases[first:stop]
        after = self._rule.after(phases, ended[first:stop])
        on_hold = np.zeros(self._count, bool)
        on_hold[first:stop] = (after == HELD) & (phases < HELD)
        if on_hold.any():
            write(self._rows_to_repeat, on_hold, rows.columns, on_hold)
        self._phases[first:stop] = after

    def _batch(self, parts: Sequence[Any] | None, first: int, stop: int) -> Any:
        """Return the actions in the VectorEnv's form; copies, if it may keep them.

        ``parts`` are the actions without a fixed size of a range of environments.
        """
        layout = self.table.action
        if isinstance(parts, np.ndarray):
            return parts
        if parts and type(parts[0]) is ops.GivenAction:
            given = [part.action for part in parts]
            # Outside of the range, the VectorEnv needs actions of the same form.
            given = [given[0]] * first + given + [given[0]] * (self._count - stop)
            return layout.batch(given, cast=self.traits.exact_dtype)
        blocks = [block[self.first : self.stop] for block in self.table.actions]
        if not self.traits.two_halves:
            blocks = [block.copy() for block in blocks]
        return layout.join(blocks, list(zip(*parts or (), strict=True)))

    def _step_env(
        self, step: Step, rows: Plane, replaced: Array, first: int, stop: int
    ) -> tuple[Infos, Array]:
        """Step a range of the VectorEnv, and write its results.

        ``replaced`` are the environments whose rows the host replaces.

        Returns:
            The infos, and which environments of the range have ended.
        """
        while self._injected_faults:
            self._injected_faults.pop().trigger()
        traits = self.traits
        if traits.mode is AutoresetMode.DISABLED and not traits.two_halves and self._over.any():
            self._reset_env(self._over)
        # Infos stay in vector form if the VectorEnv does everything after an episode's end.
        whole = stop - first == self._count
        vector_form = self.vector_infos and whole and traits.mode is self.autoreset
        vector_form = vector_form and not replaced.any()
        finals_written = traits.two_halves and bool(rows.final) and not vector_form
        actions = self._batch(step.parts, first, stop)
        if traits.two_halves:
            try:
                self._env.play(actions, *(first, stop) if traits.steps_some else ())
            except PartialStepError as error:
                self._payload.problems += [
                    self._failed(each, "step", self.first + i, self.first + i + 1, actions[i])
                    for i, each in error.failures.items()
                ]
            finals = batch_of(rows.final) if finals_written else None
            with self.guard:  # only the second half writes
                info: Info = self._env.show_into(
                    batch_of(rows.observations), rows.rewards, rows.terminated, rows.truncated,
                    finals, vector_form,
                )  # fmt: skip
        else:
            result = self._env.step(actions)
            columns, info = check_step(self._layout, result, self._count)
            with self.guard:
                write(rows.columns, slice(None), columns)
        ended = _inside(rows.terminated | rows.truncated, first, stop)
        resets = traits.mode is AutoresetMode.SAME_STEP and bool(count_nonzero(ended))
        if not whole:
            self._over[first:stop] = ended[first:stop] & (not resets)
        else:
            self._over = self._nobody.copy() if resets else ended
        if vector_form:
            infos = self._take_vector_infos(info, ended if resets else None)
            if infos is not None:
                return infos, ended
        if resets:
            finals = ended & ~replaced
            return self._take_finals(info, finals, rows, written=finals_written), ended
        return split_info(info, self._count), ended

    def _take_vector_infos(self, info: Info, ended: Array | None) -> VectorInfos | None:
        """Return infos in vector form, if possible and if the host need not read them.

        ``ended`` are the environments that the VectorEnv has reset, if any.
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

    def _take_finals(self, info: Info, ended: Array, rows: Plane, *, written: bool) -> Infos:
        """Return the infos of a step after which the VectorEnv has reset the ``ended`` ones.

        Under same-step autoreset, the last observations and infos of these episodes are the final
        ones; otherwise they belong to this step. ``written`` tells that the VectorEnv has written
        the observations.
        """
        batch = info.pop("final_obs", None)
        if batch is None and not written:
            raise ValueError(
                "step returned no info['final_obs'], which AutoresetMode.SAME_STEP requires"
            )
        last, chosen = info.pop("final_info", {}), np.flatnonzero(ended)
        info.pop("_final_obs", None)
        info.pop("_final_info", None)
        infos = split_info(info, self._count)
        if written and not last:
            return infos
        ids = chosen.tolist()
        last_infos = split_info(last, self._count, chosen) or [{} for _ in ids]
        finals = dict(zip(ids, last_infos, strict=True))
        if ids and not written:
            if not (isinstance(batch, np.ndarray) and batch.dtype.hasobject):
                batch = self._layout.rows(batch, self._count)
            columns = self._columns_of([batch[i] for i in ids])
            with self.guard:
                write(rows.final if self._rule.resets_now else rows.observations, chosen, columns)
            if self._rule.resets_now:
                finals = {i: self._rows.with_final(final, batch[i]) for i, final in finals.items()}
        if not self._rule.resets_now:
            return self._with(infos, finals)
        self._finals = {self.first + i: final for i, final in finals.items() if final}
        return infos

    def _replace_rows(self, reset: Array, repeated: Array, rows: Plane, infos: Infos) -> Infos:
        """Reset some environments, and repeat the kept rows of others, without reward.

        Returns:
            The infos with those of resets; the others' are empty.
        """
        if reset.any():
            infos = self._reset_rows(reset, rows, infos)
            self._clear(rows, reset)
        if not repeated.any():
            return infos
        with self.guard:
            write(rows.columns, repeated, self._kept, repeated)
            rows.rewards[repeated] = 0.0
        return self._with(infos, {i: {} for i in np.flatnonzero(repeated).tolist() if infos})

    def _reset_now(self, ended: Array, replaced: Array, rows: Plane, infos: Infos) -> Infos:
        """Apply same-step autoreset: reset what the VectorEnv has not, and keep the final rows."""
        by_host = ended & replaced if self.traits.mode is AutoresetMode.SAME_STEP else ended
        if count_nonzero(by_host):
            with self.guard:
                write(rows.final, by_host, rows.observations, by_host)
            for i in np.flatnonzero(by_host).tolist() if infos else ():
                self._finals[self.first + i] = infos[i]
            infos = self._reset_rows(by_host, rows, infos)
        if self._layout.objects:
            self._payload.final_objects = self._objects_of(rows.final, ended)
        return infos

    # ---------------------------------------------------------------- reset

    def reset(self, reset: ops.Reset, ids: range) -> None:
        """Reset all environments, or some if the VectorEnv supports that."""
        chosen = slice(ids.start - self.first, ids.stop - self.first)
        mask = np.zeros(self._count, bool)
        mask[chosen] = True
        seeds: list[int | None] = [None] * self._count
        seeds[chosen] = reset.seeds or seeds[chosen]
        options = options_of_all(reset.options, ids)
        for episode, seed in zip(self._episodes[chosen], seeds[chosen], strict=True):
            episode.seed = episode.seed if seed is None else seed
            episode.options = lasting(reset.options)
        self._phases[mask] = Phase.RUNNING
        rows = self._plane(reset.plane)
        infos = self._reset_rows(mask, rows, [], seeds, options)
        self._clear(rows, mask)
        self._count_episodes(mask)
        self._payload.objects = self._objects_of(rows.observations, mask)
        self._put_infos(infos)
        self._infos = [*self._infos]
        self._infos[chosen] = (infos or self._no_infos)[chosen]

    def _reset_rows(
        self,
        mask: Array,
        rows: Plane,
        infos: Infos,
        seeds: SeedList | None = None,
        options: dict[str, Any] | None = None,
    ) -> Infos:
        """Reset environments, and write their observations; return the updated infos."""
        count, columns, reset_infos = self._reset_env(mask, seeds, options)
        chosen = np.flatnonzero(mask)
        # If only some environments are reset, a VectorEnv may return all rows, as Gymnasium's do,
        # or only the rows of these environments.
        source = chosen if count == self._count else np.arange(len(chosen))
        with self.guard:
            write(rows.observations, chosen, columns, source)
        each = reset_infos or self._no_infos
        pairs = zip(chosen.tolist(), source.tolist(), strict=True)
        return self._with(infos, {i: each[k] for i, k in pairs})

    def _reset_env(
        self, mask: Array, seeds: SeedList | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, list[Array], list[Info]]:
        """Reset environments of the VectorEnv.

        Args:
            mask: The environments, ``bool[count]``.
            seeds: A seed or ``None`` for each environment.
            options: Options, by default the options of the last explicit reset.

        Returns:
            The number of environments for which it returned rows; their observations and infos.
        """
        chosen = np.flatnonzero(mask).tolist()
        if not self._started:  # the first reset must be of all, even if some results are dropped
            mask = np.ones_like(mask)
        options = copy.deepcopy(options or self._episodes[chosen[0]].options)
        if not mask.all():
            options = {**(options or {}), "reset_mask": mask.copy()}
        seed = self.traits.seed_argument(self._seeds_of(chosen, seeds), mask)
        self._resetting = True
        result = self._env.reset(seed=seed, options=options)
        counts = (self._count, len(chosen))
        count, columns, info = check_reset(self._layout, result, counts)
        infos = split_info(info, count)
        self._resetting, self._started = False, True
        self._over = self._over & ~mask
        return count, columns, infos

    def _seeds_of(self, chosen: list[int], seeds: SeedList | None) -> SeedList | None:
        """Return the seeds of a reset, by default the seeds for replacements after a fault."""
        reseeds: list[int | None] = [None] * self._count
        for i in chosen:
            reseeds[i], self._episodes[i].reseed = self._episodes[i].reseed, None
        if seeds is not None and any(seed is not None for seed in seeds):
            return seeds
        first = reseeds[chosen[0]]
        if first is None or self.traits.seeds != "none":
            return None if first is None else reseeds
        # One integer applies to all environments, so all of them must be reset.
        return [*range(first, first + self._count)] if len(chosen) == self._count else None

    # ---------------------------------------------------------------- rows and infos

    def _plane(self, number: int) -> Plane:
        """Return the rows of a plane, with all leaves of observations."""
        rows = self._rows.plane(number, self.first, self.stop)
        if not self._layout.objects:
            return rows
        observations = [*rows.observations, *self._objects_here]
        final = [*rows.final, *self._final_objects] if self.table.final else []
        scalars = rows.rewards, rows.terminated, rows.truncated
        return Plane(observations, final, *scalars, rows.infos)

    @property
    def _rows_to_repeat(self) -> list[Array]:
        """The kept rows, for writing; allocated on first use, because many runs need none."""
        if not self._kept:
            self._kept = [np.empty_like(column) for column in self._plane(0).columns]
        return self._kept

    def _columns_of(self, observations: Sequence[Any]) -> list[Array]:
        """Return the leaves of single observations as a batch."""
        batch = self._layout.batch(observations)
        return check_observations(self._layout, batch, (len(observations),), "the VectorEnv")[1]

    def _objects_of(self, blocks: list[Array], mask: Any = ...) -> dict[int, list[Any]]:
        """Return the leaves without a fixed size of some environments, by id."""
        columns = blocks[len(self._layout.fixed) :]
        chosen = np.arange(self._count)[mask].tolist() if columns else ()
        return {self.first + i: [column[i] for column in columns] for i in chosen}

    def _clear(self, rows: Plane, mask: Array) -> None:
        """Write the rewards and flags of resets."""
        with self.guard:
            rows.rewards[mask], rows.terminated[mask], rows.truncated[mask] = 0.0, False, False

    def _with(self, infos: Infos, changed: dict[int, Info]) -> Infos:
        """Return infos in which those of some environments are replaced."""
        if not infos and not any(changed.values()):
            return infos
        each = [*infos] or [{} for _ in range(self._count)]
        for i, info in changed.items():
            each[i] = info
        return each

    def _put_infos(self, infos: Infos) -> None:
        if isinstance(infos, VectorInfos):
            if infos.columns:
                self._payload.vector_infos[self.first] = infos.copy()  # the caller may change it
            return
        for slot, info in [*enumerate(infos, self.first), *self._finals.items()]:
            if "cost" in info:
                self._meter.spent(slot, info)
        running = self._filter.running(infos)
        for info in running if self.first else ():
            if "env_id" in info:  # a VectorEnv counts its environments from 0
                info["env_id"] += self.first
        self._payload.infos |= {slot: i for slot, i in enumerate(running, self.first) if i}
        for slot, final in () if self._filter.active else self._finals.items():
            self._payload.infos[slot] = {**self._payload.infos.get(slot, {}), FINAL_INFO: final}

    def _count_episodes(self, mask: Array) -> None:
        self._numbers += mask
        self._meter.count_episodes(self.first, mask)


def _inside(values: Array, first: int, stop: int) -> Array:
    """Return values with zeros outside of a range."""
    if stop - first == len(values):
        return values
    inside = np.zeros_like(values)
    inside[first:stop] = values[first:stop]
    return inside
