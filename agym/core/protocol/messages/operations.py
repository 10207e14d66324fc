"""Operations: the engine's requests to environments, one record per kind.

An :class:`Operation` is the envelope: a number, a contiguous range of environments, and the message
with the request. A part of an operation is an operation. All of them are plain data that can be
pickled. Each message has a program in ``hosts/slot.py``, and a handler in
``hosts/vector/vector_host.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

from agym.core.protocol.messages.resets import Options

# Reserved numbers: the operation that makes the environments, the operation that closes them, and
# completions without an operation, such as a worker's death.
OPEN, CLOSE, FAULT = 0, -1, -2

# An operation's number, start and stop.
Span = tuple[int, int, int]


class Operation(NamedTuple):
    """A message to the environments ``start:stop``.

    Attributes:
        number: Number of its ticket; completions carry the same number.
        start: First environment.
        stop: One past the last environment.
        message: The request.
    """

    number: int
    start: int
    stop: int
    message: Message

    @property
    def span(self) -> Span:
        """Number, start and stop, as in the completion."""
        return self.number, self.start, self.stop

    def part(self, start: int, stop: int) -> Operation:
        """Return the part for the environments ``start:stop``."""
        if start == self.start and stop == self.stop:
            return self
        message = self.message.pick(range(start - self.start, stop - self.start))
        return Operation(self.number, start, stop, message)

    def split(self, ids: range, *, sent_by_env: bool = True) -> list[Operation]:
        """Return the parts that a worker with the environments ``ids`` runs together, if any.

        With ``sent_by_env``, sent steps are split by environment, so each completes separately.
        """
        start = max(ids.start, self.start)
        stop = min(ids.stop, self.stop)
        if sent_by_env and type(self.message) is Step and self.message.sent:
            return [self.part(i, i + 1) for i in range(start, stop)]
        return [self.part(start, stop)] if start < stop else []

    def given(self) -> Iterator[tuple[str, Any]]:
        """Yield the caller's values, each with its name for error messages."""
        return self.message.given(self.start)


@dataclass(frozen=True, slots=True)
class Message:
    """A request to environments; one subclass per kind.

    Attributes:
        name: The name for errors.
        writes_rows: It writes rows of the slot table; other messages return values.
        slow: It has the longer deadline of a replacement or a move.
        moves: It is part of moving environments to another worker.
        replaces: It replaces environments, after a fault or on request.
        starts: After it, an environment is in an episode and can be stepped.
        per_env: The field that has a value per environment, in order.
    """

    name: ClassVar[str] = ""
    writes_rows: ClassVar[bool] = False
    slow: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    starts: ClassVar[bool] = False
    per_env: ClassVar[str | None] = None

    @property
    def values(self) -> Sequence[Any] | None:
        """The values per environment; ``None`` if there are none."""
        return None if self.per_env is None else getattr(self, self.per_env)

    def pick(self, positions: Sequence[int]) -> Self:
        """Return the message for some of the environments, by their positions."""
        name, values = self.per_env, self.values
        if name is None or values is None:
            return self
        return replace(self, **{name: [values[k] for k in positions]})

    def at(self, plane: int) -> Self:
        """Return the message with a plane, for messages that write rows."""
        fields: dict[str, Any] = {"plane": plane}
        return replace(self, **fields)

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        """Yield the caller's values, each with its name; ``first`` is the first environment."""
        return iter(())

    def arguments(self, position: int) -> tuple[Any, ...]:
        """Return the arguments for one environment, so that the call can be repeated."""
        return ()


class GivenAction(NamedTuple):
    """The whole action of one environment, for actions that do not fit the slot table.

    It is an entry of ``Step.parts``, in place of the parts without a fixed size.
    """

    action: Any


@dataclass(frozen=True, slots=True)
class Step(Message):
    """Step, with the actions in the slot table.

    Attributes:
        plane: The plane of the slot table to write.
        parts: The parts of each action that have no fixed size; ``None`` if there are none.
        sent: It was sent, so each environment completes it separately.
    """

    name = "step"
    writes_rows = True
    per_env = "parts"

    plane: int
    parts: list[Any] | None = None
    sent: bool = False

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        each = enumerate(self.parts or (), first)
        return ((f"the action of environment {i}", action) for i, action in each)


@cache
def plain_step(plane: int) -> Step:
    """Return a step whose actions are all in the table, like most steps; cached, for speed."""
    return Step(plane)


@dataclass(frozen=True, slots=True)
class Reset(Message):
    """Reset.

    Attributes:
        plane: The plane of the slot table to write.
        seeds: A seed per environment, ``None`` for no seeds.
        options: Options of the reset.
    """

    name = "reset"
    writes_rows = starts = True
    per_env = "seeds"

    plane: int
    seeds: Sequence[int | None] | None = None
    options: Options = None

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        yield "the options of reset", self.options


@dataclass(frozen=True, slots=True)
class Render(Message):
    """Render; ``shelf`` tells the host which frames the caller has released."""

    name = "render"

    shelf: Any = None


