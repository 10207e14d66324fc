"""The base of the sync and the async API."""

from __future__ import annotations

import difflib
import operator
import warnings
from collections.abc import Iterable, Sequence
from functools import cache, partial
from inspect import get_annotations
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from agym.api.output import Output, make_output_format
from agym.core._system.at_exit import close_at_exit
from agym.core.engine.batches.out_target import StepBuffer
from agym.core.engine.batches.ready_queue import ReadyQueue
from agym.core.engine.batches.results import Batch
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.engine import Engine
from agym.core.engine.snapshots import Snapshot, snapshots_of
from agym.core.engine.stats import Stats
from agym.core.engine.tap import Tap
from agym.core.protocol.arguments import check_count, parse_env_ids
from agym.core.protocol.attributes import Placeholder
from agym.core.protocol.messages.completions import Description
from agym.core.protocol.messages.resets import Seeds, take_mask
from agym.core.protocol.typing import Actions, Flags, Info, Observations, Rewards
from agym.errors import UsageError, UsageTypeError

T = TypeVar("T")


@cache
def _own_names(kind: Any) -> frozenset[str]:
    """Return the attributes that a class has or declares."""
    return frozenset(name for c in kind.__mro__ for name in get_annotations(c)) | {*dir(kind)}


def has_own(thing: Any, name: str) -> bool:
    """Whether an object itself has an attribute, rather than its environments."""
    kind: Any = type(thing)
    return name in _own_names(kind) or name in vars(thing)


def is_own(thing: Any, name: str) -> bool:
    """Like :func:`has_own`, but names with a leading underscore always belong to the object."""
    return name.startswith("_") or has_own(thing, name)


def suggest(thing: Any, name: str) -> str:
    """Suggest the object's own attribute that was probably meant, as part of an error message."""
    kind: Any = type(thing)
    candidates = [other for other in _own_names(kind) if not other.startswith("_")]
    likely = difflib.get_close_matches(name, sorted(candidates), n=1)
    return f"; did you mean {likely[0]!r}?" if likely else ""


class EnvProxy:
    """Forwards every attribute that it does not have itself to its environments.

    Subclasses implement ``_look_up``, which reads such an attribute, and ``_assign``, which sets
    it.
    """

    def _assign(self, name: str, value: Any) -> object:
        raise NotImplementedError

    # Type checkers do not see this method: the sync API declares one for them, and the async API
    # has no attributes that they do not know.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            return self._look_up(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of this object, or else of its environments."""
        if is_own(self, name):
            super().__setattr__(name, value)
        else:
            self._assign(name, value)


