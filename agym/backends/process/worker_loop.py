"""The worker's end of a mailbox: it runs a host on what the caller's end posts.

Steps come through the ring, everything else as messages; see ``backends/process/mailbox.py``.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agym._system.defer_signals import RECHECK_SECONDS
from agym.backends.process.channel import Channel
from agym.backends.process.doorbell import Doorbell
from agym.backends.process.mailbox import (
    ANSWERED,
    CALLER_ASLEEP,
    COMPLETED,
    DOWN,
    ENTRY,
    RING,
    SENT,
    TAIL,
    UP,
    WORKER_ASLEEP,
    SlotRange,
)
from agym.backends.process.serialization import Buffer, find_unsendable, pack, unpack
from agym.backends.spinning import SpinPolicy
from agym.hosts.base import Host
from agym.hosts.snapshots.states import EnvState
from agym.hosts.sync import SyncHost
from agym.protocol.frames import FrameShelf, ShelvedFrame
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import CLOSE, Close, Extend, Operation, Render, Shrink
from agym.protocol.typing import Array
from agym.protocol.value_copies import is_plain

# ``poll`` takes milliseconds that fit into 32 bits.
LONGEST_POLL_SECONDS = 3600.0


class WorkerLoop:
    """Runs a host on what is posted, until ``close``."""

    def __init__(
        self,
        memory: Mapping[str, Array],
        channel: Channel,
        go_home: Callable[[float], None] | None,
        watch: float,
    ) -> None:
        """Use the worker's end of a channel.

        Args:
            memory: The mailbox's.
            channel: The channel's end.
            go_home: Called after each wait, with the seconds of ``perf_counter``.
            watch: How long to watch for the next operation before sleeping, in seconds.
        """
        self._words = words = memory["words"].data
        self.shelf = FrameShelf(memory["frames"])
        self._channel = channel
        self._go_home = go_home
        self._bell = Doorbell(words, WORKER_ASLEEP, CALLER_ASLEEP, channel)
        self._spinning = SpinPolicy(watch)
        # The latest wait, in seconds, and whether it ended in sleep.
        self._waited = 0.0
        self._slept = False
        self._inbox: deque[Buffer] = deque()
        self._head = 0
        self._received = 0
        self._completed = 0
        self._answered = 0

    def serve(self, host: SyncHost) -> None:
        """Run operations in the order of posting, until ``close`` or EOF."""
        while self.run_posted(host):
            self._wait()

    def run_posted(self, host: Any) -> bool:
        """Run the operations that have been posted; return whether others may follow."""
        words, ring = self._words, host.stop - host.first
        while not self._channel.ended:
            tail = self._bell.read(TAIL)
            if words[SENT] > self._received:
                self._receive_all(words[SENT])
            # A message comes before the steps that were posted after it.
            if self._inbox and DOWN.unpack_from(self._inbox[0])[0] <= self._head:
                operation = self.next_message()
                if operation is None:
                    continue
                if isinstance(operation.message, Close):
                    return False
                if not self._prepare(operation, host):
                    self.run_operation(host, operation)
            elif self._head < tail:
                entry = RING + ENTRY * (self._head % ring)
                number, packed, plane = words[entry], words[entry + 1], words[entry + 2]
                self._head += 1
                self.run_step(host, number, packed >> 32, packed & 0xFFFFFFFF, plane)
            else:
                return True
        return False

    def run_operation(self, host: Any, operation: Operation) -> None:
        """Run an operation, and answer it."""
        self.answer(host.run(operation))

    def run_step(self, host: Any, number: int, start: int, stop: int, plane: int) -> None:
        """Run a step from the ring; one without a payload is only counted."""
        payload = host.step(start, stop, plane)
        if payload is not None:
            self.answer(Completion(number, start, stop, payload))
        else:
            self._completed += 1
            self._bell.publish(COMPLETED, self._completed)

    def answer(self, completion: Completion) -> None:
        """Send the completion of a whole operation; its bytes wake the caller."""
        span = (completion.start, completion.start, completion.stop)
        self.send(completion.number, [span], completion.payload)
        self._channel.flush_all()

    def send(self, number: int, spans: Sequence[SlotRange], payload: Payload | None) -> None:
        """Send the spans that have completed of the operations with a number."""
        flat = [bound for span in spans for bound in span]
        head = UP.pack(number, len(spans)) + struct.pack(f"<{len(flat)}q", *flat)
        self._channel.send([head, *(() if payload is None else pack_payload(payload))])
        self._answered += 1
        self._words[ANSWERED] = self._answered

    def next_message(self, doing: str = "reading its arguments") -> Operation | None:
        """Wait for a message; report one that cannot be unpickled, and return ``None``.

        Args:
            doing: What the message is read for, for the failure.

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
        """Sleep, but only until ``close`` or EOF arrives; return whether that is so.

        It is for an environment that may have to wait long, and would not read messages meanwhile.
        """
        end = time.monotonic() + seconds
        while not self._channel.ended and not any(map(_is_close, self._inbox)):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._channel.wait(min(left, LONGEST_POLL_SECONDS))
            self._receive()
        return True

    def _prepare(self, operation: Operation, host: Host) -> bool:
        """Do what an operation says about the host's memory.

        Returns:
            Whether that is all: planes were added or removed, which has no completion.
        """
        message = operation.message
        if isinstance(message, Extend):
            host.table.extend(message.planes, self._channel.next_descriptor()).arena.close()
            return True
        if isinstance(message, Shrink):
            host.table.shrink(message.first)
            return True
        if isinstance(message, Render):
            self.shelf.take_back(message.shelf)
        return False

    def _receive_all(self, sent: int) -> None:
        """Read until ``sent`` messages have arrived; they are on the way."""
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
        if self._waited:  # the policy learns now: before the step, the caller waited for that
            self._spinning.learn(self._waited, slept=self._slept)
        begun = time.perf_counter()
        self._slept = slept = not self._spinning.spin(self._news)
        if slept:
            self._bell.park()
            while not self._news() and not self._channel.ended:
                # Sleep first: reading might consume a bell that arrived since the last check.
                self._channel.wait(RECHECK_SECONDS)
                self._receive()
            self._bell.unpark()
        now = time.perf_counter()
        self._waited = now - begun
        if self._go_home is not None:
            self._go_home(now)


def _is_close(message: Buffer) -> bool:
    _, number, _, _ = DOWN.unpack_from(message)
    return bool(number == CLOSE)


def pack_payload(payload: Payload) -> list[Buffer]:
    """Pack a payload; a value that cannot be sent becomes a failure of its environment."""
    answers: dict[str, dict[int, Any]] = {
        "info": payload.infos,
        "observation": payload.objects,
        "final observation": payload.final_objects,
        "what it gave": payload.values,
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
                    f"{where} cannot be sent to another process ({type(why).__name__}: {why}):"
                    " leave it out, or take backend='thread' or 'serial'"
                )
                error.__cause__ = why
                del by_id[env_id]
                payload.problems.append(Failure.of(error, env_id, "sending its answer"))
    return pack(payload)
