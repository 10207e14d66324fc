"""Messages between engine, backends and hosts: operations go down, completions come up.

All messages are plain data that can be pickled. Environments are named by a contiguous range
``start:stop`` of their ids, so a part of an operation is an operation.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import cloudpickle
from gymnasium.spaces.utils import is_space_dtype_shape_equiv

from agym.errors import (
    AgymError,
    EnvError,
    RemoteTraceback,
    SpaceMismatchError,
    UsageError,
    WorkerDied,
    signal_name,
)
from agym.protocol.attributes import MissingAttribute
from agym.protocol.infos.schema import Schema

# Ticket numbers of the first operation, which makes the environments, of the last, and of
# completions that nobody requested: a worker's death.
OPEN, CLOSE, FAULT = 0, -1, -2

# Planes of the slot table. Whole batches alternate between the first two. The third is for
# operations on some environments, the fourth for steps that were sent and not yet received. Then
# come planes that the caller may lease (the previous batch, the latest, the one being written, and
# one spare), then the rollout buffers.
PLANES = 4
SIDE_PLANE, SENT_PLANE = 2, 3
LEASABLE = 4
FIRST_BUFFER = PLANES + LEASABLE

# Kinds that write a row of the slot table; all others return values.
ROW_KINDS = frozenset({"step", "reset"})

# Kinds by which a replacement takes environments over from a worker.
RECYCLING_KINDS = frozenset({"spare", "export", "import_env"})

# Ctrl-C must not interrupt these: an environment would exist twice, or not at all.
UNBROKEN_KINDS = frozenset({"pack", "unpack"})

# Bytes of a pickled exception; a larger one travels as text alone.
MAX_PICKLED = 64 * 1024

# Names of operations in errors, where the kind is not the name.
NAMES = {"close_env": "close", "recreate": "make", "import_env": "make", "export": "close"}


class GivenAction(NamedTuple):
    """The whole action of one environment, for actions that do not fit the slot table.

    It is an entry of ``Operation.each``, in place of the parts without a fixed size.
    """

    action: Any


# Key of a final observation in its info, if the slot table would change the observation's type.
FINAL_OBSERVATION = "agym.final_obs"


class Operation(NamedTuple):
    """An operation on the environments ``start:stop``.

    Attributes:
        number: Number of its ticket; completions carry the same number.
        kind: ``"step"``, ``"reset"``, ``"render"``, ``"call"``, ``"get_attr"``, ``"set_attr"``;
            ``"close_env"``, which closes an environment permanently; ``"recreate"``, which replaces
            it by a new one; ``"export"`` and ``"import_env"``, which transfer its state to a
            replacement; ``"inject_fault"``, which makes its next step fail; ``"pack"`` and
            ``"unpack"``, which move it to another host (``hosts/snapshot.py``). Workers begin
            ``"make"``, ``"restart"`` and ``"spare"`` by themselves when they start.
        start: First environment.
        stop: One past the last environment.
        plane: The plane of the slot table to write (steps and resets).
        each: An argument per environment, in order: seeds, attribute values, restore specs, or the
            parts of actions without a fixed size. ``None`` if there are none.
        shared: An argument for all: reset options; name and arguments of a call; name of an
            attribute, and for ``"set_attr"`` also whether it may be added.
    """

    number: int
    kind: str
    start: int
    stop: int
    plane: int = 0
    each: list[Any] | None = None
    shared: Any = None

    @property
    def span(self) -> tuple[int, int, int]:
        """Number, start and stop, as in the completion."""
        return self.number, self.start, self.stop

    def part(self, start: int, stop: int) -> Operation:
        """Return the part for the environments ``start:stop``."""
        if start == self.start and stop == self.stop:
            return self
        each = self.each and self.each[start - self.start : stop - self.start]
        return self._replace(start=start, stop=stop, each=each)

    def split(self, ids: range) -> Iterator[Operation]:
        """Yield the parts that a worker with the environments ``ids`` runs in one go.

        Sent steps are split by environment, so that each completes by itself.
        """
        for share in self.slice(ids):
            if self.plane == SENT_PLANE:
                yield from (share.part(i, i + 1) for i in range(share.start, share.stop))
            else:
                yield share

    def slice(self, ids: range) -> Iterator[Operation]:
        """Yield the part for the environments ``ids``, if it is not empty."""
        start, stop = max(self.start, ids.start), min(self.stop, ids.stop)
        if start < stop:
            yield self.part(start, stop)

    def given(self) -> Iterator[tuple[str, Any]]:
        """Yield the caller's values, each with its name for error messages."""
        kind, each = self.kind, enumerate(self.each or (), self.start)
        if kind == "step":
            yield from ((f"the action of environment {i}", action) for i, action in each)
        elif kind == "reset":
            yield "the options of reset", self.shared
        elif kind == "call":
            yield f"the arguments of call({self.shared[0]!r})", self.shared
        elif kind == "set_attr":
            what = f"the value of {self.shared[0]!r} for environment"
            yield from ((f"{what} {i}", value) for i, value in each)

    def join(self, behind: Operation) -> Operation:
        """Append the part for the environments that follow these."""
        each = None if self.each is None else [*self.each, *(behind.each or [])]
        return self._replace(stop=behind.stop, each=each)


