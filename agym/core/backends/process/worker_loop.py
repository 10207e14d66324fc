"""The worker's end of a mailbox: it runs the operations that the caller's end posts.

Steps come through the ring, other operations as messages; see ``backends/process/mailbox.py``.

Coroutine environments complete operations one by one. An operation of several environments is
reported when the last environment has completed it, and until then every few milliseconds; or
immediately if a deadline or recovery needs to know which environments are late. Completions that
are reported together are one message per operation.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agym.core._system.defer_signals import RECHECK_SECONDS
from agym.core.backends.process.channel import Channel
from agym.core.backends.process.doorbell import Doorbell
from agym.core.backends.process.mailbox import (
    ANSWERED,
    CALLER_ASLEEP,
    COMPLETED,
    CROWDED,
    DOWN,
    ENTRY,
    FINISHED,
    POSTED,
    RING,
    SENT,
    TAIL,
    UP,
    WORKER_ASLEEP,
)
from agym.core.backends.process.serialization import Buffer, find_unsendable, pack, unpack
from agym.core.backends.spinning import SpinPolicy
from agym.core.hosts.base import Host
from agym.core.hosts.loop_host import LoopHost, guarded
from agym.core.hosts.states.env_state import EnvState
from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.arguments import runs
from agym.core.protocol.frames import FrameShelf, ShelvedFrame
from agym.core.protocol.infos.schema import Schema
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.completions import Completion, Description, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Operation, Span, plain_step
from agym.core.protocol.typing import Array
from agym.core.protocol.value_copies import is_plain

# Each message costs the caller a turn of its loop, on a core that the workers need.
PATIENCE_SECONDS = 5e-3

# ``poll`` accepts milliseconds that fit into 32 bits.
MAX_POLL_SECONDS = 3600.0


@dataclass(slots=True)
class _Progress:
    """The number of unfinished environments of an operation, and the finished, unreported ones."""

    remaining: int
    slots: list[int] = field(default_factory=list)


class WorkerLoop:
    """Runs posted operations until ``close``: by :meth:`serve`, or by :meth:`run` on a loop.

    It receives its first messages before any loop runs, because the environments decide whether
    there will be a loop.
    """

    # How long completed environments on a loop wait for the others of their operation.
    patience = PATIENCE_SECONDS

    def __init__(
        self,
        memory: Mapping[str, Array],
        channel: Channel,
        go_home: Callable[[float], None] | None,
        watch: float,
    ) -> None:
        """Use the worker's end of a channel.

        Args:
            memory: The shared memory of the mailbox.
            channel: The channel's end.
            go_home: Called after each wait, with the time of ``perf_counter``.
            watch: How long to watch for the next operation before sleeping, in seconds.
        """
        self._words = words = memory["words"].data
        self.shelf = FrameShelf(memory["frames"])
        self._channel = channel
        self._go_home = go_home
        self._bell = Doorbell(words, WORKER_ASLEEP, CALLER_ASLEEP, channel)
        self._spinning = SpinPolicy(watch)
        self._inbox: deque[Buffer] = deque()
        self._head = 0
        self._received = 0
        self._completed = 0
        self._answered = 0

    def serve(self, host: SyncHost) -> None:
        """Run operations in the order of posting, until ``close`` or EOF."""

        def run(operation: Operation) -> None:
            self.answer(host.run(operation))

        def step(number: int, start: int, stop: int, plane: int) -> None:
            payload = host.step(start, stop, plane)
            # Before the completion: the caller reads this time when it sees the completion.
            self._words[FINISHED] = time.perf_counter_ns()
            if payload is not None:
                self.answer(Completion(number, start, stop, payload))
            else:
                self._completed += 1
                self._bell.publish(COMPLETED, self._completed)

        while self._run_posted(host, run, step):
            self._wait()

    def _run_posted(
        self,
        host: Host,
        run: Callable[[Operation], None],
        step: Callable[[int, int, int, int], None],
    ) -> bool:
        """Run the posted operations; return whether more may follow.

        Args:
            host: The host.
            run: Runs an operation that came as a message.
            step: Runs a step from the ring, by its number, start, stop and plane.
        """
        words, ring = self._words, host.stop - host.first
        while not self._channel.ended:
            # Read TAIL before SENT. The caller counts a message in SENT before it publishes a later
            # step in TAIL. So if this TAIL includes that step, SENT includes the message, and the
            # message is received and run first.
            tail = self._bell.read(TAIL)
            if words[SENT] > self._received:
                self._receive_all(words[SENT])
            # A message is stamped with the tail at its posting: it runs once those steps have run.
            if self._inbox and DOWN.unpack_from(self._inbox[0])[0] <= self._head:
                operation = self.next_message()
                if operation is None:
                    continue
                if isinstance(operation.message, ops.Close):
                    return False
                if not self._prepare(operation, host):
                    run(operation)
            elif self._head < tail:
                entry = RING + ENTRY * (self._head % ring)
                number, packed, plane = words[entry], words[entry + 1], words[entry + 2]
                self._head += 1
                step(number, packed >> 32, packed & 0xFFFFFFFF, plane)
            else:
                return True
        return False

    def answer(self, completion: Completion) -> None:
        """Send the completion of a whole operation; its bytes wake the caller."""
        number, start, stop, payload = completion
        self.send(number, [(start, stop)], payload)
        self._channel.flush_all()

    def send(self, number: int, spans: Sequence[tuple[int, int]], payload: Payload | None) -> None:
        """Send the completed spans of the operations with a number."""
        flat = [bound for span in spans for bound in span]
        head = UP.pack(number, len(spans)) + struct.pack(f"<{len(flat)}q", *flat)
        self._channel.send([head, *(() if payload is None else pack_payload(payload))])
        # After sending: a caller that sees the count expects the bytes.
        self._answered += 1
        self._words[ANSWERED] = self._answered

    def next_message(self, doing: str = "reading its arguments") -> Operation | None:
        """Wait for a message; if it cannot be unpickled, report that, and return ``None``.

        Args:
            doing: The purpose of the message, for the failure.

        Raises:
            EOFError: The caller is gone.
        """
        self._receive_all(self._received + (not self._inbox))
        if not self._inbox:
            raise EOFError("the caller is gone")
        payload = self._inbox.popleft()
        try:
            operation: Operation = unpack(memoryview(payload)[DOWN.size :])
        except Exception as error:
            _, number, start, stop = DOWN.unpack_from(payload)
            problem = Failure.of(error, start, doing)
            self.answer(Completion(number, start, stop, Payload(problems=[problem])))
            return None
        return operation

    def closes_within(self, seconds: float) -> bool:
        """Sleep, but only until ``close`` or EOF arrives; return whether it did.

        For an environment that may wait for a long time, during which nobody reads messages.
        """
        end = time.monotonic() + seconds
        while not self._channel.ended:
            if any(DOWN.unpack_from(message)[1] == ops.CLOSE for message in self._inbox):
                break
            remaining = end - time.monotonic()
            if remaining <= 0:
                return False
            self._channel.wait(min(remaining, MAX_POLL_SECONDS))
            self._receive()
        return True

    def _prepare(self, operation: Operation, host: Host) -> bool:
        """Apply an operation's changes to the host's memory.

        Returns:
            Whether the operation is done: added or removed planes have no completion.
        """
        message = operation.message
        if isinstance(message, ops.Extend):
            host.table.extend(message.planes, self._channel.next_descriptor()).arena.close()
            return True
        if isinstance(message, ops.Shrink):
            host.table.shrink(message.first)
            return True
        if isinstance(message, ops.Render):
            self.shelf.take_back(message.shelf)
        return False

    def _receive_all(self, sent: int) -> None:
        """Read until ``sent`` messages have arrived, all of which have been sent."""
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
        words, spinning = self._words, self._spinning
        spinning.learn()
        started = time.perf_counter()
        if started < spinning.crowded_until:
            words[CROWDED] = int(spinning.crowded_until * 1e9)
        slept = not spinning.spin(self._news)
        if slept:
            self._bell.park()
            while not self._news() and not self._channel.ended:
                # Sleep first, read then. Reading here first could swallow a bell that came after
                # ``_news`` looked, and the sleep would last until the timeout.
                self._channel.wait(RECHECK_SECONDS)
                self._receive()
            self._bell.unpark()
        now = time.perf_counter()
        spinning.note(started, now, slept=slept, due=words[POSTED] * 1e-9)
        if self._go_home is not None and now >= spinning.crowded_until:
            self._go_home(now)

    # ---------------------------------------------------------------- on an event loop

    async def run(self, host: LoopHost) -> None:
        """Start operations on the running loop, in the order of posting, until ``close`` or EOF."""
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._progress: dict[Span, _Progress] = {}
        # The payload to send with the spans, by number; the schemas that it needs; and problems,
        # each of which is sent separately, so that its environment is known.
        self._payloads: dict[int, Payload] = {}
        self._schemas: dict[int, Schema] = {}
        self._problems: list[tuple[int, int, Payload]] = []
        self._sending: asyncio.Handle | None = None
        self._is_urgent = False
        # The loop always sleeps on the channel, so the flag stays set and each post rings.
        self._bell.park()
        descriptor = self._channel.fileno()
        self._loop.add_reader(descriptor, guarded, self.fail, self._start_posted, host)
        try:
            self._start_posted(host)
            await self._closed
        finally:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())

    def fail(self, error: BaseException) -> None:
        """End the process, which the caller notices, because some operation cannot complete."""
        if not self._closed.done():
            self._closed.set_exception(error)

    def report(self, operation: Operation, slot: int, payload: Payload | None) -> None:
        """Record that an environment has completed an operation."""
        span, loads = operation.span, isinstance(operation.message, ops.Load)
        if loads:
            self._send_ended()  # a failure of the environment before must arrive before
        progress = self._progress.get(span)
        if progress is None:
            progress = self._progress[span] = _Progress(operation.stop - operation.start)
        progress.remaining -= 1
        if payload is None:
            progress.slots.append(slot)
        else:
            self._add(operation.number, slot, payload, progress)
        if self._sending is None or not (progress.remaining or self._is_urgent):
            self._send_in(self.patience if progress.remaining else 0.0)
        if loads:
            self._send_ended()  # must arrive before the environment's next completion

    def _add(self, number: int, slot: int, payload: Payload, progress: _Progress) -> None:
        self._schemas.update(payload.schemas)
        payload.schemas = {}
        if payload.problems:
            self._problems.append((number, slot, payload))
            return
        progress.slots.append(slot)
        merged = self._payloads.get(number)
        if merged is None:
            self._payloads[number] = payload
        else:
            merged.merge(payload)

    def _send_in(self, seconds: float) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._is_urgent = not seconds
        self._sending = self._loop.call_later(seconds, guarded, self.fail, self._send_ended)

    def _start_posted(self, host: LoopHost) -> None:
        def step(number: int, start: int, stop: int, plane: int) -> None:
            host.enqueue(Operation(number, start, stop, plain_step(plane)))

        self._receive()
        if not (self._run_posted(host, host.enqueue, step) or self._closed.done()):
            self._closed.set_result(None)

    def _send_ended(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        spans: dict[int, list[tuple[int, int]]] = {}
        over: dict[int, int] = {}  # the latest operation that has ended, by its start
        for (number, start, _), progress in self._progress.items():
            if progress.slots:
                ended = runs(tuple(sorted(progress.slots)))
                spans.setdefault(number, []).extend((ids.start, ids.stop) for ids in ended)
                progress.slots.clear()
            if not progress.remaining:
                over[start] = max(number, over.get(start, number))
        if over:  # older operations are over, too: their unfinished environments were given up
            self._progress = {
                span: progress
                for span, progress in self._progress.items()
                if progress.remaining and span[0] >= over.get(span[1], -1)
            }
        payloads, self._payloads = self._payloads, {}
        problems, self._problems = self._problems, []
        answers = [(number, ids, payloads.get(number)) for number, ids in spans.items()]
        answers += [(number, [(slot, slot + 1)], payload) for number, slot, payload in problems]
        for number, ids, payload in answers:
            if self._schemas:  # schemas must arrive before infos that use them
                payload = payload or Payload()
                payload.schemas, self._schemas = self._schemas, {}
            self.send(number, ids, payload)
        self._flush()

    def _flush(self) -> None:
        """Send what the channel accepts now, and the rest when it is writable."""
        self._channel.flush()
        if self._channel.backlog and not self._channel.ended:
            self._loop.add_writer(self._channel.fileno(), guarded, self.fail, self._flush)
        else:
            self._loop.remove_writer(self._channel.fileno())


def pack_payload(payload: Payload) -> list[Buffer]:
    """Pack a payload; a value that can't be pickled becomes a failure of its environment."""
    answers: dict[str, dict[int, Any]] = {
        "info": payload.infos,
        "observation": payload.objects,
        "final observation": payload.final_objects,
        "the returned value": payload.values,
    }
    for name, by_id in answers.items():
        for env_id, answer in [*by_id.items()]:
            if isinstance(answer, EnvState) and is_plain(answer.info):
                with suppress(Exception):
                    by_id[env_id] = answer.packed()
                    continue
            if is_plain(answer) or isinstance(answer, Description | ShelvedFrame):
                continue
            if unsendable := find_unsendable(answer, name):
                where, why = unsendable
                error = TypeError(
                    f"{where} can't be pickled ({type(why).__name__}: {why}):"
                    " omit it, or use backend='thread' or 'serial'"
                )
                error.__cause__ = why
                del by_id[env_id]
                payload.problems.append(Failure.of(error, env_id, "sending its reply"))
    return pack(payload)
