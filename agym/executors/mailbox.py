"""Mailbox: how operations reach a worker, and outcomes come back; both ends of it.

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
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from agym.core.arena import Field
from agym.core.arguments import runs
from agym.core.host import EnvHost
from agym.core.operations import Death, Description, Extras, Failure, Operation, Outcome
from agym.executors.channel import Channel
from agym.executors.doorbell import RECHECK_SECONDS, Doorbell, Patience
from agym.executors.wire import Buffer, is_plain, pack, unpack

# Shared int64 words: a cache line that the caller writes, one that the worker writes, the ring.
TAIL, SENT, CALLER_ASLEEP = 0, 1, 2
COMPLETED, ANSWERED, WORKER_ASLEEP = 8, 9, 10
RING = 16

# After this long the scheduler may have moved a worker onto another one's core.
SETTLE_SECONDS = 10e-3

# What stands before a packed message. Down: the ring's tail, number, start, stop. Up: number, and
# how many spans of environments have ended; these follow, each behind its operation's start.
_DOWN = struct.Struct("<qqqq")
_UP = struct.Struct("<qq")

# An operation's start, and first and one past the last of its environments that have ended.
Span = tuple[int, int, int]


def mailbox_fields(count: int) -> dict[str, Field]:
    """Shared memory for a worker of ``count`` environments, each with one step in flight."""
    return {"words": (np.dtype(np.int64), (RING + 2 * count,))}


class Mailbox:
    """The caller's end."""

    def __init__(self, words: memoryview, channel: Channel, ids: range) -> None:
        """Use shared words and a channel that a :class:`MailboxWorker` has the other end of."""
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
        head = _DOWN.pack(self._tail, operation.number, operation.start, operation.stop)
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
            number, count = _UP.unpack_from(payload)
            flat = struct.unpack_from(f"<{3 * count}q", payload, _UP.size)
            spans = [*zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
            body = memoryview(payload)[_UP.size + 24 * count :]
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


class MailboxWorker:
    """The worker's end: runs a host on what comes in, until it is told to close."""

    def __init__(
        self, words: memoryview, channel: Channel, settle: Callable[[], None] | None = None
    ) -> None:
        """Use shared words and a channel that a :class:`Mailbox` has the other end of.

        Args:
            words: The shared words.
            channel: The other end of the mailbox's.
            settle: Called now and then, when there was nothing to do.
        """
        self._words = words
        self._channel = channel
        self._settle = settle
        self._bell = Doorbell(words, WORKER_ASLEEP, CALLER_ASLEEP, channel)
        self._patience = Patience()
        self._settled = 0.0
        self._inbox: deque[Buffer] = deque()
        self._head = 0
        self._received = 0
        self._completed = 0
        self._answered = 0

    def serve(self, host: EnvHost) -> None:
        """Run operations in the order in which they were posted, until ``close`` or EOF."""
        words = self._words
        while not self._channel.ended:
            tail = self._bell.look(TAIL)
            self._receive_all(words[SENT])
            if self.message_is_next():
                operation = self.next_message()
                if operation is None:
                    continue
                if operation.kind == "close":
                    break
                self.answer(host.run(operation))
            elif self._head < tail:
                self._run_entry(host)
            else:
                self._wait()

    def message_is_next(self) -> bool:
        """Whether a message has come that was sent before the next step was posted."""
        return bool(self._inbox) and _DOWN.unpack_from(self._inbox[0])[0] <= self._head

    def next_entry(self, ring: int) -> tuple[int, int, int, int]:
        """Take the next step off the ring, which has so many entries."""
        words = self._words
        entry = RING + 2 * (self._head % ring)
        number, packed = words[entry], words[entry + 1]
        self._head += 1
        return number, packed >> 33, packed >> 2 & 0x7FFFFFFF, packed & 3

    def _run_entry(self, host: EnvHost) -> None:
        number, start, stop, plane = self.next_entry(host.stop - host.first)
        extras = host.step(start, stop, plane)
        if extras is not None:
            self.answer(Outcome(number, start, stop, extras))
        else:
            self._completed += 1
            self._bell.publish(COMPLETED, self._completed)

    def answer(self, outcome: Outcome) -> None:
        """Send the outcome of a whole operation; its bytes wake the caller."""
        span = (outcome.start, outcome.start, outcome.stop)
        self.send(outcome.number, [span], outcome.extras)
        self._channel.flush_all()

    def send(self, number: int, spans: Sequence[Span], extras: Extras | None) -> None:
        """Send what has ended of the operations with a number."""
        flat = [bound for span in spans for bound in span]
        head = _UP.pack(number, len(spans)) + struct.pack(f"<{len(flat)}q", *flat)
        self._channel.send([head, *(() if extras is None else _pack_extras(extras))])
        self._answered += 1
        self._words[ANSWERED] = self._answered

    def next_message(self) -> Operation | None:
        """Wait for a message; one that cannot be read is answered with a failure, and ``None``.

        Raises:
            EOFError: The caller is gone.
        """
        self._receive_all(self._received + (not self._inbox))
        if not self._inbox:
            raise EOFError("the caller is gone")
        payload = self._inbox.popleft()
        try:
            operation: Operation = unpack(memoryview(payload)[_DOWN.size :])
        except Exception as error:
            _, number, start, stop = _DOWN.unpack_from(payload)
            problem = Failure.of(error, start, "reading its arguments")
            self.answer(Outcome(number, start, stop, Extras(problems=[problem])))
            return None
        return operation

    def _receive_all(self, sent: int) -> None:
        """Read until so many messages have come; their bytes are on the way."""
        while self._received < sent and not self._channel.ended:
            self._receive()
            if self._received < sent:
                self._channel.wait(RECHECK_SECONDS)

    def _receive(self) -> None:
        messages = self._channel.drain()
        self._received += len(messages)
        self._inbox.extend(messages)

    def _news(self) -> bool:
        words = self._words
        return words[TAIL] != self._head or words[SENT] != self._received or bool(self._inbox)

    def _wait(self) -> None:
        begun = time.perf_counter()
        slept = not self._patience.watch(self._news)
        if slept:
            self._bell.park()
            while not self._news() and not self._channel.ended:
                # Sleep first: reading might take the very bell that came since the last look.
                self._channel.wait(RECHECK_SECONDS)
                self._receive()
            self._bell.unpark()
        now = time.perf_counter()
        self._patience.learn(now - begun, slept=slept)
        if now - self._settled > SETTLE_SECONDS and self._settle is not None:
            self._settled = now
            self._settle()


def _pack_extras(extras: Extras) -> list[Buffer]:
    """Pack extras; an answer that would not survive the way becomes a failure of its env."""
    problems = [p.portable() if isinstance(p, Failure) else p for p in extras.problems]
    extras.problems = problems
    for answers in (
        extras.infos,
        extras.final_infos,
        extras.objects,
        extras.final_objects,
        extras.values,
    ):
        for env_id, answer in [*answers.items()]:
            if not is_plain(answer) and not isinstance(answer, Description):
                try:
                    unpack(b"".join(pack(answer)))
                except Exception as error:
                    del answers[env_id]
                    problems.append(Failure.of(error, env_id, "sending its answer").portable())
    return pack(extras)
