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
    def span(self) -> tuple[int, int, int]:
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

    def join(self, behind: Operation) -> Operation:
        """Append the part for the environments that follow these."""
        message = self.message.join(behind.message)
        return Operation(self.number, self.start, behind.stop, message)

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

    per_env: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        return ""

    @property
    def writes_rows(self) -> bool:
        return False

    @property
    def slow(self) -> bool:
        return False

    @property
    def moves(self) -> bool:
        return False

    @property
    def replaces(self) -> bool:
        return False

    @property
    def starts(self) -> bool:
        return False

    @property
    def values(self) -> Sequence[Any] | None:
        """The values per environment; ``None`` if there are none."""
        return None if self.per_env is None else getattr(self, self.per_env)

    def pick(self, positions: Sequence[int]) -> Self:
        """Return the message for some of the environments, by their positions."""
        values = self.values
        return self if values is None else self._with([values[k] for k in positions])

    def join(self, behind: Self) -> Self:
        """Append the values for the environments that follow these."""
        values = self.values
        return self if values is None else self._with([*values, *(behind.values or ())])

    def _with(self, values: list[Any]) -> Self:
        assert self.per_env is not None
        return replace(self, **{self.per_env: values})

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

    name: ClassVar[str] = "step"
    writes_rows: ClassVar[bool] = True
    per_env: ClassVar[str | None] = "parts"

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

    name: ClassVar[str] = "reset"
    writes_rows: ClassVar[bool] = True
    starts: ClassVar[bool] = True
    per_env: ClassVar[str | None] = "seeds"

    plane: int
    seeds: Sequence[int | None] | None = None
    options: Options = None

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        yield "the options of reset", self.options


@dataclass(frozen=True, slots=True)
class Render(Message):
    """Render; ``shelf`` tells the host which frames the caller has released."""

    name: ClassVar[str] = "render"

    shelf: Any = None


@dataclass(frozen=True, slots=True)
class Call(Message):
    """Call a method or read an attribute; a function is called with the environment."""

    name: ClassVar[str] = "call"

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

    name: ClassVar[str] = "get_attr"

    attribute: str

    def arguments(self, position: int) -> tuple[Any, ...]:
        return (self.attribute,)


@dataclass(frozen=True, slots=True)
class SetAttr(Message):
    """Set an attribute to a value per environment; ``create`` allows a new one."""

    name: ClassVar[str] = "set_attr"
    per_env: ClassVar[str | None] = "assigned"

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
        proof: The proof of how to copy the environment, if it leaves this host.
        leaves: The environment moves to another host. So nothing is proven here, and between two
            episodes it is enough to know how the next one starts.
    """

    name: ClassVar[str] = "snapshot"
    per_env: ClassVar[str | None] = "planes"

    planes: list[int]
    codecs: Any = None
    proof: Any = None
    leaves: bool = False

    @property
    def slow(self) -> bool:
        return self.leaves

    @property
    def moves(self) -> bool:
        return self.leaves


@dataclass(frozen=True, slots=True)
class Load(Message):
    """Continue environments, each from a state, which any host may have saved.

    With a plane, a state replaces the state of the environment, and its row is written. Without,
    the environment itself is replaced, unless it is fresh: after a fault, on request, or because it
    comes from another host. Each environment then returns ``None`` if it continues where it was, or
    else why its episode is lost: ``""`` if the state intends that.

    Attributes:
        states: The states.
        plane: The plane of the slot table to write; ``None`` to replace environments.
        codecs: The codecs that the caller registered.
        arrives: The environment comes from another host.
        fresh: The current environments were just made, and stay.
    """

    per_env: ClassVar[str | None] = "states"

    states: list[Any]
    plane: int | None = None
    codecs: Any = None
    arrives: bool = False
    fresh: bool = False

    @property
    def remakes(self) -> bool:
        """Whether the current environments are replaced by new ones."""
        return self.replaces and not self.fresh

    @property
    def name(self) -> str:
        return "make" if self.replaces else "restore"

    @property
    def writes_rows(self) -> bool:
        return self.plane is not None

    @property
    def starts(self) -> bool:
        return self.plane is not None

    @property
    def replaces(self) -> bool:
        return self.plane is None and not self.arrives

    @property
    def slow(self) -> bool:
        return self.plane is None

    @property
    def moves(self) -> bool:
        return self.arrives

    def given(self, first: int) -> Iterator[tuple[str, Any]]:
        each = enumerate(self.states, first)
        yield from ((f"the snapshot for environment {i}", state) for i, state in each)
        yield "a codec of agym.snapshot_codecs.register", self.codecs


@dataclass(frozen=True, slots=True)
class CloseEnv(Message):
    """Close environments permanently, while others of the host continue."""

    name: ClassVar[str] = "close"


@dataclass(frozen=True, slots=True)
class InjectFault(Message):
    """Make the next step of environments fail."""

    name: ClassVar[str] = "inject_fault"
    per_env: ClassVar[str | None] = "faults"

    faults: list[Any]


# ---------------------------------------------------------------- for a whole worker


@dataclass(frozen=True, slots=True)
class Make(Message):
    """Make the environments of a worker, with the options of its backend."""

    name: ClassVar[str] = "make"

    options: Any = None


@dataclass(frozen=True, slots=True)
class Restart(Make):
    """Make the environments again, in place of a worker that has ended."""

    slow: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Standby(Make):
    """Make the environments again for a worker to be recycled, and prove ways to copy them.

    Attributes:
        codecs: The codecs that the caller registered; ``None`` to prove nothing.
    """

    moves: ClassVar[bool] = True

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

    name: ClassVar[str] = "attach"

    num_envs: int
    final: bool
    leases: bool = False
    gauges: Any = None


@dataclass(frozen=True, slots=True)
class Extend(Message):
    """Use planes that were added to the slot table."""

    name: ClassVar[str] = "extend"

    planes: range


@dataclass(frozen=True, slots=True)
class Shrink(Message):
    """Drop the added planes that start with number ``first``."""

    name: ClassVar[str] = "shrink"

    first: int


@dataclass(frozen=True, slots=True)
class Close(Message):
    """Close all environments of a worker, and end it."""

    name: ClassVar[str] = "close"
