"""Sent: steps whose environments are received one by one, and the calls that wait for them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from agym.engine.batches.ready import ReadyQueue
from agym.engine.ticket import Ticket
from agym.errors import BusyError, NothingSentError
from agym.protocol.messages import Payload


@dataclass(eq=False)
class Receiver:
    """A call that waits for a batch of so many environments; its ticket is done when it may look.

    Attributes:
        ready: Where it takes them from.
        count: How many it waits for.
        ticket: It has the call's deadline, if there is one.
    """

    ready: ReadyQueue
    count: int
    ticket: Ticket


class SentSteps:
    """To which queue each environment belongs whose step was sent, and who waits at them.

    From ``send`` until ``recv`` has given its result, or its error, an environment takes no other
    step, whether or not the step has ended: what a caller may do does not depend on timing.

    Attributes:
        queues: The queue of each environment that was sent and not received.
        receivers: The calls that wait.
    """

    def __init__(self) -> None:
        """Nothing was sent."""
        self.queues: dict[int, ReadyQueue] = {}
        self.receivers: list[Receiver] = []

    def check(self, ids: Iterable[int]) -> None:
        """Refuse environments with a result that was not received.

        Raises:
            BusyError: There is one.
        """
        for i in ids if self.queues else ():
            if i in self.queues:
                raise BusyError(
                    f"the last step that was sent to environment {i} has not been received:"
                    " recv() it before the next"
                )

    def add(self, ids: Iterable[int], ready: ReadyQueue) -> None:
        """A step is about to be sent."""
        for i in ids:
            self.queues[i] = ready
            ready.flying += 1

    def drop(
        self, ids: Iterable[int], ready: ReadyQueue, error: BaseException | None = None
    ) -> None:
        """Nothing will come of a step; an error is for the next call that receives.

        With an error the environments count as not received until it is raised.
        """
        ids = tuple(ids)
        ready.flying -= len(ids)
        if error is None:
            self._free(ids)
        else:
            ready.errors.append((error, ids))
        self._tell()

    def arrive(self, ids: Iterable[int], ready: ReadyQueue, extras: Payload | None) -> None:
        """Environments have ended their step."""
        for i in ids:
            ready.flying -= 1
            ready.ids.append(i)
        if extras is not None:
            ready.extras.merge(extras)
        self._tell()

    def wait(self, ready: ReadyQueue, count: int, ticket: Ticket) -> Receiver:
        """Begin to wait.

        Raises:
            NothingSentError: Nothing was sent that has not been received.
        """
        if not ready.left and not ready.errors:
            raise NothingSentError("there is nothing to receive: send(actions) first")
        receiver = Receiver(ready, count, ticket)
        self.receivers.append(receiver)
        self._tell()
        return receiver

    def leave(self, receiver: Receiver) -> None:
        """A call waits no longer."""
        self.receivers.remove(receiver)
        receiver.ticket.finish()  # whoever counts on its end

    def take(self, receiver: Receiver, most: int | None) -> tuple[list[int], Payload] | None:
        """Take what a receiver waited for; ``None`` if another was quicker and time is left.

        Raises:
            BaseException: The oldest error; what else there is stays for the next call.
        """
        ready, deadline = receiver.ready, receiver.ticket.deadline
        if ready.errors:
            error, failed = ready.errors.popleft()
            self._free(failed)
            raise error
        in_time = deadline is None or time.monotonic() < deadline
        if in_time and not (ready.ids and ready.has(receiver.count)):
            return None
        ids, extras = ready.take(most)
        self._free(ids)
        return ids, extras

    def _free(self, ids: Iterable[int]) -> None:
        """Environments were received."""
        for i in ids:
            del self.queues[i]

    def _tell(self) -> None:
        for receiver in self.receivers:
            if receiver.ready.has(receiver.count):
                receiver.ticket.finish()
