"""The worker's end of a mailbox on an event loop, for coroutine environments.

Environments complete operations one by one. An operation of several environments is reported when
the last one has completed it, and until then now and then, so that deadlines find out who is late.
Completions that are reported together are one message per operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter

from agym.backends.process.channel import Channel
from agym.backends.process.mailbox import SENT, TAIL, SlotRange
from agym.backends.process.worker_loop import WorkerLoop
from agym.hosts.coroutine import CoroutineHost
from agym.protocol.arguments import runs
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.operations import Close, Operation, Recreate, Step


# How long completions wait for the others of their operation. Each message costs the caller a turn
# of its loop, on a core that the workers need.
PATIENCE_SECONDS = 5e-3


class CoroutineWorkerLoop(WorkerLoop):
    """Starts posted operations on the running loop, until ``close``.

    It receives its first messages before any loop runs, since the environments decide on that.
    """

    _loop: asyncio.AbstractEventLoop
    _closed: asyncio.Future[None]

    def __init__(
        self, words: memoryview, channel: Channel, rebalance: Callable[[], None] | None = None
    ) -> None:
        super().__init__(words, channel, rebalance)
        # By number. A problem is sent by itself, so that its environment is known.
        self._ended: dict[tuple[int, int | None], tuple[list[tuple[int, int]], Payload]] = {}
        # How many environments have not completed an operation of several, by number and start.
        self._left: dict[tuple[int, int], int] = {}
        self._sending: asyncio.Handle | None = None
        self._is_urgent = False

    async def run(self, host: CoroutineHost) -> None:
        """Start operations in the order of posting, until ``close`` or EOF."""
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        self._bell.park()  # permanently: the loop sleeps on the channel, so each post must ring
        self._loop.add_reader(self._channel.fileno(), self._begin_posted, host)
        try:
            self._begin_posted(host)
            await self._closed
        finally:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())

    def report(self, operation: Operation, slot: int, payload: Payload | None) -> None:
        """Record that an environment has completed an operation."""
        self._send_later(urgent=self._is_last(operation))
        wrong = slot if payload is not None and payload.problems else None
        key = operation.number, wrong
        found = self._ended.get(key)
        if found is None:
            found = self._ended[key] = ([], Payload())
        ended, merged = found
        ended.append((operation.start, slot))
        if payload is not None:
            merged.merge(payload)
            if merged.schemas:  # they must arrive before infos that use them
                schemas, merged.schemas = merged.schemas, {}
                next(iter(self._ended.values()))[1].schemas.update(schemas)
        if isinstance(operation.message, Recreate):
            self._send_ended()  # before the environment's next completion

    def _is_last(self, operation: Operation) -> bool:
        """Note that an environment has completed an operation; return whether it is the last."""
        number, start, stop, _ = operation
        if stop - start == 1:
            return True
        left = self._left.pop((number, start), stop - start) - 1
        if left:
            self._left[number, start] = left
        else:  # older ones are over, too: what is left of them was given up
            self._left = {
                key: count
                for key, count in self._left.items()
                if key[0] > number or key[1] not in range(start, stop)
            }
        return not left

    def _send_later(self, *, urgent: bool) -> None:
        if self._sending is not None:
            if self._is_urgent or not urgent:
                return
            self._sending.cancel()
        self._is_urgent = urgent
        if urgent:
            self._sending = self._loop.call_soon(self._send_ended)
        else:
            self._sending = self._loop.call_later(PATIENCE_SECONDS, self._send_ended)

    def _begin_posted(self, host: CoroutineHost) -> None:
        self._receive()
        while not self._closed.done():
            tail = self._bell.read(TAIL)
            self._receive_all(self._words[SENT])
            if self.message_is_next():
                operation = self.next_message()
                if operation is None:
                    continue
                if isinstance(operation.message, Close):
                    self._end()
                elif not self.prepare(operation, host):
                    host.begin(operation)
            elif self._head < tail:
                number, start, stop, plane = self.next_entry(host.stop - host.first)
                host.begin(Operation(number, start, stop, Step(plane)))
            else:
                break
        if self._channel.ended:
            self._end()

    def _end(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def _send_ended(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        ended, self._ended = self._ended, {}
        for (number, _), (slots, payload) in ended.items():
            self.send(number, [*_spans(sorted(slots))], None if payload == NOTHING else payload)
        self._flush()

    def _flush(self) -> None:
        """Send what the channel accepts now, and the rest when it is writable."""
        self._channel.flush()
        if self._channel.backlog and not self._channel.ended:
            self._loop.add_writer(self._channel.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._channel.fileno())


NOTHING = Payload()


def _spans(slots: list[tuple[int, int]]) -> Iterator[SlotRange]:
    """Join neighbours of one operation; each slot follows its operation's start."""
    for start, group in groupby(slots, key=itemgetter(0)):
        for span in runs(tuple(slot for _, slot in group)):
            yield start, span.start, span.stop
