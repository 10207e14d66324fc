"""A ticket: one call of the caller, from its dispatch to its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from agym.engine.batches.out_target import OutTarget
from agym.engine.batches.ready import ReadyQueue
from agym.errors import StepTimeout
from agym.protocol.arguments import Ids
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.failures import name_envs
from agym.protocol.messages.operations import Message, Operation


@dataclass(frozen=True, slots=True)
class Receive(Message):
    """Wait for a batch of sent steps; it never leaves the engine."""

    name: ClassVar[str] = "recv"


class Ticket:
    """What the engine knows of one call.

    Defaults are class attributes, because a ticket is made for every step.

    Attributes:
        number: Its number, carried by every part of the operation and every completion.
        message: What to do.
        kind: Its class.
        ids: The environments of the call.
        remaining: How many of them have not ended. It counts on after a timeout.
        done: Whether the result or the error is there.
        error: The error to raise instead of returning a result.
        expired: Whether the deadline has passed.
        ended: The environments that have ended, kept where a deadline or recovery needs it.
        deadline: ``time.monotonic()`` at which the call times out, ``None`` for never.
        about: The environments whose observations a reset returns.
        plane: The plane of the slot table that takes the rows.
        ready: The queue that environments enter as they end (a step that was sent).
        out: The caller's own arrays for the result.
        suspended: Whether the deadline is suspended while environments are being replaced.
    """

    done = False
    expired = False
    value: Any = None
    error: BaseException | None = None
    payload: Payload | None = None
    about: Ids = ()
    plane = 0
    deadline: float | None = None
    ended: list[range] | None = None
    ready: ReadyQueue | None = None
    out: OutTarget | None = None
    suspended = False
    _callbacks: tuple[Callable[[], None], ...] = ()

    def __init__(self, number: int, message: Message, ids: Ids) -> None:
        self.number = number
        self.message = message
        self.kind = type(message)
        self.ids = ids
        self.remaining = len(ids)

    @property
    def operation(self) -> Operation:
        """The operation, over the range from its first to its last environment."""
        return Operation(self.number, self.ids[0], self.ids[-1] + 1, self.message)

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result or the error, unless the ticket is done already."""
        if self.done:
            return
        self.value = value
        self.error = error
        self.done = True
        for callback in self._callbacks:
            callback()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call a function when the ticket is done, which it must not be yet."""
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
        message = f"{name} missed its deadline in {name_envs(late)}; late answers are dropped"
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
