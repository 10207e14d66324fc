"""The language between engine, backends and hosts: operations go down, outcomes come up.

Everything here is plain data that can be pickled. Environments are always named by a
contiguous range ``start:stop`` of their ids, so a part of an operation is an operation.
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

# The numbers of the first ticket, which makes the environments, of the last, and of outcomes that
# nobody asked for: a worker's death.
OPEN, CLOSE, FAULT = 0, -1, -2

# Planes of the slot table. Whole batches alternate between the first two; then what is about
# some environments, and steps that were sent and wait to be received. Behind these may be some
# that the caller may keep: the batch before, the latest, that which is written, and one more. The
# last are the rollout buffers.
PLANES = 4
SIDE_PLANE, SENT_PLANE = 2, 3
LEASABLE = 4
FIRST_BUFFER = PLANES + LEASABLE

# The kinds that write a row of the slot table; all others answer with values.
ROW_KINDS = frozenset({"step", "reset"})


# Ctrl-C must not break these off: an environment would be in two places, or in none.
UNBROKEN_KINDS = frozenset({"pack", "unpack"})

# An exception that carries more bytes than this travels as text alone.
MAX_PICKLED = 64 * 1024

# What an operation is called in an error, where that is not its kind.
NAMES = {"close_env": "close", "recreate": "make", "import_env": "make", "export": "close"}


class GivenAction(NamedTuple):
    """The whole action of one environment, for actions that have no place in the slot table.

    It stands in ``each`` where otherwise the parts without a fixed size are.
    """

    action: Any


# Under this key, a final observation travels with the info that it came with, where the table
# would give it back as another type than it had.
FINAL_OBSERVATION = "agym.final_obs"


class Operation(NamedTuple):
    """One thing to do to the environments ``start:stop``.

    Attributes:
        number: The ticket that it belongs to; an outcome carries the same number.
        kind: ``"step"``, ``"reset"``, ``"render"``, ``"call"``, ``"get_attr"``, ``"set_attr"``;
            ``"close_env"``, which closes an environment for good; ``"recreate"``, which replaces
            it by a new one; ``"export"`` and ``"import_env"``, which hand its state over to a
            replacement; ``"inject_fault"``, which makes its next step fail; ``"pack"`` and
            ``"unpack"``, which move it to another host (``hosts/snapshot.py``).
        start: First environment.
        stop: One past the last environment.
        plane: Which plane of the slot table takes the rows (steps and resets).
        each: An argument per environment, in order: seeds, attribute values, revivals, or the
            parts of actions that have no fixed size. ``None`` where there is nothing to say.
        shared: An argument for all: reset options, the name and arguments of a call, or the name
            of an attribute, to set which goes with whether it may be added.
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
        """Number, start and stop: what an outcome repeats."""
        return self.number, self.start, self.stop

    def part(self, start: int, stop: int) -> Operation:
        """Cut out the part for the environments ``start:stop``."""
        if start == self.start and stop == self.stop:
            return self
        each = self.each and self.each[start - self.start : stop - self.start]
        return self._replace(start=start, stop=stop, each=each)

    def pieces(self, ids: range) -> Iterator[Operation]:
        """Cut out what a worker with some environments runs in one go.

        Of a step that was sent, each environment is to end by itself.
        """
        for share in self.shares(ids):
            if self.plane == SENT_PLANE:
                yield from (share.part(i, i + 1) for i in range(share.start, share.stop))
            else:
                yield share

    def shares(self, ids: range) -> Iterator[Operation]:
        """Cut out what some neighbouring environments do, if it is for any of them."""
        start, stop = max(self.start, ids.start), min(self.stop, ids.stop)
        if start < stop:
            yield self.part(start, stop)

    def given(self) -> Iterator[tuple[str, Any]]:
        """What the caller has given, with a name for each in a message."""
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
        """Add a part of the same operation for the environments behind these."""
        each = None if self.each is None else [*self.each, *(behind.each or [])]
        return self._replace(stop=behind.stop, each=each)


@dataclass(frozen=True)
class Failure:
    """An environment raised, or ``count`` of them from ``env_id`` on that are one program.

    It travels as text, since not every exception survives a pickle.

    An exception that does comes along in ``pickled``; ``misuse`` is the class of an error of ours.
    Where several operations end with the same failure, all but the first are told its ``echo``.
    It is no ``fault`` of the environment that somebody asks for an attribute which it lacks.
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
        """The environments, as a range."""
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
        """Leave out what may not survive the way to another process."""
        return replace(self, exception=None, pickled=_pack(self.exception))

    def to_exception(self) -> AgymError:
        """Build the error to raise, with the environment's own as its cause."""
        who = name_range(self.env_ids)
        if self.misuse:
            return self.misuse(f"{who}: {self.error.partition(': ')[2]}")
        details = f" (seed {self.seed}, episode {self.episode}, step {self.step})"
        if self.count > 1:
            details = ""  # each has its own
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
    """Pickle an exception if it comes back as it was: constructors may ask for more than args."""
    try:
        packed: bytes = cloudpickle.dumps(exception)
        survives = repr(pickle.loads(packed)) == repr(exception) and len(packed) < MAX_PICKLED
    except Exception:
        survives = False
    return packed if survives else b""


