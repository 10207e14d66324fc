"""A ticket: one call of the caller, from its dispatch to its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agym.engine.batches.out_target import OutTarget
from agym.engine.batches.ready import ReadyQueue
from agym.errors import StepTimeout
from agym.protocol.arguments import Ids
from agym.protocol.messages import OPEN, Operation, Payload, name_ids


class Ticket:
    """What the engine knows of one call.

    What most tickets never get is a class attribute, since one is made for every step.

    Attributes:
        number: Its number, which every part of the operation and every outcome carries.
        kind: The operation.
        ids: The environments that it is for.
        remaining: How many of them have not ended yet. It goes on counting after a timeout.
        done: The result or the error is there.
        error: What to raise instead of giving a result.
        expired: It is done because its deadline has passed.
        ended: Which environments have ended, where it may matter who is late.
        deadline: ``time.monotonic()`` at which the call times out, ``None`` for never.
        about: Whose observations its result has (of a reset).
        plane: Which plane of the slot table takes its rows.
        ready: Where its environments go, each when it has ended (a step that was sent).
        out: The caller's own arrays for the result.
        operation: What is done, over the range from its first to its last environment.
        followed: When it was dispatched, if it is followed on its way (``engine/stats.py``).
        suspended: Its deadline is held off while environments are being replaced.
    """

    done = False
    expired = False
    value: Any = None
    error: BaseException | None = None
    extras: Payload | None = None
    about: Ids = ()
    plane = 0
    deadline: float | None = None
    ended: list[range] | None = None
    ready: ReadyQueue | None = None
    out: OutTarget | None = None
    operation = Operation(OPEN, "make", 0, 0)
    followed = 0
    suspended = False
    _callbacks: tuple[Callable[[], None], ...] = ()

    def __init__(self, number: int, kind: str, ids: Ids) -> None:
        """Begin with nothing done."""
        self.number = number
        self.kind = kind
        self.ids = ids
        self.remaining = len(ids)

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set result or error, once: what comes later is dropped."""
        if self.done:
            return
        self.value = value
        self.error = error
        self.done = True
        for callback in self._callbacks:
            callback()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Have a function called when the ticket is done, which it must not be yet."""
        self._callbacks += (callback,)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Do not have it called any more."""
        self._callbacks = tuple(other for other in self._callbacks if other != callback)

    def result(self) -> Any:
        """Give the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value

    def expire(self) -> None:
        """The deadline has passed: name those that are late."""
        self.expired = True
        late = self.late()
        message = (
            f"{self.kind} missed its deadline in environments {name_ids(late)}; what they answer"
            " late is dropped"
        )
        self.finish(error=StepTimeout(message, operation=self.kind, env_ids=late))

    def suspend(self) -> None:
        """Hold its deadline off."""
        self.deadline = None
        self.suspended = True

    def has_ended(self, env_id: int) -> bool:
        """Whether an environment has ended, as far as that is kept."""
        return any(env_id in ids for ids in self.ended or ())

    def late(self) -> list[int]:
        """The environments that have not ended; known only if there is a deadline."""
        ended = {i for ids in self.ended or () for i in ids}
        return [i for i in self.ids if i not in ended]
