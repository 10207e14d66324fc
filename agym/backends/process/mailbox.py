"""The caller's end of a mailbox, which carries operations to a worker and completions back.

Steps without objects go through a ring in shared memory, and nothing is pickled. Everything else is
a message on the channel, stamped with the ring's tail, so that the worker keeps the order. A
completion without a payload is a count in shared memory; any other is a message::

    caller                               shared words                             worker
    post(step)      -- entry, TAIL ----> [ ring of (number, range, plane) ] ----> run
    post(other)     -- SENT, message --> channel -------------------------------> run
    collect() <------------------------- COMPLETED  (steps without payload) <---- count
    collect() <------------------------- channel, ANSWERED  (everything else) <-- message
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from agym.backends.process.channel import Channel
from agym.backends.process.doorbell import Doorbell
from agym.backends.process.serialization import Buffer, unpack
from agym.backends.spinning import give_way
from agym.protocol.arguments import runs
from agym.protocol.frames import FrameLeases, ShelvedFrame
from agym.protocol.memory import Field
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import Failure, WorkerDeath
from agym.protocol.messages.operations import Make, Operation, Render, Step

# Shared int64 words: a cache line written by the caller, one written by the worker, the ring.
TAIL, SENT, CALLER_ASLEEP = 0, 1, 2
COMPLETED, ANSWERED, WORKER_ASLEEP, RUNNING = 8, 9, 10, 11
RING = 16

# Words of a ring entry: number, start and stop in one word, plane.
ENTRY = 3

# Headers of packed messages. Down: the ring's tail, number, start, stop. Up: number, and how many
# spans of environments have completed; these follow, each after its operation's start.
DOWN = struct.Struct("<qqqq")
UP = struct.Struct("<qq")

# An operation's start, then the first and one past the last of its completed environments.
SlotRange = tuple[int, int, int]


def mailbox_fields(count: int) -> dict[str, Field]:
    """Lay out the shared memory for ``count`` environments, with one step in flight each."""
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
        # Posted and not completed, by number and start: stop, name, whether it is in the ring;
        # the environments that completed before the others; and the keys in the ring, in order.
        self._pending: dict[tuple[int, int], tuple[int, str, bool]] = {}
        self._ended: dict[tuple[int, int], set[int]] = {}
        self._steps: deque[tuple[int, int]] = deque()
        self._completions: list[Completion] = []
        # The name of the last operation on all environments, and on those with a later one.
        self._last_name = Make.name
        self._last_names: dict[int, str] = {}

    def post_step(self, number: int, start: int, stop: int, plane: int, size: int) -> None:
        """Post a step that is entirely in the table; ``size`` environments complete together."""
        words, tail, ring = self._words, self._tail, self.stop - self.start
        if stop - start == ring and not self._last_names:
            self._last_name = Step.name
        else:
            self._note_name(Step.name, start, stop)
        for low in range(start, stop, size):
            high = low + size
            entry = RING + ENTRY * (tail % ring)
            words[entry] = number
            words[entry + 1] = low << 32 | high
            words[entry + 2] = plane
            key = number, low
            self._pending[key] = high, Step.name, True
            self._steps.append(key)
            tail += 1
        self._tail = tail
        self.bell.publish(TAIL, tail)

    def complete(self, operation: Operation) -> Operation:
        """Add the frames that the worker may reuse; the operation must then be posted."""
        if isinstance(operation.message, Render):
            return operation._replace(message=Render(self.frames.give_back()))
        return operation

    def post(
        self, operation: Operation, packed: Sequence[Buffer], descriptor: int | None = None
    ) -> None:
        """Post any operation, with its packed form and a descriptor to send along."""
        number, start, stop, message = operation
        self._pending[number, start] = stop, message.name, False
        self._note_name(message.name, start, stop)
        self.send(operation, packed, descriptor)

    def _note_name(self, name: str, start: int, stop: int) -> None:
        if stop - start == self.stop - self.start:
            self._last_name = name
            if self._last_names:
                self._last_names.clear()
        else:
            self._last_names.update(dict.fromkeys(range(start, stop), name))

    def send(
        self, operation: Operation, packed: Sequence[Buffer], descriptor: int | None = None
    ) -> None:
        """Send a packed operation that has no completion; its bytes wake the worker."""
        head = DOWN.pack(self._tail, operation.number, operation.start, operation.stop)
        self.channel.send([head, *packed], descriptor)
        self._sent += 1
        self._words[SENT] = self._sent

    def news(self) -> bool:
        """Return whether there may be something to collect."""
        words = self._words
        if words[COMPLETED] != self._completed or words[ANSWERED] > self._received:
            return True
        return bool(self._completions)

    def watch(self, end: float) -> bool:
        """Watch until a time of ``perf_counter`` for the end of a step, the only operation pending.

        Returns:
            Whether it has ended and there is nothing else to collect.
        """
        words, completed, received = self._words, self._completed, self._received
        while words[COMPLETED] == completed and words[ANSWERED] == received:
            if time.perf_counter() > end:
                return False
            give_way()
        return words[ANSWERED] == received and self.bell.read(COMPLETED) == completed + 1

    def take_step(self, number: int) -> None:
        """Forget a step whose end was watched, unless a signal handler has collected it."""
        key = number, self.start
        if self._pending.pop(key, None) is not None:
            self._steps.remove(key)
            self._completed += 1

    def collect(self) -> Sequence[Completion]:
        """Return the completions that have arrived."""
        words, bell = self._words, self.bell
        while True:
            # Read the count before the messages, which then include all that were sent before it.
            completed, answered = bell.read(COMPLETED), words[ANSWERED]
            received = answered > self._received
            if completed == self._completed and not received:
                break
            if received and not self._receive_until(answered):
                break  # the announced messages are on the way, and will wake the caller
            # The messages may have settled steps that were counted after the first reading.
            counted = bell.read(COMPLETED) if received else completed
            if not self._completed <= counted <= self._completed + len(self._steps):
                self.channel.give_up("a count of steps that were not posted")
                break
            while self._completed < completed:
                self._take_completed()
            if self.channel.ended or not received:
                break
        if not self._completions:
            return ()
        completions, self._completions = self._completions, []
        return completions

    def _receive_until(self, answered: int) -> bool:
        """Read until ``answered`` messages have arrived; return false if some are on the way."""
        while self._received < answered and not self.channel.ended:
            before = self._received
            self.receive()
            if self._received == before and not self.channel.ended:
                return False
        return True

    def receive(self) -> None:
        """Read the messages that have arrived; after an invalid one the worker is given up."""
        for message in self.channel.drain():
            self._received += 1
            try:
                self._take_message(message)
            except ValueError as error:
                self.channel.give_up(str(error))
                break
        self.channel.flush()

    def _take_message(self, message: Buffer) -> None:
        number, spans, body = _read_head(message)
        start, low, high = spans[0]
        name = self._find_pending((number, start), low, high)[1]
        payload = None
        try:
            payload = unpack(body) if body else None
        except Exception as error:
            payload = Payload(problems=[Failure.of(error, low, name)])
        if payload is not None and not isinstance(payload, Payload):
            raise ValueError(f"an answer of type {type(payload).__name__}")
        if payload is not None:
            for slot, value in payload.values.items():
                if isinstance(value, ShelvedFrame):
                    payload.values[slot] = self.frames.open(value)
        for k, (start, low, high) in enumerate(spans, 1):
            self._settle((number, start), low, high)
            last = k == len(spans)  # it gets the rest, and the problems
            part = payload if last or payload is None else payload.take(range(low, high))
            self._completions.append(Completion(number, low, high, part))

    def _find_pending(self, key: tuple[int, int], low: int, high: int) -> tuple[int, str, bool]:
        """Look up a posted operation; reject an answer that does not belong to it."""
        pending, ended = self._pending.get(key), self._ended.get(key)
        if pending is None:
            raise ValueError(f"an answer to operation {key}, which is not pending")
        twice = ended is not None and not ended.isdisjoint(range(low, high))
        if twice or not key[1] <= low < high <= pending[0]:
            raise ValueError(f"an answer about {(low, high)}, which is not pending")
        return pending

    def _take_completed(self) -> None:
        """Complete the oldest pending step, which has no payload."""
        key = self._steps.popleft()
        self._completions.append(Completion(*key, self._pending.pop(key)[0]))
        self._completed += 1

    def _settle(self, key: tuple[int, int], low: int, high: int) -> None:
        """Remove completed environments from the pending operations."""
        start, (stop, _, in_ring) = key[1], self._find_pending(key, low, high)
        if (low, high) != (start, stop):
            ended = self._ended.setdefault(key, set())
            ended.update(range(low, high))
            if len(ended) < stop - start:
                return
            del self._ended[key]
        if in_ring:
            # Steps that completed earlier without a message come first.
            completed = self.bell.read(COMPLETED)
            while self._completed < completed and self._steps[0] != key:
                self._take_completed()
            self._steps.remove(key)
        del self._pending[key]

    def close(self) -> None:
        """Close this end; what was received stays."""
        self.channel.close()
        self.frames.close()

    @property
    def running(self) -> int | None:
        """The environment that is running, if the worker says so."""
        return self._words[RUNNING] - 1 if self._words[RUNNING] else None

    def operations(self) -> dict[int, str]:
        """Return what each environment does: its oldest pending operation, or ``idle after``."""
        doing = {i: f"idle after {self._last_names.get(i, self._last_name)}" for i in self.ids}
        for (number, start), (stop, name, _) in reversed(self._pending.items()):
            ended = self._ended.get((number, start), ())
            doing.update((i, name) for i in range(start, stop) if i not in ended)
        return doing

    def fail_pending(self, death: WorkerDeath) -> list[Completion]:
        """Complete all pending operations with the worker's death, after a last ``collect``."""
        completions = []
        for key, (stop, _, _) in self._pending.items():
            ended = self._ended.get(key, ())
            left = tuple(slot for slot in range(key[1], stop) if slot not in ended)
            for span in runs(left):
                payload = Payload(problems=[death])
                completions.append(Completion(key[0], span.start, span.stop, payload))
        for tracked in (self._pending, self._ended, self._steps):
            tracked.clear()
        return completions


def _read_head(message: Buffer) -> tuple[int, list[SlotRange], memoryview]:
    """Parse a worker's message: number, spans, and packed payload."""
    if len(message) < UP.size:
        raise ValueError(f"a message of {len(message)} bytes")
    number, count = UP.unpack_from(message)
    if not 0 < count <= (len(message) - UP.size) // 24:
        raise ValueError(f"a message of {len(message)} bytes about {count} spans")
    flat = struct.unpack_from(f"<{3 * count}q", message, UP.size)
    spans = [*zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
    return number, spans, memoryview(message)[UP.size + 24 * count :]