@dataclass(frozen=True)
class Failure:
    """An environment raised, or ``count`` of them from ``env_id`` on that are one VectorEnv.

    The error travels as text, since not every exception survives a pickle. One that does is in
    ``pickled``. ``misuse`` is the class of a usage error of agym's. If one failure ends several
    operations, all but the first get its ``echo``. ``fault`` is false if the caller asked for an
    attribute that the environment lacks.
    """

    env_id: int
    operation: str
    error: str
    traceback: str
    seed: int | None = None
    episode: int = 0
    step: int = 0
    action: Any = None
    exception: BaseException | None = None
    pickled: bytes = b""
    misuse: type[UsageError] | None = None
    capsule: str = ""
    count: int = 1
    echo: bool = False
    fault: bool = True

    @property
    def env_ids(self) -> range:
        return range(self.env_id, self.env_id + self.count)

    @classmethod
    def of(cls, exception: BaseException, env_id: int, operation: str, **details: Any) -> Failure:
        """Record an exception that was just caught, whatever its ``str`` does."""
        fault = not isinstance(exception, MissingAttribute)
        if not fault and exception.__cause__ is not None:
            exception = exception.__cause__
        try:
            error = f"{type(exception).__name__}: {exception}"
        except Exception:
            error = type(exception).__name__
        text = "".join(traceback.format_exception(exception))
        misuse = None
        if operation == "make" and isinstance(exception, UsageError):
            misuse = type(exception)
        return cls(
            env_id, operation, error, text,
            exception=exception, misuse=misuse, fault=fault, **details,
        )  # fmt: skip

    def portable(self) -> Failure:
        """Remove what may not survive the transfer to another process."""
        return replace(self, exception=None, pickled=_pack(self.exception))

    def to_exception(self) -> AgymError:
        """Build the error to raise, with the environment's own as its cause."""
        who = name_range(self.env_ids)
        if self.misuse:
            return self.misuse(f"{who}: {self.error.partition(': ')[2]}")
        details = f" (seed {self.seed}, episode {self.episode}, step {self.step})"
        if self.count > 1:
            details = ""  # they differ between the environments
        capsule = f"; run `agym replay {self.capsule}`" if self.capsule else ""
        failed = EnvError(
            f"{who} raised in {self.operation}: {self.error}{details}{capsule}",
            env_id=self.env_id,
            env_ids=self.env_ids,
            operation=self.operation,
            seed=self.seed,
            episode=self.episode,
            step=self.step,
            action=self.action,
        )
        failed.capsule = self.capsule
        failed.exception = self.exception or _unpack(self.pickled)
        failed.__cause__ = self.exception or RemoteTraceback(self.traceback)
        return failed


