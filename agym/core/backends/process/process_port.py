"""A worker process and the caller's end of its mailbox: how it starts, gets work, and ends."""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from agym.core._system.cpus import HomeCore, available_cores, core_numbers, core_of, quota
from agym.core.backends.options import BackendSpec, Process
from agym.core.backends.port import Force, Port
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
    RUNNING,
    SENT,
    TAIL,
    UP,
    WORKER_ASLEEP,
    mailbox_fields,
)
from agym.core.backends.process.serialization import Buffer, pack_by_value, unpack
from agym.core.backends.process.worker_main import WorkerMain
from agym.core.backends.process.worker_process import WorkerProcess
from agym.core.backends.spinning import SPIN_SECONDS, WATCH_SECONDS
from agym.core.protocol.frames import FrameLeases, ShelvedFrame
from agym.core.protocol.memory import Arena
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import Failure, WorkerDeath, describe_exit
from agym.core.protocol.messages.operations import Message, Operation, Span, Step
from agym.core.protocol.table import Extension, SlotTable
from agym.core.protocol.typing import Array

# The exit code normally arrives right after EOF.
EXIT_CODE_SECONDS = 0.05


class ProcessPort(Port):
    """A worker process, and the caller's end of its mailbox.

    Attributes:
        position: The place of its first core, see :class:`HomeCore`.
        workers: Number of workers.
    """

    polled = True
    replaceable = True

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        return spec.workers or available_cores()

    position = 0
    workers = 1

    # ---------------------------------------------------------------- start and table

    def start(self, make: Operation, packed: Sequence[Buffer] = ()) -> None:
        spec, count, cores = self.options.spec_as(Process), len(self.ids), len(core_numbers())
        # Watching is free if it takes no core, and no share of a common quota, from other workers.
        may_watch = self.workers <= cores <= quota()
        caller_end, worker_end = socket.socketpair()
        channel = Channel(caller_end)  # before the process starts, so that a forked worker drops it
        try:
            home = HomeCore(self.position, all_cores=self.workers >= cores)
            core = core_of(self.worker) if spec.pin else home
            self.process = WorkerProcess(
                WorkerMain(worker_end, count, core, WATCH_SECONDS if may_watch else SPIN_SECONDS),
                name=f"agym-{self.worker}",
                start_method=spec.start_method or "spawn",
            )
            self.process.start()
        except BaseException:
            channel.close()
            raise
        finally:
            worker_end.close()
        self.pid = self.process.pid
        arena = Arena(mailbox_fields(count), shared=True)
        self.connect(arena.arrays, channel)
        self.post(make, packed, arena.descriptor)
        arena.close()

    def connect(self, memory: Mapping[str, Array], channel: Channel) -> None:
        """Use shared memory and a channel, of which the worker has the other end."""
        words = memory["words"].data
        self.channel = channel
        self.marker = words[RUNNING : RUNNING + 1]
        self.frames = FrameLeases(memory["frames"])
        self.bell = Doorbell(words, CALLER_ASLEEP, WORKER_ASLEEP, channel)
        self._words = words
        self._tail = 0
        self._sent = 0
        self._received = 0
        self._completed = 0
        # The pending steps in the ring: an ordered set, whose values mean nothing.
        self._ring: OrderedDict[Span, None] = OrderedDict()
        self._completions: list[Completion] = []

    def attach(self, table: SlotTable) -> None:
        """Send the table's descriptor; the worker derives the layout from its own spaces."""
        message = ops.Attach(table.num_envs, table.final, bool(table.leasable))
        self._send_message(message, table.arena.descriptor)
        for extension in table.extensions.values():
            self.extend(extension)

    def extend(self, extension: Extension) -> None:
        """Map planes that were added to the table, before operations on them."""
        self._send_message(ops.Extend(extension.planes), extension.arena.descriptor)

    def shrink(self, extension: Extension) -> None:
        """Unmap planes that were removed."""
        self._send_message(ops.Shrink(extension.planes.start))

    # ---------------------------------------------------------------- operations

    def post_step(self, number: int, start: int, stop: int, plane: int, size: int) -> None:
        """Post a step whose actions are in the table; ``size`` environments complete together."""
        words, tail, ring = self._words, self._tail, self.size
        if stop - start == ring and not self._last_names:
            self._last_name = Step.name
        else:
            self.note_name(Step.name, start, stop)
        for low in range(start, stop, size):
            high = low + size
            # This entry is free: its last step has completed, see ``mailbox.py``. The worker reads
            # it only after ``publish``.
            entry = RING + ENTRY * (tail % ring)
            words[entry] = number
            words[entry + 1] = low << 32 | high
            words[entry + 2] = plane
            self._ring[number, low, high] = None
            tail += 1
        self._tail = tail
        words[POSTED] = time.perf_counter_ns()
        self.bell.publish(TAIL, tail)

    def pack(self, operation: Operation) -> list[Buffer]:
        """Pack an operation, with the frames that the worker may reuse; it must then be posted."""
        if isinstance(operation.message, ops.Render):
            operation = operation._replace(message=ops.Render(self.frames.give_back()))
        return pack_by_value(operation, operation.given())

    def post(
        self, operation: Operation, packed: Sequence[Buffer] = (), descriptor: int | None = None
    ) -> None:
        """Send a packed operation, optionally with a descriptor; its bytes wake the worker."""
        head = DOWN.pack(self._tail, operation.number, operation.start, operation.stop)
        self.channel.send([head, *packed], descriptor)
        # Count the message only after sending it: a worker that sees the count waits for the bytes.
        # A worker that reads the bytes before the count simply runs the operation earlier.
        self._sent += 1
        self._words[SENT] = self._sent

    def _send_message(self, message: Message, descriptor: int | None = None) -> None:
        """Send a message that has no completion."""
        operation = Operation(ops.OPEN, self.first, self.stop, message)
        self.post(operation, pack_by_value(operation), descriptor)

    def news(self) -> bool:
        words = self._words
        if words[COMPLETED] != self._completed or words[ANSWERED] > self._received:
            return True
        return bool(self._completions)

    @property
    def finished_at(self) -> float:
        return float(self._words[FINISHED] * 1e-9)

    @property
    def crowded_until(self) -> float:
        return float(self._words[CROWDED] * 1e-9)

    def park(self, envs: int = 1) -> None:
        self.bell.park()

    def unpark(self) -> None:
        self.bell.unpark()

    def collect(self) -> Sequence[Completion]:
        """Return the completions that have arrived."""
        words, bell = self._words, self.bell
        while True:
            # Read the count of steps before the count of messages. The worker writes them in the
            # order of its completions, so all messages before the last counted step are included.
            completed, answered = bell.read(COMPLETED), words[ANSWERED]
            received = answered > self._received
            if completed == self._completed and not received:
                break
            if received and not self._receive_until(answered):
                break  # announced messages are still on the way, and will wake the caller
            # The messages may have settled steps that were counted after the first read.
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

    def take_step(self) -> bool:
        """Accept the only step in the ring, if it has completed and there is nothing else."""
        ring, completed = self._ring, self._completed + 1
        if (
            len(ring) != 1
            or self.bell.read(COMPLETED) != completed
            or self._words[ANSWERED] != self._received
        ):
            return False
        ring.clear()
        self._completed = completed
        return True

    def _receive_until(self, answered: int) -> bool:
        """Read until ``answered`` messages have arrived; return false if some are on the way."""
        while self._received < answered and not self.channel.ended:
            before = self._received
            self.receive()
            if self._received == before and not self.channel.ended:
                return False
        return True

    def receive(self) -> None:
        """Read the messages that have arrived; give up a worker that sent an invalid message."""
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
        payload = None
        try:
            payload = unpack(body) if body else None
        except Exception as error:
            low, high = spans[0]
            operation = self.find(self.pending, number, low, high)
            name = Step.name if operation is None else self.pending[operation]
            payload = Payload(problems=[Failure.of(error, low, name)])
        if payload is not None and not isinstance(payload, Payload):
            raise ValueError(f"a reply of type {type(payload).__name__}")
        if payload is not None:
            for slot, value in payload.values.items():
                if isinstance(value, ShelvedFrame):
                    payload.values[slot] = self.frames.open(value)
        for k, (low, high) in enumerate(spans, 1):
            if not self.settle(number, low, high):
                raise ValueError(f"a reply about {(low, high)} in {number}, which is not pending")
            last = k == len(spans)  # it includes the rest, and the problems
            part = payload if last or payload is None else payload.take(range(low, high))
            self._completions.append(Completion(number, low, high, part))

    def _take_completed(self) -> None:
        """Complete the oldest pending step, which has no payload."""
        operation, _ = self._ring.popitem(last=False)
        self._completions.append(Completion(*operation))
        self._completed += 1

    def settle(self, number: int, low: int, high: int) -> bool:
        ring = self._ring
        step = self.find(ring, number, low, high)
        if step is None:
            return super().settle(number, low, high)
        if self.complete(step, low, high):
            # Steps that completed earlier without a message are reported first.
            completed = self.bell.read(COMPLETED)
            while self._completed < completed and next(iter(ring)) != step:
                self._take_completed()
            del ring[step]
        return True

    def unfinished(self) -> list[tuple[int, int, int, str]]:
        steps = [(*step, Step.name) for step in self._ring]
        return sorted([*super().unfinished(), *steps])

    def fail(self, problem: WorkerDeath | Failure) -> list[Completion]:
        completions = super().fail(problem)
        self._ring.clear()
        return completions

    # ---------------------------------------------------------------- end

    def waitables(self) -> Mapping[int, int]:
        events = EVENT_READ | (EVENT_WRITE if self.channel.backlog else 0)
        return {self.channel.fileno(): events, self.process.ended: EVENT_READ}

    def is_gone(self, ready: Collection[int]) -> bool:
        """Return whether the worker has ended, given the descriptors that are ready."""
        if self.channel.fileno() in ready:
            self.receive()
        return self.channel.ended or self.process.ended in ready

    def kill(self) -> None:
        self.process.kill()

    def end(self, error: BaseException | None, late: str, *, closing: bool) -> str:
        if late:
            self.kill()  # operations posted from now on would be lost
        code = self.process.reap(timeout=0.0 if closing else EXIT_CODE_SECONDS)
        if code is None and late:
            code = -signal.SIGKILL
        elif code is None and not closing:
            self.kill()  # it closed its channel, so it cannot be reached any more
            code = self.process.reap(timeout=1.0)
        self.exitcode = code
        return late or self.channel.corrupt or describe_exit(code)

    def close(self, force: Force = Force.NONE) -> None:
        if force is Force.TERMINATE:
            self.process.terminate()
        elif force is Force.KILL:
            self.process.kill()
        elif self.death is None:
            close = Operation(ops.CLOSE, self.ids.start, self.ids.stop, ops.Close())
            self.record(close)
            self.post(close, pack_by_value(close))

    @property
    def ended(self) -> bool:
        return not self.process.is_alive()

    def release(self) -> None:
        """Close the channel, whose EOF ends a living worker; data already received stays."""
        self.channel.close()

    def forget(self) -> bool:
        self.release()
        ended = self.process.reap(timeout=0.0) is not None
        if ended:
            self.process.close()
        return ended


def end_processes(ports: Sequence[Any]) -> None:
    """End the workers of released ports: by EOF on their channels, otherwise by force."""
    every = running = [port.process for port in ports if port.pid is not None]
    for force in (None, WorkerProcess.terminate, WorkerProcess.kill):
        if force is not None:
            for process in running:
                force(process)
        # All workers got the same request, so one second is for all of them together.
        end = time.monotonic() + 1.0
        running = [p for p in running if p.reap(max(0.0, end - time.monotonic())) is None]
    for process in every:
        if process not in running:
            process.close()


def _read_head(message: Buffer) -> tuple[int, list[tuple[int, int]], memoryview]:
    """Parse a worker's message: number, spans, and packed payload."""
    if len(message) < UP.size:
        raise ValueError(f"a message of {len(message)} bytes")
    number, count = UP.unpack_from(message)
    if not 0 < count <= (len(message) - UP.size) // 16:
        raise ValueError(f"a message of {len(message)} bytes about {count} spans")
    flat = struct.unpack_from(f"<{2 * count}q", message, UP.size)
    spans = [*zip(flat[::2], flat[1::2], strict=True)]
    return number, spans, memoryview(message)[UP.size + 16 * count :]