@dataclass(frozen=True, slots=True)
class Call(Message):
    """Call a method or read an attribute; a function is called with the environment."""

    name = "call"

    method: Any
    positional: tuple[Any, ...] = ()
    keywords: dict[str, Any] | None = None

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        yield f"the arguments of call({self.method!r})", self.arguments(0)

    def arguments(self, position: int) -> tuple[Any, ...]:
        return self.method, self.positional, self.keywords or {}


@dataclass(frozen=True, slots=True)
class GetAttr(Message):
    """Read an attribute."""

    name = "get_attr"

    attribute: str

    def arguments(self, position: int) -> tuple[Any, ...]:
        return (self.attribute,)


@dataclass(frozen=True, slots=True)
class SetAttr(Message):
    """Set an attribute to a value per environment; ``create`` allows a new one."""

    name = "set_attr"
    per_env = "assigned"

    attribute: str
    assigned: list[Any]
    create: bool = True

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        what = f"the value of {self.attribute!r} for environment"
        return ((f"{what} {i}", value) for i, value in enumerate(self.assigned, first))

    def arguments(self, position: int) -> tuple[Any, ...]:
        return self.attribute, self.assigned[position]


# ---------------------------------------------------------------- states


@dataclass(frozen=True, slots=True)
class Save(Message):
    """Return the state of each environment, or the reason (a string) why there is none.

    Attributes:
        planes: For each environment, the plane of the slot table with its last observation, which
            the dispatcher fills in.
        codecs: The codecs that the caller registered.
    """

    name = "snapshot"
    per_env = "planes"

    planes: list[int]
    codecs: Any = None


@dataclass(frozen=True, slots=True)
class Export(Save):
    """The same for environments that move to another host.

    Nothing is proven here, and between two episodes it is enough to know how the next one starts.

    Attributes:
        proof: The proof of how to copy the environment, if there is one.
    """

    slow = moves = True

    proof: Any = None


@dataclass(frozen=True, slots=True)
class Load(Message):
    """Continue environments, each from a state, which any host may have saved, and write its row.

    Attributes:
        states: The states.
        plane: The plane of the slot table to write; ``None`` in subclasses, which write no row.
        codecs: The codecs that the caller registered.
    """

    name = "restore"
    writes_rows = starts = True
    per_env = "states"

    states: list[Any]
    plane: int | None = None
    codecs: Any = None

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        each = enumerate(self.states, first)
        yield from ((f"the snapshot for environment {i}", state) for i, state in each)
        yield "a codec of agym.snapshot_codecs.register", self.codecs


@dataclass(frozen=True, slots=True)
class Import(Load):
    """Take environments over from another host.

    Each returns ``None`` if it continues where it was, or else why its episode is lost: ``""`` if
    the state intends that.
    """

    writes_rows = starts = False
    slow = moves = True


@dataclass(frozen=True, slots=True)
class Replace(Load):
    """Make environments again, after a fault or on request; they return the same as ``Import``.

    Attributes:
        fresh: The current environments were just made, and stay.
    """

    name = "make"
    writes_rows = starts = False
    slow = replaces = True

    fresh: bool = False


@dataclass(frozen=True, slots=True)
class CloseEnv(Message):
    """Close environments permanently, while others of the host continue."""

    name = "close"


@dataclass(frozen=True, slots=True)
class InjectFault(Message):
    """Make the next step of environments fail."""

    name = "inject_fault"
    per_env = "faults"

    faults: list[Any]


# ---------------------------------------------------------------- for a whole worker


@dataclass(frozen=True, slots=True)
class Make(Message):
    """Make the environments of a worker, with the options of its backend."""

    name = "make"

    options: Any = None


@dataclass(frozen=True, slots=True)
class Restart(Make):
    """Make the environments again, in place of a worker that has ended."""

    slow = True


@dataclass(frozen=True, slots=True)
class Standby(Make):
    """Make the environments again for a worker to be recycled, and prove ways to copy them.

    Attributes:
        codecs: The codecs that the caller registered; ``None`` to prove nothing.
    """

    moves = True

    codecs: Any = None


@dataclass(frozen=True, slots=True)
class Attach(Message):
    """Use a slot table.

    Attributes:
        num_envs: Number of its rows.
        final: It has final observations.
        leases: It has planes that the caller leases.
        gauges: Counts to continue from, if the worker does not share the table's memory.
    """

    name = "attach"

    num_envs: int
    final: bool
    leases: bool = False
    gauges: Any = None


@dataclass(frozen=True, slots=True)
class Extend(Message):
    """Use planes that were added to the slot table."""

    name = "extend"

    planes: range


@dataclass(frozen=True, slots=True)
class Shrink(Message):
    """Drop the added planes that start with number ``first``."""

    name = "shrink"

    first: int


@dataclass(frozen=True, slots=True)
class Close(Message):
    """Close all environments of a worker, and end it."""

    name = "close"
