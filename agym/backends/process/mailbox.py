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

from agym.backends.process.channel import Channel
from agym.backends.process.doorbell import Doorbell
from agym.backends.process.serialization import Buffer, unpack
from agym.protocol.arguments import runs
from agym.protocol.frames import FrameLeases, ShelvedFrame
from agym.protocol.memory import Field
from agym.protocol.messages import Completion, Failure, Operation, Payload, WorkerDeath

# Shared int64 words: a cache line that the caller writes, one that the worker writes, the ring.
TAIL, SENT, CALLER_ASLEEP = 0, 1, 2
COMPLETED, ANSWERED, WORKER_ASLEEP, RUNNING = 8, 9, 10, 11
RING = 16

# An entry of the ring: number, start and stop in one word, plane.
ENTRY = 3

# What stands before a packed message. Down: the ring's tail, number, start, stop. Up: number, and
# how many spans of environments have ended; these follow, each behind its operation's start.
DOWN = struct.Struct("<qqqq")
UP = struct.Struct("<qq")

# An operation's start, and first and one past the last of its environments that have ended.
SlotRange = tuple[int, int, int]


def mailbox_fields(count: int) -> dict[str, Field]:
    """Shared memory for a worker of ``count`` environments, each with one step in flight."""
    return {"words": (np.dtype(np.int64), (RING + ENTRY * count,))}


