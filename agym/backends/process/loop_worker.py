"""The worker's end of a mailbox on an event loop: it hosts coroutine environments.

Each of them ends its operations by itself. What has ended within one turn of the loop goes to
the caller as one message for each operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter

from agym.backends.process.channel import Channel
from agym.backends.process.mailbox import SENT, TAIL, SlotRange
from agym.backends.process.mailbox_worker import MailboxWorker
from agym.hosts.coroutine import CoroutineHost
from agym.protocol.arguments import runs
from agym.protocol.messages import Operation, Payload


class LoopWorker(MailboxWorker):
    """Starts what comes in on the running loop, until it is told to close.

    It is made, and gets its first messages, while no loop runs: an environment decides on that.
    """

    _loop: asyncio.AbstractEventLoop
    _over: asyncio.Future[None]

    def __init__(
        self, words: memoryview, channel: Channel, settle: Callable[[], None] | None = None
    ) -> None:
        """Use shared words and a channel that a mailbox has the other end of."""
        super().__init__(words, channel, settle)
        # By number; what went wrong is told by itself, so that it is clear whom it is about.
        self._ended: dict[tuple[int, int | None], tuple[list[tuple[int, int]], Payload]] = {}

    async def run(self, host: CoroutineHost) -> None:
        """Start operations in the order in which they were posted, until ``close`` or EOF."""
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._bell.park()  # for good: the loop sleeps on the channel, so each post rings
        self._loop.add_reader(self._channel.fileno(), self._begin_posted, host)
        try:
            self._begin_posted(host)
            await self._over
        finally:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())

    def tell(self, operation: Operation, slot: int, extras: Payload | None) -> None:
        """Take in that an environment has ended an operation."""
        if not self._ended:
            self._loop.call_soon(self._send_ended)
        wrong = slot if extras is not None and extras.problems else None
        ended, merged = self._ended.setdefault((operation.number, wrong), ([], Payload()))
        ended.append((operation.start, slot))
        if extras is not None:
            merged.merge(extras)
            if merged.schemas:  # they go ahead of all that may be written by them
                schemas, merged.schemas = merged.schemas, {}
                next(iter(self._ended.values()))[1].schemas.update(schemas)
        if operation.kind == "recreate":
            self._send_ended()  # before what the environment ends next

    def _begin_posted(self, host: CoroutineHost) -> None:
        self._receive()
        while not self._over.done():
            tail = self._bell.read(TAIL)
            self._receive_all(self._words[SENT])
            if self.message_is_next():
                operation = self.next_message()
                if operation is None:
                    continue
                if operation.kind == "close":
                    self._end()
                elif not self.prepare(operation, host):
                    host.begin(operation)
            elif self._head < tail:
                number, start, stop, plane = self.next_entry(host.stop - host.first)
                host.begin(Operation(number, "step", start, stop, plane))
            else:
                break
        if self._channel.ended:
            self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _send_ended(self) -> None:
        ended, self._ended = self._ended, {}
        for (number, _), (slots, extras) in ended.items():
            self.send(number, [*_spans(sorted(slots))], None if extras == NOTHING else extras)
        self._flush()

    def _flush(self) -> None:
        """Send what the channel takes now, and the rest when it takes more."""
        self._channel.flush()
        if self._channel.backlog and not self._channel.ended:
            self._loop.add_writer(self._channel.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._channel.fileno())


NOTHING = Payload()


def _spans(slots: list[tuple[int, int]]) -> Iterator[SlotRange]:
    """Join neighbours of one operation; each slot stands behind its operation's start."""
    for start, group in groupby(slots, key=itemgetter(0)):
        for span in runs(tuple(slot for _, slot in group)):
            yield start, span.start, span.stop