class BaseEnvs(EnvProxy, Generic[Observations, Actions, Rewards, Flags]):
    """A number of environments; the base of :class:`agym.Envs` and :class:`agym.AsyncEnvs`.

    Attributes:
        num_envs: Number of environments.
        output: ``"list"``, ``"array"``, ``"torch"`` or ``"jax"``.
        single_observation_space: Space of one observation.
        single_action_space: Space of one action.
        observation_space: Space of a batch: Gymnasium's batched space, or with lists a
            :class:`~agym.api.output.ListSpace`.
        action_space: Space of a batch of actions, of the same form; ``step`` accepts its samples.
        metadata: The environments' metadata, with ``autoreset_mode``.
        spec: The environments' ``EnvSpec``, ``None`` if they have none.
        render_mode: The environments' render mode.
    """

    num_envs: int
    output: Output
    single_observation_space: Space[Any]
    single_action_space: Space[Any]
    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    spec: EnvSpec | None
    render_mode: str | None
    _waiter: Any  # ``SyncWaiter`` or ``AsyncWaiter``
    _tap: Tap
    _recipe: Any = None  # how to make the environments again, for ``save``; a ``Recipe``

    def __init__(self, engine: Engine, output: Output) -> None:
        """Wrap an engine, which :func:`agym.make` makes."""
        self.num_envs = engine.num_envs
        self.output = output
        self._format = make_output_format(output)
        self._engine = engine
        self._life = engine.life
        self._backend = engine.backend
        self._notices = self._life.notices
        self._pages: list[Any] = []  # the live pages of the tap, to be closed
        # The ids of a group's environments (see ``split``), ``None`` for all.
        self._ids: list[int] | None = None
        self._ready = ReadyQueue()
        close_at_exit(self._leave)

    def _leave(self) -> None:
        raise NotImplementedError

    def _describe(self) -> None:
        """Set the attributes that describe the environments, once these are made."""
        description, table = self._life.description(), self._life.table
        self._refuse_windows(description)
        self._format.attach(table)
        self.single_observation_space = description.observation_space
        self.single_action_space = description.action_space
        self._describe_batch()
        self.metadata = {**description.metadata, "autoreset_mode": self._backend.options.autoreset}
        self.spec = description.spec
        self.render_mode = description.render_mode
        self._tap = self._engine.tap(self._waiter, self._pages)

    def _refuse_windows(self, description: Description) -> None:
        """Refuse to open a window for each of several environments.

        Only an explicit ``render_mode="human"`` counts, not a constructor's default. For some
        environments, ``"human"`` prints text: only those that also support ``"rgb_array"`` are
        known to open a window.

        Raises:
            UsageError: The caller asked for windows, and there are several environments.
        """
        factory = self._backend.options.factories[-1]  # ``auto`` replaces the first
        env_kwargs = {
            **getattr(description.spec, "kwargs", {}),  # what a factory passed to gymnasium.make
            **getattr(factory, "keywords", {}),
        }
        draws = "rgb_array" in (description.metadata.get("render_modes") or ())
        if self.num_envs > 1 and env_kwargs.get("render_mode") == "human" and draws:
            raise UsageError(
                f"render_mode='human' would open a window for each of {self.num_envs} environments:"
                " use render_mode='rgb_array', and agym.watch(envs) to see all of them in a browser"
                " (or `agym watch` on the command line); or make a single environment"
            )

    def _describe_batch(self) -> None:
        self.observation_space = self._format.space(self.single_observation_space, self.num_envs)
        self.action_space = self._format.space(self.single_action_space, self.num_envs)

    def _batch_result(self, batch: Batch) -> Batch[Observations, Rewards, Flags]:
        if self._ids is not None:
            batch = batch._replace(env_ids=np.searchsorted(self._ids, batch.env_ids))
        return self._format.batch(batch)

    def _global(self, env_ids: Sequence[int] | None) -> Sequence[int] | None:
        """Translate the ids of a group to those of the engine."""
        if env_ids is None:
            return self._ids
        tolist = getattr(env_ids, "tolist", None)
        if tolist is not None:  # because it is slow to read a tensor number by number
            env_ids = tolist()
        if self._ids is None:
            return env_ids
        parse_env_ids(env_ids, self.num_envs)
        return [self._ids[i] for i in env_ids]

    def _begin_reset(
        self, seed: Seeds, options: Info | None, env_ids: Sequence[int] | None, out: Any = None
    ) -> Ticket:
        """Start a reset; in a group, the mask and a list of seeds have the group's length."""
        out = self._format.check_out(out)
        if self._ids is None:
            return self._engine.reset(seed, options, env_ids, out=out)
        options, env_ids, seed = take_mask(options, self.num_envs, seed, env_ids)
        about = tuple(self._ids)
        return self._engine.reset(seed, options, self._global(env_ids), about=about, out=out)

    def _snapshots(self, ids: Sequence[int], states: list[Any]) -> list[Snapshot]:
        return snapshots_of(states, ids, self._life.description)

    def _check_saved(self) -> None:
        """Refuse to save environments that cannot be made again."""
        if self._ids is not None:
            raise UsageError("a group can't be saved: save the environments that were split")
        if self._recipe is None:
            raise UsageError(
                "only environments made by agym.make or agym.make_async can be saved as a run: call"
                " snapshot(), and save each snapshot"
            )

    def _begin_restore(
        self,
        snapshots: Snapshot | Sequence[Snapshot],
        env_ids: Sequence[int] | None,
        *,
        only_these: bool = False,
    ) -> Ticket:
        """Start a restore; with ``only_these``, its result has only the restored environments."""
        if isinstance(env_ids, Iterable):
            env_ids = [*env_ids]
        ids = self._global(env_ids)
        parse_env_ids(ids, self._engine.num_envs)
        wanted = [*range(self._engine.num_envs)] if ids is None else [*ids]
        if not isinstance(snapshots, Iterable):
            snapshots = [snapshots] * len(wanted)
        snapshots = [*snapshots]
        for snapshot in snapshots:
            if not isinstance(snapshot, Snapshot):
                raise UsageTypeError(f"restore takes snapshots, not {type(snapshot).__name__}")
        if len(snapshots) != len(wanted):
            raise UsageError(
                f"restore got {len(snapshots)} snapshots for {len(wanted)} environments: pass one"
                " per environment, or a single one for all"
            )
        for i, snapshot in zip(wanted, snapshots, strict=True):
            snapshot.check(self._life.description(i), i)
        about = tuple(wanted) if only_these else None if self._ids is None else tuple(self._ids)
        return self._engine.restore([snapshot.state for snapshot in snapshots], ids, about=about)

    def _others(self, index: int, count: int | None, into: Sequence[int] | None) -> list[int]:
        """Return the environments that become branches of the environment ``index``."""
        others = [i for i in range(self.num_envs) if i != index]
        if count is None:
            count = len(others) if into is None else len(into)
        count = check_count("count", count, least=0)
        if into is None and count > len(others):
            raise UsageError(
                f"branch({count}): there are only {len(others)} other environments: make"
                f" {count + 1} environments, or restore a snapshot several times"
            )
        if into is not None and (len(into) != count or index in into):
            raise UsageError(
                f"branch({count}, into={into!r}): into must name {count} environments other than"
                f" {index}"
            )
        return others[:count] if into is None else [*into]

    def step_buffer(self, steps: int) -> StepBuffer:
        """Allocate memory for some steps of all environments; workers write into it directly.

        Example:
            >>> import agym
            >>> with agym.make("CartPole-v1", 3, autoreset="next_step", output="array") as envs:
            ...     buffer = envs.step_buffer(5)
            ...     _ = envs.reset(seed=0, out=buffer[0])
            ...     for t in range(1, 5):
            ...         _ = envs.step(envs.action_space.sample(), out=buffer[t])
            ...     buffer.observations.shape
            (5, 3, 4)

        With ``autoreset="disabled"``, ``on_fault`` other than ``"raise"`` or recycling, batches are
        copied instead.

        Args:
            steps: The number of steps ``T``, including one for the observations of a reset.

        Raises:
            UsageError: Observations have no fixed size, or ``steps`` is not a positive number.
        """
        if self._ids is not None:
            raise UsageError(
                "a step buffer is for all environments: call step_buffer() on the environments that"
                " were split"
            )
        with self._waiter.lock:
            return self._engine.step_buffer(check_count("steps", steps))

    def stats(self) -> Stats:
        """Return statistics of the run, also in a group of :meth:`split`; see :class:`agym.Stats`.

        It returns at once, unless another thread steps environments itself, as with
        ``backend="serial"``; then it waits for that step.
        """
        with self._waiter.lock:
            return self._life.stats()

    def _warn(self) -> None:
        """Issue the engine's warnings in the caller's frame."""
        while self._notices:
            try:
                notice = self._notices.pop(0)
            except IndexError:
                return  # another thread took the last one
            warnings.warn(notice, RuntimeWarning, stacklevel=4)

    @property
    def env_ids(self) -> list[int]:
        """The ids of a group's environments before the :meth:`split`; else ``0``, ``1``, ...."""
        return [*range(self.num_envs)] if self._ids is None else [*self._ids]

    def split(self, groups: int) -> list[Self]:
        """Split the environments into groups, which share the workers and have the same methods.

        While one group steps, the caller can work on another. A group numbers its environments
        from 0, but errors name them by their ids before the split. Closing one group closes all
        environments.
        """
        if not isinstance(groups, int) or not 1 <= groups <= self.num_envs:
            raise UsageError(
                f"split({groups!r}): use 1 to {self.num_envs} groups, each with an environment"
            )
        if self._ids is not None:
            raise UsageError(
                "a group can't be split again: split all environments into more groups"
            )
        groups_ids: list[list[int]] = [[] for _ in range(groups)]
        next_extra = 0  # the group that gets the next environment of an uneven range
        for span in self._backend.ranges:
            share, remainder = divmod(len(span), groups)
            unassigned = iter(span)
            for k, ids in enumerate(groups_ids):
                ids += islice(unassigned, share + ((k - next_extra) % groups < remainder))
            next_extra += remainder
        return [self._group(ids) for ids in groups_ids]

    def _group(self, ids: list[int]) -> Self:
        """Return a copy of this object with fewer ids."""
        group = object.__new__(type(self))
        group.__dict__.update(self.__dict__)
        group.num_envs = len(ids)
        group._ids = ids
        group._ready = ReadyQueue()
        group._describe_batch()
        return group

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def _attributes(self, name: str, values: list[Any]) -> list[Any]:
        missing = [i for i, value in enumerate(values) if value is Placeholder.MISSING]
        if missing:
            raise AttributeError(f"environments {missing[:8]} have no attribute {name!r}")
        return [
            partial(self[i].call, name) if value is Placeholder.METHOD else value
            for i, value in enumerate(values)
        ]

    def _each(self, name: str, values: Any) -> list[Any]:
        """Return one value per environment; a list or tuple has one for each, as in Gymnasium."""
        if not isinstance(values, list | tuple):
            return [values] * self.num_envs
        if len(values) != self.num_envs:
            raise UsageError(
                f"set_attr({name!r}) got {len(values)} values for {self.num_envs} environments:"
                " pass one per environment, or a single value that is not a list or tuple"
            )
        return list(values)

    def __len__(self) -> int:
        return self.num_envs

    def _index(self, index: int) -> int:
        """Check an environment's index; negative ones count from the end."""
        if isinstance(index, slice):
            raise UsageTypeError(
                "environments can't be sliced: use split(groups), or env_ids= of step, reset, send"
                " and render"
            )
        try:
            index = operator.index(index)
        except TypeError as error:
            raise UsageTypeError(f"envs[{index!r}]: the index must be an integer") from error
        if not -self.num_envs <= index < self.num_envs:
            raise IndexError(f"there is no environment {index}: envs has {self.num_envs}")
        return index % self.num_envs

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying, because environments in a worker cannot be copied."""
        raise UsageTypeError(
            f"{type(self).__name__} can't be pickled or copied, because its workers can't: pass the"
            " factories, and call agym.make where the environments are needed"
        )

    @property
    def tap(self) -> Tap:
        """The interface for plug-ins: hooks, renders, gauges; see :class:`agym.Tap`.

        Raises:
            ClosedError: The environments are not open.
        """
        self._life.opened()
        return self._tap

    @property
    def closed(self) -> bool:
        """Whether the environments are closed."""
        return self._life.closed

    @property
    def backend(self) -> str:
        """The name of the backend; with ``backend="auto"``, the one that was chosen."""
        return self._backend.options.spec.name

    @property
    def workers(self) -> int:
        """Number of workers: processes, threads, event loops or actors.

        With ``backend="auto"``, the caller's thread may step environments, too; then it counts as a
        worker.
        """
        return len(self._backend.ranges)

    def __repr__(self) -> str:
        spec = vars(self).get("spec")
        name = "environments" if spec is None else spec.id
        state = ", closed" if self.closed else "" if self._life.is_open else ", not open"
        kind, count = type(self).__name__, self.num_envs
        remark = self._life.remark
        learned = f"; {remark.removesuffix('.')}" if remark else ""
        if not self.closed and self._life.is_open and self._life.crowded:
            learned += "; its cores are crowded, see stats()"
        return f"{kind}({name}, num_envs={count}, backend={self.backend!r}{state}{learned})"
