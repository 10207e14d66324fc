"""Steps that were sent and not yet received: their queues, and the ``recv`` calls that wait."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from agym.core.engine.batches.ready_queue import ReadyQueue
from agym.core.engine.calls.ticket import Ticket
from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.messages.operations import Message
from agym.errors import BusyError, NothingSentError


@dataclass(frozen=True, slots=True)
class Receive(Message):
    """Wait for a batch of sent steps; it never leaves the engine."""

    name: ClassVar[str] = "recv"


class Receiver(Ticket):
    """A call that waits for a batch: done when a batch may be ready.

    Attributes:
        queue: The queue to take environments from.
        count: How many environments it waits for.
    """

    def __init__(self, queue: ReadyQueue, count: int) -> None:
        super().__init__(0, Receive(), ())
        self.queue = queue
        self.count = count


class SentSteps:
    """The queue of each environment whose step was sent, and the calls that wait for the queues.

    From ``send`` until ``recv`` has returned its result or raised its error, an environment refuses
    further steps, whether or not the step has ended. So the calls that are allowed do not depend
    on timing.

    Attributes:
        queues: The queue of each environment whose step was sent and not received.
        receivers: The calls that wait.
    """

    def __init__(self) -> None:
        self.queues: dict[int, ReadyQueue] = {}
        self.receivers: list[Receiver] = []

    def check(self, ids: Iterable[int]) -> None:
        """Refuse environments whose result was not received.

        Raises:
            BusyError: There is such an environment.
        """
        for i in ids if self.queues else ():
            if i in self.queues:
                raise BusyError(
                    f"the last step that was sent to environment {i} has not been received:"
                    " call recv() before the next step"
                )

    def add(self, ids: Iterable[int], ready: ReadyQueue) -> None:
        """Register environments for which a step is about to be sent."""
        for i in ids:
            self.queues[i] = ready
            ready.flying += 1

    def drop(
        self, ids: Iterable[int], ready: ReadyQueue, error: BaseException | None = None
    ) -> None:
        """Remove environments whose step has no result; the next ``recv`` raises the error.

        With an error the environments count as not received until the error is raised.
        """
        ids = tuple(ids)
        ready.flying -= len(ids)
        if error is None:
            self._free(ids)
        else:
            ready.errors.append((error, ids))
        self._notify_receivers()

    def arrive(self, ids: Iterable[int], ready: ReadyQueue, payload: Payload | None) -> None:
        """Queue environments whose step has ended."""
        for i in ids:
            ready.flying -= 1
            ready.ids.append(i)
        if payload is not None:
            ready.payload.merge(payload)
        self._notify_receivers()

    def wait(self, receiver: Receiver) -> None:
        """Start to wait.

        Raises:
            NothingSentError: No sent step is waiting to be received.
        """
        if not receiver.queue.left and not receiver.queue.errors:
            raise NothingSentError("there is nothing to receive: call send(actions) first")
        self.receivers.append(receiver)
        self._notify_receivers()

    def leave(self, receiver: Receiver) -> None:
        self.receivers.remove(receiver)
        # A leader that sleeps for this receiver must wake up, even without a batch.
        receiver.finish()

    def take(self, receiver: Receiver, most: int | None) -> tuple[list[int], Payload] | None:
        """Take a batch for a receiver; ``None`` if another took it and there is time to wait on.

        Raises:
            BaseException: The oldest error. Other results stay for the next call.
        """
        ready, deadline = receiver.queue, receiver.deadline
        if ready.errors:
            error, failed = ready.errors.popleft()
            self._free(failed)
            raise error
        in_time = deadline is None or time.monotonic() < deadline
        if in_time and not (ready.ids and ready.has(receiver.count)):
            return None
        ids, payload = ready.take(most)
        self._free(ids)
        return ids, payload

    def _free(self, ids: Iterable[int]) -> None:
        """Accept steps for received environments again."""
        for i in ids:
            del self.queues[i]

    def _notify_receivers(self) -> None:
        for receiver in self.receivers:
            if receiver.queue.has(receiver.count):
                receiver.finish()