def _pack(exception: BaseException | None) -> bytes:
    """Pickle an exception if it survives that: constructors may take more than ``args``."""
    try:
        packed: bytes = cloudpickle.dumps(exception)
        survives = repr(pickle.loads(packed)) == repr(exception) and len(packed) < MAX_PICKLED
    except Exception:
        survives = False
    return packed if survives else b""


def _unpack(packed: bytes) -> BaseException | None:
    try:
        exception = pickle.loads(packed)
    except Exception:  # none was sent, or its class cannot be imported here
        return None
    return exception if isinstance(exception, BaseException) else None


class EnvLoss(Protocol):
    """The reason why environments are gone."""

    @property
    def env_ids(self) -> range:
        """The environments."""

    def to_exception(self) -> AgymError:
        """Build the error to raise."""


@dataclass(frozen=True)
class WorkerDeath:
    """A worker ended, or was given up.

    Attributes:
        pid: Its process, ``None`` for a thread.
        exitcode: The process's exit code, if known.
        reason: The known cause, for a message.
        operations: Each environment's operation in flight, or ``"idle after ..."``.
        running: The environment that was running, if known.
        late: It was killed because it missed a deadline.
    """

    worker: int
    pid: int | None
    exitcode: int | None
    env_ids: range
    reason: str
    operations: dict[int, str] = field(default_factory=dict)
    running: int | None = None
    late: bool = False

    def to_exception(self) -> AgymError:
        """Build the error to raise."""
        held = name_range(self.env_ids)
        doing = "".join(f"; {what}: {ids}" for what, ids in self._doing())
        running = "" if self.running is None else f"; environment {self.running} was running"
        who = f"worker {self.worker}" + (f" (pid {self.pid})" if self.pid else "")
        remedy = " All others stay usable; restart() brings these back"
        if set(self.operations.values()) == {"make"}:
            remedy = ""
        return WorkerDied(
            f"{who} died, {self.reason}; it held {held}{doing}{running}.{remedy}",
            worker=self.worker,
            pid=self.pid,
            exitcode=self.exitcode,
            env_ids=self.env_ids,
            operations=self.operations,
            culprit=self.running,
        )

    def _doing(self) -> list[tuple[str, str]]:
        by_kind: dict[str, list[int]] = {}
        for i, kind in self.operations.items():
            by_kind.setdefault(kind, []).append(i)
        return [(kind, name_ids(ids)) for kind, ids in by_kind.items()]


def name_ids(ids: Sequence[int]) -> str:
    """Format ids for a message, at most eight."""
    return ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")


def name_range(ids: range) -> str:
    """Format a range of environments for a message."""
    if len(ids) == 1:
        return f"environment {ids[0]}"
    return f"environments {ids[0]} to {ids[-1]}"


def describe_exit(exitcode: int | None) -> str:
    """Describe how a process ended."""
    if exitcode is None:
        return "no exit code yet"
    name = signal_name(exitcode)
    return f"exit code {exitcode}" if name is None else f"killed by {name}"


class EpisodeStart(NamedTuple):
    """The seed and options of a reset.

    Without a seed, ``rng`` is the previous state of the environment's generator, if it has one.
    """

    seed: int | None = None
    rng: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


@dataclass(frozen=True)
class RestoreSpec:
    """The state that a replacement of an environment takes over.

    Attributes:
        anew: The environment in place was used already: make another.
        seed: Seed of the last explicit reset.
        reseed: Seed for the first reset, if that has none.
        options: Options for every automatic reset.
        episode: Episodes begun so far.
        observation: The last known one, ``None`` before the first reset.
        start: How the episode to replay began, ``None`` for no replay.
        actions: The actions since then.
        over: Flags with which the episode ended. ``start`` then only restores random numbers.
    """

    used: bool = True
    seed: int | None = None
    reseed: int | None = None
    options: dict[str, Any] | None = None
    episode: int = 0
    observation: Any = None
    start: EpisodeStart | None = None
    actions: Sequence[Any] = ()
    over: tuple[bool, bool] | None = None


