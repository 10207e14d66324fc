"""A ticket: one call of the caller, from its dispatch to its result or its deadline.

A sent step names a queue, which its environments enter as they end.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from agym.core.engine.batches.out_target import OutTarget
from agym.core.engine.batches.ready_queue import ReadyQueue
from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.messages.failures import name_envs
from agym.core.protocol.messages.operations import Message, Operation
from agym.errors import StepTimeout

# A replacement may take this many deadlines, and at least this many seconds, to be made.
RECREATE_DEADLINES, RECREATE_SECONDS = 10, 10.0


class Ticket:
    """The engine's record of one call.

    Defaults are class attributes, because a ticket is made for every step.

    Attributes:
        number: Its number, carried by every part of the operation and every completion.
        message: The message to run.
        kind: Its class.
        ids: The environments of the call.
        remaining: How many of them have not ended. Counted down even after a timeout.
        done: Whether the result or the error is there.
        error: The error to raise instead of returning a result.
        expired: Whether the deadline has passed.
        ended: The environments that have ended, kept where a deadline or recovery needs it.
        deadline: ``time.monotonic()`` at which the call times out, ``None`` for never.
        about: The environments whose observations a reset returns.
        plane: The plane of the slot table that receives the rows of all environments; ``BESIDE``
            if the dispatcher chooses a plane for each, as it sends the operation.
        planes: The planes that it chose.
        ready: The queue that environments enter as they end (a step that was sent).
        out: The caller's own arrays for the result.
        suspended: Whether the deadline is suspended while environments are being replaced.
        alone: A step of all environments without follow-up, sent while nothing was under way.
    """

    done = False
    expired = False
    value: Any = None
    error: BaseException | None = None
    payload: Payload | None = None
    about: Ids = ()
    plane = 0
    planes: dict[int, int]
    deadline: float | None = None
    ended: list[range] | None = None
    ready: ReadyQueue | None = None
    out: OutTarget | None = None
    suspended = False
    alone = False
    _callbacks: tuple[Callable[[], None], ...] = ()

    def __init__(self, number: int, message: Message, ids: Ids) -> None:
        self.number = number
        self.message = message
        self.kind = type(message)
        self.ids = ids
        self.remaining = len(ids)

    def part(self, run: range) -> Operation:
        """Return the operation of some of its environments, which are neighbours."""
        first = bisect_left(self.ids, run.start)
        message = self.message.pick(range(first, first + len(run)))
        return Operation(self.number, run.start, run.stop, message)

    def plane_of(self, env_id: int) -> int:
        """Return the plane that receives an environment's row."""
        return self.plane if self.plane >= 0 else self.planes[env_id]

    def planes_of(self, ids: Ids) -> list[int]:
        """Return the planes that receive the rows of environments."""
        if self.plane >= 0:
            return [self.plane] * len(ids)
        return [*map(self.planes.__getitem__, ids)]

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result or the error, unless the ticket is done already."""
        # A late completion may finish a ticket that has already expired or was closed.
        if self.done:
            return
        self.value = value
        self.error = error
        self.done = True
        for callback in self._callbacks:
            callback()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call a function when the ticket is done, which must not be done yet."""
        self._callbacks += (callback,)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks = tuple(other for other in self._callbacks if other != callback)

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value

    def expire(self) -> None:
        """Fail with a :class:`StepTimeout` that names the late environments."""
        self.expired = True
        late = self.late()
        name = self.message.name
        message = f"{name} missed its deadline in {name_envs(late)}; late results are dropped"
        self.finish(error=StepTimeout(message, operation=name, env_ids=late))

    def suspend(self) -> None:
        self.deadline = None
        self.suspended = True

    def has_ended(self, env_id: int) -> bool:
        """Whether an environment is known to have ended."""
        return any(env_id in ids for ids in self.ended or ())

    def late(self) -> list[int]:
        """Return the environments that have not ended, as far as ``ended`` is kept."""
        ended = {i for ids in self.ended or () for i in ids}
        return [i for i in self.ids if i not in ended]


class Deadlines:
    """Sets the deadlines of calls, suspends them, and starts them again.

    Attributes:
        timeout: Seconds for one operation, ``None`` for no deadlines.
        replacement_seconds: How long a replacement may take: making an environment takes longer
            than a step.
        asides: How many renders for observers are under way, which suspend the caller's deadlines.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.replacement_seconds = max(RECREATE_SECONDS, RECREATE_DEADLINES * (timeout or 0.0))
        self.asides = 0

    def start(self, ticket: Ticket) -> None:
        """Give a call its deadline."""
        if self.timeout is not None:
            ticket.deadline = time.monotonic() + self.timeout
            if self.asides:
                ticket.suspend()

    def start_replacement(self, ticket: Ticket) -> None:
        """Give a replacement its own, longer deadline."""
        if self.timeout is not None:
            ticket.deadline, ticket.ended = time.monotonic() + self.replacement_seconds, []

    def resume(self, ticket: Ticket) -> None:
        """Start a suspended deadline again."""
        if ticket.suspended and self.timeout is not None:
            ticket.suspended = False
            ticket.deadline = time.monotonic() + self.timeout
