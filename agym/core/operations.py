"""The language between engine, executors and hosts: operations go down, outcomes come up.

Everything here is plain data that can be pickled. Environments are always named by a
contiguous range ``start:stop`` of their ids, so a part of an operation is an operation.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agym.errors import AgymError, EnvError, RemoteTraceback, UsageError, WorkerDied

# The numbers of the first ticket, which makes the environments, and of the last.
OPEN, CLOSE = 0, -1

# Planes of the slot table. Whole batches alternate between the first two; then what is about
# some environments, and steps that were sent and wait to be received.
PLANES = 4
SIDE_PLANE, SENT_PLANE = 2, 3

# The kinds that write a row of the slot table; all others answer with values.
ROW_KINDS = frozenset({"step", "reset"})


# What an operation is called in an error, where that is not its kind.
NAMES = {"retire": "close"}


class Operation(NamedTuple):
    """One thing to do to the environments ``start:stop``.

    Attributes:
        number: The ticket that it belongs to; an outcome carries the same number.
        kind: ``"step"``, ``"reset"``, ``"render"``, ``"call"``, ``"get_attr"``, ``"set_attr"``, or
            ``"retire"``, which closes an environment for good.
        start: First environment.
        stop: One past the last environment.
        plane: Which plane of the slot table takes the rows (steps and resets).
        each: An argument per environment, in order: seeds, attribute values, or the parts of
            actions that have no fixed size. ``None`` where there is nothing to say.
        shared: An argument for all: reset options, or the name and arguments of a call.
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
        start, stop = max(self.start, ids.start), min(self.stop, ids.stop)
        if self.plane == SENT_PLANE:
            yield from (self.part(i, i + 1) for i in range(start, stop))
        elif start < stop:
            yield self.part(start, stop)


@dataclass(frozen=True)
class Failure:
    """An environment raised. Travels as text, since not every exception survives a pickle."""

    env_id: int
    operation: str
    error: str
    traceback: str
    seed: int | None = None
    episode: int = 0
    step: int = 0
    action: Any = None
    exception: BaseException | None = None
    misuse: bool = False

    @classmethod
    def of(cls, exception: BaseException, env_id: int, operation: str, **details: Any) -> Failure:
        """Record an exception that was just caught, whatever its ``str`` does."""
        try:
            error = f"{type(exception).__name__}: {exception}"
        except Exception:
            error = type(exception).__name__
        text = "".join(traceback.format_exception(exception))
        misuse = operation == "make" and isinstance(exception, UsageError)
        return cls(env_id, operation, error, text, exception=exception, misuse=misuse, **details)

    def portable(self) -> Failure:
        """Leave out what may not survive the way to another process."""
        return replace(self, exception=None)

    def to_exception(self) -> AgymError:
        """Build the error to raise, with the environment's own as its cause."""
        if self.misuse:
            return UsageError(f"environment {self.env_id}: {self.error.partition(': ')[2]}")
        failed = EnvError(
            f"environment {self.env_id} raised in {self.operation}: {self.error}"
            f" (seed {self.seed}, episode {self.episode}, step {self.step})",
            env_id=self.env_id,
            operation=self.operation,
            seed=self.seed,
            episode=self.episode,
            step=self.step,
            action=self.action,
        )
        failed.__cause__ = self.exception or RemoteTraceback(self.traceback)
        return failed


@dataclass(frozen=True)
class Death:
    """A worker ended while it owed answers."""

    worker: int
    pid: int
    exitcode: int | None
    env_ids: range
    reason: str

    def to_exception(self) -> AgymError:
        """Build the error to raise."""
        first, last = self.env_ids[0], self.env_ids[-1]
        held = f"environment {first}" if first == last else f"environments {first} to {last}"
        return WorkerDied(
            f"worker {self.worker} (pid {self.pid}) died, {self.reason}; it held {held},"
            " all others stay usable",
            worker=self.worker,
            pid=self.pid,
            exitcode=self.exitcode,
            env_ids=self.env_ids,
        )


@dataclass
class Extras:
    """What an outcome carries beside the rows of the table; most steps carry nothing.

    Attributes:
        infos: Info by environment, where it is not empty.
        final_infos: Info of the step that finished an episode, where it is not empty.
        objects: Observation leaves without a fixed size, by environment.
        final_objects: The same of final observations.
        values: Answers of render, call and get_attr, by environment.
        problems: What went wrong.
    """

    infos: dict[int, dict[str, Any]] = field(default_factory=dict)
    final_infos: dict[int, dict[str, Any]] = field(default_factory=dict)
    objects: dict[int, list[Any]] = field(default_factory=dict)
    final_objects: dict[int, list[Any]] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    problems: list[Failure | Death] = field(default_factory=list)

    def take(self, ids: Iterable[int]) -> Extras:
        """Take out what is about some environments; problems stay."""
        taken = Extras()
        for name in ("infos", "final_infos", "objects", "final_objects"):
            mine, theirs = getattr(self, name), getattr(taken, name)
            if mine:
                theirs.update((i, mine.pop(i)) for i in ids if i in mine)
        return taken

    def merge(self, other: Extras) -> None:
        """Take in the extras of another part of the same ticket."""
        self.infos.update(other.infos)
        self.final_infos.update(other.final_infos)
        self.objects.update(other.objects)
        self.final_objects.update(other.final_objects)
        self.values.update(other.values)
        self.problems.extend(other.problems)


class Outcome(NamedTuple):
    """The environments ``start:stop`` have ended their part of operation ``number``."""

    number: int
    start: int
    stop: int
    extras: Extras | None = None


@dataclass(frozen=True)
class Description:
    """What a host found out by making its environments; the first one stands for all."""

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    spec: Any
    render_mode: str | None

    def mismatch(self, other: Description) -> str | None:
        """Say in what another environment differs so that it cannot share a batch with this one."""
        for name in ("observation_space", "action_space"):
            mine, others = getattr(self, name), getattr(other, name)
            if mine != others:
                return (
                    f"its {name} is {others}, that of the first environment is {mine};"
                    " environments of one batch need equal spaces"
                )
        return None
