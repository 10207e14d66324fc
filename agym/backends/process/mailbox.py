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
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from agym.backends.port import Port
from agym.backends.process.channel import Channel
from agym.backends.process.doorbell import Doorbell
from agym.backends.process.serialization import Buffer, pack_by_value, unpack
from agym.protocol.frames import ARENA, FrameLeases, ShelvedFrame
from agym.protocol.memory import Field
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import Failure, WorkerDeath
from agym.protocol.messages.operations import Operation, Render, Step
from agym.protocol.typing import Array

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
    return {"words": (np.dtype(np.int64), (RING + ENTRY * count,)), "frames": ARENA}


class Mailbox(Port):
    """The caller's end."""

    polled = True
    rings = True

    def connect(self, memory: Mapping[str, Array], channel: Channel) -> None:
        """Use shared memory, and a channel to the worker's end of both."""
        words = memory["words"].data
        self.channel = channel
        self.first, self.stop = self.ids.start, self.ids.stop
        self.frames = FrameLeases(memory["frames"])
        self.bell = Doorbell(words, CALLER_ASLEEP, WORKER_ASLEEP, channel)
        self._words = words
        self._tail = 0
        self._sent = 0
        self._received = 0
        self._completed = 0
        # What is pending in the ring, in order, by number and start: stop.
        self._ring: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._completions: list[Completion] = []

    def post_step(self, number: int, start: int, stop: int, plane: int, size: int) -> None:
        """Post a step that is entirely in the table; ``size`` environments complete together."""
        words, tail, ring = self._words, self._tail, self.size
        if stop - start == ring and not self._last_names:
            self._last_name = Step.name
        else:
            self.note_name(Step.name, start, stop)
        for low in range(start, stop, size):
            high = low + size
            entry = RING + ENTRY * (tail % ring)
            words[entry] = number
            words[entry + 1] = low << 32 | high
            words[entry + 2] = plane
            self._ring[number, low] = high
            tail += 1
        self._tail = tail
        self.bell.publish(TAIL, tail)

    def pack(self, operation: Operation) -> list[Buffer]:
        """Pack an operation, with the frames that the worker may reuse; it must then be posted."""
        if isinstance(operation.message, Render):
            operation = operation._replace(message=Render(self.frames.give_back()))
        return pack_by_value(operation, operation.given())

    def post(self, operation: Operation, packed: Sequence[Buffer] = ()) -> None:
        """Post any operation, in its packed form."""
        self.send(operation, packed)

    def send(
        self, operation: Operation, packed: Sequence[Buffer], descriptor: int | None = None
    ) -> None:
        """Send a packed operation, and a descriptor along; its bytes wake the worker."""
        head = DOWN.pack(self._tail, operation.number, operation.start, operation.stop)
        self.channel.send([head, *packed], descriptor)
        self._sent += 1
        self._words[SENT] = self._sent

    def news(self) -> bool:
        words = self._words
        if words[COMPLETED] != self._completed or words[ANSWERED] > self._received:
            return True
        return bool(self._completions)

    def park(self, envs: int = 1) -> None:
        self.bell.park()

    def unpark(self) -> None:
        self.bell.unpark()

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
            if not self._completed <= counted <= self._completed + len(self._ring):
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

    def only_step(self) -> int:
        """Return the number of a step of all environments that has completed; 0 if there is more.

        More is a message that has arrived, or a step that is still in the ring.
        """
        words, ring = self._words, self._ring
        if (
            len(ring) != 1
            or self.bell.read(COMPLETED) == self._completed
            or words[ANSWERED] != self._received
        ):
            return 0
        (((number, start), stop),) = ring.items()
        return number if stop - start == self.size else 0

    def take_only_step(self) -> None:
        """Forget the step that :meth:`only_step` has found."""
        self._ring.clear()
        self._completed += 1

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
        name = self._find((number, start), low, high)[1]
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

    def _find(self, key: tuple[int, int], low: int, high: int) -> tuple[int, str]:
        """Look up a posted operation; reject an answer that does not belong to it."""
        pending, early = self.pending.get(key), self._early.get(key)
        if pending is None and key in self._ring:
            pending = self._ring[key], Step.name
        if pending is None:
            raise ValueError(f"an answer to operation {key}, which is not pending")
        twice = early is not None and not early.isdisjoint(range(low, high))
        if twice or not key[1] <= low < high <= pending[0]:
            raise ValueError(f"an answer about {(low, high)}, which is not pending")
        return pending

    def _take_completed(self) -> None:
        """Complete the oldest pending step, which has no payload."""
        (number, start), stop = self._ring.popitem(last=False)
        self._completions.append(Completion(number, start, stop))
        self._completed += 1

    def _settle(self, key: tuple[int, int], low: int, high: int) -> None:
        """Remove completed environments from the pending operations."""
        stop, _ = self._find(key, low, high)
        if (low, high) != (key[1], stop) and not self.complete_early(key, stop, low, high):
            return
        if key in self._ring:
            # Steps that completed earlier without a message come first.
            completed = self.bell.read(COMPLETED)
            while self._completed < completed and next(iter(self._ring)) != key:
                self._take_completed()
            del self._ring[key]
        else:
            del self.pending[key]

    @property
    def running(self) -> int | None:
        return self._words[RUNNING] - 1 if self._words[RUNNING] else None

    def unfinished(self) -> list[tuple[int, int, int, str]]:
        steps = [(*key, stop, Step.name) for key, stop in self._ring.items()]
        return sorted([*super().unfinished(), *steps])

    def fail(self, problem: WorkerDeath | Failure) -> list[Completion]:
        completions = super().fail(problem)
        self._ring.clear()
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