@dataclass
class Payload:
    """The part of a completion beside the rows of the table; most steps have none.

    Attributes:
        infos: Infos by environment that are not empty and not in the table.
        final_infos: Infos of the steps that finished episodes, likewise.
        objects: Observation leaves without a fixed size, by environment.
        final_objects: The same of final observations.
        values: Results of render, call and get_attr, by environment.
        starts: How episodes began, by environment, if that is logged.
        problems: Failures and losses.
        schemas: New schemas of infos, by id.
    """

    infos: dict[int, dict[str, Any]] = field(default_factory=dict)
    final_infos: dict[int, dict[str, Any]] = field(default_factory=dict)
    objects: dict[int, list[Any]] = field(default_factory=dict)
    final_objects: dict[int, list[Any]] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    starts: dict[int, EpisodeStart] = field(default_factory=dict)
    problems: list[Failure | EnvLoss] = field(default_factory=list)
    schemas: dict[int, Schema] = field(default_factory=dict)

    def take(self, ids: Iterable[int]) -> Payload:
        """Remove and return what concerns some environments; problems and schemas stay."""
        taken = Payload()
        for name in ("infos", "final_infos", "objects", "final_objects", "values", "starts"):
            mine, theirs = getattr(self, name), getattr(taken, name)
            if mine:
                theirs.update((i, mine.pop(i)) for i in ids if i in mine)
        return taken

    def merge(self, other: Payload) -> None:
        """Add the payload of another part of the same ticket."""
        self.infos.update(other.infos)
        self.final_infos.update(other.final_infos)
        self.objects.update(other.objects)
        self.final_objects.update(other.final_objects)
        self.values.update(other.values)
        self.starts.update(other.starts)
        self.problems.extend(other.problems)
        self.schemas.update(other.schemas)


class Completion(NamedTuple):
    """The environments ``start:stop`` have completed their part of operation ``number``."""

    number: int
    start: int
    stop: int
    payload: Payload | None = None


@dataclass(frozen=True)
class Description:
    """An environment's spaces and metadata, as its host found them."""

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    spec: Any
    render_mode: str | None
    coroutines: bool = False
    exact: bool = True

    def reads_as(self, other: Description) -> bool:
        """Return whether another environment has the same spec, metadata and render mode."""
        try:
            return (self.spec, self.metadata, self.render_mode) == (
                other.spec, other.metadata, other.render_mode
            )  # fmt: skip
        except Exception:  # arrays, for example, have no truth value
            return False

    def mismatch(self, other: Description) -> SpaceMismatchError | None:
        """Describe the difference that keeps another environment out of a batch with this one.

        Unless they are ``exact``, observation spaces need only have equal shapes and dtypes.
        """
        for name in ("observation_space", "action_space"):
            mine, others = getattr(self, name), getattr(other, name)
            loosely = not self.exact and name == "observation_space"
            if not (is_space_dtype_shape_equiv(mine, others) if loosely else mine == others):
                return SpaceMismatchError(
                    f"its {name} is {others}, that of the first environment is {mine};"
                    " environments of one batch need equal spaces"
                )
        return None


class PerEnvOptions(dict[int, dict[str, Any]]):
    """Options of single environments, by id; the others are reset without options."""


# Options of a reset. A plain dict is for all environments, and for automatic resets too.
Options = dict[str, Any] | PerEnvOptions | None


def lasting(options: Options) -> dict[str, Any] | None:
    """Return the options that automatic resets repeat."""
    return None if isinstance(options, PerEnvOptions) else options


def as_keywords(options: Options, env_id: int) -> dict[str, Any]:
    """Return the options as keyword arguments for ``reset`` of one environment."""
    if not isinstance(options, PerEnvOptions):
        return {"options": options}
    return {"options": options[env_id]} if env_id in options else {}
