"""The worker's end of a mailbox on an event loop, for coroutine environments.

Environments complete operations one by one. An operation of several environments is reported when
the last one has completed it, and until then every few milliseconds; but at once where a deadline
or recovery asks who is late.
Completions that are reported together are one message per operation.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agym.backends.process.mailbox import SlotRange
from agym.backends.process.worker_loop import WorkerLoop
from agym.hosts.loop import LoopHost, guarded
from agym.protocol.arguments import runs
from agym.protocol.infos.schema import Schema
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.operations import Load, Operation, Step

# Each message costs the caller a turn of its loop, on a core that the workers need.
PATIENCE_SECONDS = 5e-3


class _Progress:
    """The environments that completed an operation and were not reported; how many have not yet."""

    __slots__ = ("left", "slots")

    def __init__(self, width: int) -> None:
        self.left = width
        self.slots: list[int] = []


class CoroutineWorkerLoop(WorkerLoop):
    """Starts posted operations on the running loop, until ``close``.

    It receives its first messages before any loop runs, since the environments decide on that.
    """

    # How long completions wait for the others of their operation.
    patience = PATIENCE_SECONDS

    async def run(self, host: LoopHost) -> None:
        """Start operations in the order of posting, until ``close`` or EOF."""
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._progress: dict[tuple[int, int], _Progress] = {}  # by an operation's number and start
        # What has to be sent beside the spans, by number; the schemas that it needs; and problems,
        # each of which is sent by itself, so that its environment is known.
        self._payloads: dict[int, Payload] = {}
        self._schemas: dict[int, Schema] = {}
        self._problems: list[tuple[int, SlotRange, Payload]] = []
        self._sending: asyncio.Handle | None = None
        self._is_urgent = False
        self._bell.park()  # permanently: the loop sleeps on the channel, so each post must ring
        descriptor = self._channel.fileno()
        self._loop.add_reader(descriptor, guarded, self.fail, self._begin_posted, host)
        try:
            self._begin_posted(host)
            await self._closed
        finally:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())

    def fail(self, error: BaseException) -> None:
        """End the process, which the caller notices: some operation would never complete."""
        if not self._closed.done():
            self._closed.set_exception(error)

    def report(self, operation: Operation, slot: int, payload: Payload | None) -> None:
        """Record that an environment has completed an operation."""
        number, start, stop, message = operation
        progress = self._progress.get((number, start))
        if progress is None:
            progress = self._progress[number, start] = _Progress(stop - start)
        progress.left -= 1
        if payload is None:
            progress.slots.append(slot)
        else:
            self._add(number, start, slot, payload, progress)
        if self._sending is None or not (progress.left or self._is_urgent):
            self._send_later(urgent=not (progress.left and self.patience))
        if isinstance(message, Load):
            self._send_ended()  # before the environment's next completion

    def _add(
        self, number: int, start: int, slot: int, payload: Payload, progress: _Progress
    ) -> None:
        self._schemas.update(payload.schemas)
        payload.schemas = {}
        if payload.problems:
            self._problems.append((number, (start, slot, slot + 1), payload))
            return
        progress.slots.append(slot)
        merged = self._payloads.get(number)
        if merged is None:
            self._payloads[number] = payload
        else:
            merged.merge(payload)

    def _send_later(self, *, urgent: bool) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._is_urgent = urgent
        if urgent:
            self._sending = self._loop.call_soon(guarded, self.fail, self._send_ended)
        else:
            self._sending = self._loop.call_later(
                self.patience, guarded, self.fail, self._send_ended
            )

    def _begin_posted(self, host: LoopHost) -> None:
        self._receive()
        if not (self.run_posted(host) or self._closed.done()):
            self._closed.set_result(None)

    def run_operation(self, host: Any, operation: Operation) -> None:
        host.begin(operation)

    def run_step(self, host: Any, number: int, start: int, stop: int, plane: int) -> None:
        host.begin(Operation(number, start, stop, Step(plane)))

    def _send_ended(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        spans: dict[int, list[SlotRange]] = {}
        over: dict[int, int] = {}  # the latest operation that has ended, by its start
        for (number, start), progress in self._progress.items():
            if progress.slots:
                ended = runs(tuple(sorted(progress.slots)))
                spans.setdefault(number, []).extend((start, ids.start, ids.stop) for ids in ended)
                progress.slots.clear()
            if not progress.left:
                over[start] = max(number, over.get(start, number))
        if over:  # older ones are over, too: what is left of them was given up
            self._progress = {
                key: progress
                for key, progress in self._progress.items()
                if key[0] > over.get(key[1], -1)
            }
        payloads, self._payloads = self._payloads, {}
        problems, self._problems = self._problems, []
        answers = [(number, ids, payloads.get(number)) for number, ids in spans.items()]
        answers += [(number, [span], payload) for number, span, payload in problems]
        for number, ids, payload in answers:
            if self._schemas:  # they must arrive before infos that use them
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