def _unpack(packed: bytes) -> BaseException | None:
    try:
        exception = pickle.loads(packed)
    except Exception:  # none came, or what it needs cannot be imported here
        return None
    return exception if isinstance(exception, BaseException) else None


class EnvLoss(Protocol):
    """Why environments are gone."""

    @property
    def env_ids(self) -> range:
        """Which ones."""

    def to_exception(self) -> AgymError:
        """Build the error to raise."""


@dataclass(frozen=True)
class WorkerDeath:
    """A worker has ended, or was given up.

    Attributes:
        worker: Its index.
        pid: Its process, ``None`` for a thread.
        exitcode: How the process ended, as far as is known.
        env_ids: The environments that it held.
        reason: What is known about it, for a message.
        operations: What each environment was doing, if not nothing: in flight, or after what.
        running: The environment that was running, if that can be told.
        late: It was ended by force, since a deadline was missed.
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
        """Who was doing what, for a message."""
        by_kind: dict[str, list[int]] = {}
        for i, kind in self.operations.items():
            by_kind.setdefault(kind, []).append(i)
        return [(kind, name_ids(ids)) for kind, ids in by_kind.items()]


def name_ids(ids: Sequence[int]) -> str:
    """Some ids for a message, not too many."""
    return ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")


def name_range(ids: range) -> str:
    """Neighbours for a message."""
    if len(ids) == 1:
        return f"environment {ids[0]}"
    return f"environments {ids[0]} to {ids[-1]}"


def describe_exit(exitcode: int | None) -> str:
    """How a process ended, for a message."""
    if exitcode is None:
        return "no exit code yet"
    name = signal_name(exitcode)
    return f"exit code {exitcode}" if name is None else f"killed by {name}"


class EpisodeStart(NamedTuple):
    """How an episode began.

    Attributes:
        seed: The seed of its reset.
        rng: Else the state of the environment's own random numbers before it, if it has any.
        options: The options of its reset.
    """

    seed: int | None = None
    rng: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


@dataclass(frozen=True)
class RestoreSpec:
    """What an environment is to take over that is put in the place of another.

    Attributes:
        anew: There is one in its place already that was used: make another.
        seed: Seed of the last explicit reset.
        reseed: Seed for the first reset, if that brings none.
        options: Options for every automatic reset.
        episode: Episodes begun so far.
        observation: The last known one, ``None`` if there is none: it was not reset.
        start: How the episode to replay began, ``None`` if none is to be.
        actions: The actions since then.
        over: How the episode ended that is over, and ``start`` is where random numbers go on.
    """

    anew: bool = True
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
    """What an outcome carries beside the rows of the table; most steps carry nothing.

    Attributes:
        infos: Info by environment, where it is not empty and not in the table.
        final_infos: Info of the step that finished an episode, likewise.
        objects: Observation leaves without a fixed size, by environment.
        final_objects: The same of final observations.
        values: Answers of render, call and get_attr, by environment.
        starts: How episodes began, where these are logged, by environment.
        problems: What went wrong.
        schemas: What a host writes infos by from now on, by id.
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
        """Take out what is about some environments; problems and schemas stay."""
        taken = Payload()
        for name in ("infos", "final_infos", "objects", "final_objects", "values", "starts"):
            mine, theirs = getattr(self, name), getattr(taken, name)
            if mine:
                theirs.update((i, mine.pop(i)) for i in ids if i in mine)
        return taken

    def merge(self, other: Payload) -> None:
        """Take in the extras of another part of the same ticket."""
        self.infos.update(other.infos)
        self.final_infos.update(other.final_infos)
        self.objects.update(other.objects)
        self.final_objects.update(other.final_objects)
        self.values.update(other.values)
        self.starts.update(other.starts)
        self.problems.extend(other.problems)
        self.schemas.update(other.schemas)


class Completion(NamedTuple):
    """The environments ``start:stop`` have ended their part of operation ``number``."""

    number: int
    start: int
    stop: int
    extras: Payload | None = None


@dataclass(frozen=True)
class Description:
    """What an environment is like, as its host found out by making it."""

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    spec: Any
    render_mode: str | None
    coroutines: bool = False
    exact: bool = True

    def reads_as(self, other: Description) -> bool:
        """Whether another environment shows the same spec, metadata and render mode."""
        try:
            return (self.spec, self.metadata, self.render_mode) == (
                other.spec, other.metadata, other.render_mode
            )  # fmt: skip
        except Exception:  # arrays, for one, do not compare to a truth value
            return False

    def mismatch(self, other: Description) -> SpaceMismatchError | None:
        """Say in what another environment differs so that it cannot share a batch with this one.

        Unless they are ``exact``, observation spaces need only have the same shapes and dtypes.
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
    """Options of single environments, by id; one that is not named is reset without any."""


# Options of a reset: the same for every environment and for its automatic resets too, or once.
Options = dict[str, Any] | PerEnvOptions | None


def lasting(options: Options) -> dict[str, Any] | None:
    """What automatic resets repeat."""
    return None if isinstance(options, PerEnvOptions) else options


def as_keywords(options: Options, env_id: int) -> dict[str, Any]:
    """How ``reset`` of one environment is given its options."""
    if not isinstance(options, PerEnvOptions):
        return {"options": options}
    return {"options": options[env_id]} if env_id in options else {}
