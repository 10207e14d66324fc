"""Mailbox: how operations reach a worker, and outcomes come back; the caller's end of it.

Steps without objects go through a ring in shared memory, and pickle nothing. Everything else is
a message on the channel, stamped with the ring's tail, so that the worker keeps the order of
all it is given. An outcome that carries nothing but rows is a count in shared memory, any other
is a message::

    caller                               shared words                             worker
    post(step)      -- entry, TAIL ----> [ ring of (number, range, plane) ] ----> run
    post(other)     -- SENT, message --> channel -------------------------------> run
    collect() <------------------------- COMPLETED  (steps without extras) <----- count
    collect() <------------------------- channel, ANSWERED  (everything else) <-- message
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence

import numpy as np

from agym.core.arena import Field
from agym.core.arguments import runs
from agym.core.operations import Death, Extras, Failure, Operation, Outcome
from agym.executors.channel import Channel
from agym.executors.doorbell import Doorbell
from agym.executors.wire import Buffer, unpack

# Shared int64 words: a cache line that the caller writes, one that the worker writes, the ring.
TAIL, SENT, CALLER_ASLEEP = 0, 1, 2
COMPLETED, ANSWERED, WORKER_ASLEEP = 8, 9, 10
RING = 16

# What stands before a packed message. Down: the ring's tail, number, start, stop. Up: number, and
# how many spans of environments have ended; these follow, each behind its operation's start.
DOWN = struct.Struct("<qqqq")
UP = struct.Struct("<qq")

# An operation's start, and first and one past the last of its environments that have ended.
Span = tuple[int, int, int]


def mailbox_fields(count: int) -> dict[str, Field]:
    """Shared memory for a worker of ``count`` environments, each with one step in flight."""
    return {"words": (np.dtype(np.int64), (RING + 2 * count,))}


class Mailbox:
    """The caller's end."""

    def __init__(self, words: memoryview, channel: Channel, ids: range) -> None:
        """Use shared words, and a channel to the worker's end of both."""
        self.ids = ids
        self.channel = channel
        self.bell = Doorbell(words, CALLER_ASLEEP, WORKER_ASLEEP, channel)
        self._words = words
        self._tail = 0
        self._sent = 0
        self._received = 0
        self._completed = 0
        # What was posted and has not ended, by number and start: stop, kind, whether it went
        # through the ring; those of its environments that have ended before the others; and what
        # went through the ring, in order.
        self._owed: dict[tuple[int, int], tuple[int, str, bool]] = {}
        self._ended: dict[tuple[int, int], set[int]] = {}
        self._steps: deque[tuple[int, int]] = deque()
        self._outcomes: list[Outcome] = []

    def post_step(self, number: int, start: int, stop: int, plane: int, size: int) -> None:
        """Hand a step over that is all in the table.

        Args:
            number: Its number.
            start: First environment.
            stop: One past the last.
            plane: The plane for its rows.
            size: How many environments end together, in one outcome.
        """
        words = self._words
        for low in range(start, stop, size):
            high = low + size
            entry = RING + 2 * (self._tail % len(self.ids))
            words[entry] = number
            words[entry + 1] = low << 33 | high << 2 | plane
            self._owed[number, low] = high, "step", True
            self._steps.append((number, low))
            self._tail += 1
        self.bell.publish(TAIL, self._tail)

    def post(
        self, operation: Operation, message: Sequence[Buffer], descriptor: int | None = None
    ) -> None:
        """Hand any operation over; it will have one outcome.

        Args:
            operation: What to do, within this worker's range.
            message: The same, packed.
            descriptor: A file descriptor to send along.
        """
        self._owed[operation.number, operation.start] = operation.stop, operation.kind, False
        self.send(operation, message, descriptor)

    def send(
        self, operation: Operation, message: Sequence[Buffer], descriptor: int | None = None
    ) -> None:
        """Send a packed operation that has no outcome; its bytes wake the worker."""
        head = DOWN.pack(self._tail, operation.number, operation.start, operation.stop)
        self.channel.send([head, *message], descriptor)
        self._sent += 1
        self._words[SENT] = self._sent

    def collect(self) -> Sequence[Outcome]:
        """Take the outcomes that have come."""
        words = self._words
        while True:
            # The count is read before the messages: what was sent before it is among them then.
            # And it is read again after them: a bell may have been read among them.
            completed, answered = self.bell.look(COMPLETED), words[ANSWERED]
            if completed == self._completed and answered <= self._received:
                break
            while self._received < answered and not self.channel.ended:
                self.receive()
            while self._completed < completed:
                self._take_completed()
            if self.channel.ended:
                break
        if not self._outcomes:
            return ()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def receive(self) -> None:
        """Read the messages that have come."""
        for payload in self.channel.drain():
            self._received += 1
            number, count = UP.unpack_from(payload)
            flat = struct.unpack_from(f"<{3 * count}q", payload, UP.size)
            spans = [*zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
            body = memoryview(payload)[UP.size + 24 * count :]
            extras = None
            try:
                extras = unpack(body) if body else None
            except Exception as error:
                start, low, _ = spans[0]
                kind = self._owed[number, start][1]
                extras = Extras(problems=[Failure.of(error, low, kind)])
            for start, low, high in spans:
                self._settle((number, start), low, high)
                self._outcomes.append(Outcome(number, low, high, extras))
                extras = None
        self.channel.flush()

    def _take_completed(self) -> None:
        """The oldest step that is still owed has ended without extras."""
        key = self._steps.popleft()
        self._outcomes.append(Outcome(*key, self._owed.pop(key)[0]))
        self._completed += 1

    def _settle(self, key: tuple[int, int], low: int, high: int) -> None:
        """Cross off what has ended."""
        start, (stop, _, in_ring) = key[1], self._owed[key]
        if (low, high) != (start, stop):
            ended = self._ended.setdefault(key, set())
            ended.update(range(low, high))
            if len(ended) < stop - start:
                return
            del self._ended[key]
        if in_ring:
            # Steps that ended before this one without a message come before it.
            completed = self.bell.look(COMPLETED)
            while self._completed < completed and self._steps[0] != key:
                self._take_completed()
            self._steps.remove(key)
        del self._owed[key]

    def abandon(self, death: Death) -> list[Outcome]:
        """The worker is gone: what it had finished, and a death for all that it still owed."""
        outcomes = [*self.collect()]
        for key, (stop, _, _) in self._owed.items():
            ended = self._ended.get(key, ())
            left = tuple(slot for slot in range(key[1], stop) if slot not in ended)
            for span in runs(left):
                extras = Extras(problems=[death])
                outcomes.append(Outcome(key[0], span.start, span.stop, extras))
        for tracked in (self._owed, self._ended, self._steps):
            tracked.clear()
        return outcomes