class Mailbox:
    """The caller's end."""

    def __init__(self, words: memoryview, channel: Channel, ids: range) -> None:
        """Use shared words, and a channel to the worker's end of both."""
        self.ids = ids
        self.start, self.stop = ids.start, ids.stop
        self.channel = channel
        self.frames = FrameLeases(len(ids))
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
        self._outcomes: list[Completion] = []
        # The last kind of operation of all environments, and of those with a later one.
        self._last = "make"
        self._lasts: dict[int, str] = {}

    def post_step(self, number: int, start: int, stop: int, plane: int, size: int) -> None:
        """Hand a step over that is all in the table.

        Args:
            number: Its number.
            start: First environment.
            stop: One past the last.
            plane: The plane for its rows.
            size: How many environments end together, in one outcome.
        """
        words, tail, ring = self._words, self._tail, self.stop - self.start
        self._note("step", start, stop)
        for low in range(start, stop, size):
            high = low + size
            entry = RING + ENTRY * (tail % ring)
            words[entry] = number
            words[entry + 1] = low << 32 | high
            words[entry + 2] = plane
            key = number, low
            self._owed[key] = high, "step", True
            self._steps.append(key)
            tail += 1
        self._tail = tail
        self.bell.publish(TAIL, tail)

    def complete(self, operation: Operation) -> Operation:
        """Add what the worker is to know; who completes an operation posts it."""
        if operation.kind == "render":
            return operation._replace(shared=self.frames.give_back())
        return operation

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
        self._note(operation.kind, operation.start, operation.stop)
        self.send(operation, message, descriptor)

    def _note(self, kind: str, start: int, stop: int) -> None:
        if stop - start == self.stop - self.start:
            self._last = kind
            if self._lasts:
                self._lasts.clear()
        else:
            self._lasts.update(dict.fromkeys(range(start, stop), kind))

    def send(
        self, operation: Operation, message: Sequence[Buffer], descriptor: int | None = None
    ) -> None:
        """Send a packed operation that has no outcome; its bytes wake the worker."""
        head = DOWN.pack(self._tail, operation.number, operation.start, operation.stop)
        self.channel.send([head, *message], descriptor)
        self._sent += 1
        self._words[SENT] = self._sent

    def news(self) -> bool:
        """Look whether there is something to collect."""
        words = self._words
        if words[COMPLETED] != self._completed or words[ANSWERED] > self._received:
            return True
        return bool(self._outcomes)

    def collect(self) -> Sequence[Completion]:
        """Take the outcomes that have come."""
        words, bell = self._words, self.bell
        while True:
            # The count is read before the messages: what was sent before it is among them then.
            # And it is read again after them: a bell may have been read among them.
            completed, answered = bell.read(COMPLETED), words[ANSWERED]
            received = answered > self._received
            if completed == self._completed and not received:
                break
            if received and not self._receive_until(answered):
                break  # what it says to have sent is on the way, and will wake whoever sleeps
            counted = bell.read(COMPLETED) if received else completed
            if not self._completed <= counted <= self._completed + len(self._steps):
                self.channel.give_up("a count of steps that were not posted")
                break
            while self._completed < completed:
                self._take_completed()
            if self.channel.ended or not received:
                break
        if not self._outcomes:
            return ()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _receive_until(self, answered: int) -> bool:
        """Read until so many messages have come; tell whether they have, or no more will."""
        while self._received < answered and not self.channel.ended:
            before = self._received
            self.receive()
            if self._received == before and not self.channel.ended:
                return False
        return True

    def receive(self) -> None:
        """Read the messages that have come; one that makes no sense is the worker's last."""
        for payload in self.channel.drain():
            self._received += 1
            try:
                self._take_message(payload)
            except ValueError as error:
                self.channel.give_up(str(error))
                break
        self.channel.flush()

    def _take_message(self, payload: Buffer) -> None:
        number, spans, body = _read_head(payload)
        start, low, high = spans[0]
        kind = self._find((number, start), low, high)[1]
        extras = None
        try:
            extras = unpack(body) if body else None
        except Exception as error:
            extras = Payload(problems=[Failure.of(error, low, kind)])
        if extras is not None and not isinstance(extras, Payload):
            raise ValueError(f"an answer of type {type(extras).__name__}")
        if extras is not None:
            for slot, value in extras.values.items():
                if isinstance(value, ShelvedFrame):
                    extras.values[slot] = self.frames.open(value)
        for k, (start, low, high) in enumerate(spans, 1):
            self._settle((number, start), low, high)
            last = k == len(spans)  # it has the rest, and the problems
            part = extras if last or extras is None else extras.take(range(low, high))
            self._outcomes.append(Completion(number, low, high, part))

    def _find(self, key: tuple[int, int], low: int, high: int) -> tuple[int, str, bool]:
        """Look up what was posted, some environments of which are said to have ended."""
        owed, ended = self._owed.get(key), self._ended.get(key)
        if owed is None:
            raise ValueError(f"an answer to operation {key}, which it does not owe")
        twice = ended is not None and not ended.isdisjoint(range(low, high))
        if twice or not key[1] <= low < high <= owed[0]:
            raise ValueError(f"an answer about {(low, high)}, which it does not owe")
        return owed

    def _take_completed(self) -> None:
        """The oldest step that is still owed has ended without extras."""
        key = self._steps.popleft()
        self._outcomes.append(Completion(*key, self._owed.pop(key)[0]))
        self._completed += 1

    def _settle(self, key: tuple[int, int], low: int, high: int) -> None:
        """Cross off what has ended."""
        start, (stop, _, in_ring) = key[1], self._find(key, low, high)
        if (low, high) != (start, stop):
            ended = self._ended.setdefault(key, set())
            ended.update(range(low, high))
            if len(ended) < stop - start:
                return
            del self._ended[key]
        if in_ring:
            # Steps that ended before this one without a message come before it.
            completed = self.bell.read(COMPLETED)
            while self._completed < completed and self._steps[0] != key:
                self._take_completed()
            self._steps.remove(key)
        del self._owed[key]

    def close(self) -> None:
        """Close this end; what was received stays."""
        self.channel.close()
        self.frames.close()

    @property
    def running(self) -> int | None:
        """The environment that runs, if the worker tells."""
        return self._words[RUNNING] - 1 if self._words[RUNNING] else None

    def operations(self) -> dict[int, str]:
        """What each environment is doing: its oldest operation in flight, or idling after what."""
        doing = {i: f"idle after {self._lasts.get(i, self._last)}" for i in self.ids}
        for (number, start), (stop, kind, _) in reversed(self._owed.items()):
            ended = self._ended.get((number, start), ())
            doing.update((i, kind) for i in range(start, stop) if i not in ended)
        return doing

    def fail_pending(self, death: WorkerDeath) -> list[Completion]:
        """The worker is gone: a death for all that it still owes; what it had finished is taken."""
        outcomes = []
        for key, (stop, _, _) in self._owed.items():
            ended = self._ended.get(key, ())
            left = tuple(slot for slot in range(key[1], stop) if slot not in ended)
            for span in runs(left):
                extras = Payload(problems=[death])
                outcomes.append(Completion(key[0], span.start, span.stop, extras))
        for tracked in (self._owed, self._ended, self._steps):
            tracked.clear()
        return outcomes


def _read_head(payload: Buffer) -> tuple[int, list[SlotRange], memoryview]:
    """Take a message from a worker apart: number, spans, and its packed extras."""
    if len(payload) < UP.size:
        raise ValueError(f"a message of {len(payload)} bytes")
    number, count = UP.unpack_from(payload)
    if not 0 < count <= (len(payload) - UP.size) // 24:
        raise ValueError(f"a message of {len(payload)} bytes about {count} spans")
    flat = struct.unpack_from(f"<{3 * count}q", payload, UP.size)
    spans = [*zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
    return number, spans, memoryview(payload)[UP.size + 24 * count :]
