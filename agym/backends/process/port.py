"""One worker process and its mailbox: how it starts, gets the slot table, and ends."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from agym._system.cpus import HomeCore, available_cores, core_numbers, core_of, quota
from agym.backends.options import BackendSpec, Process
from agym.backends.port import Force
from agym.backends.process.channel import Channel
from agym.backends.process.mailbox import Mailbox, mailbox_fields
from agym.backends.process.serialization import Buffer, pack_by_value
from agym.backends.process.worker_main import WorkerMain
from agym.backends.process.worker_process import WorkerProcess
from agym.backends.spinning import SPIN_SECONDS, WATCH_SECONDS
from agym.protocol.memory import Arena
from agym.protocol.messages.failures import describe_exit
from agym.protocol.messages.operations import CLOSE, OPEN, Attach, Close, Extend, Operation, Shrink
from agym.protocol.table import Extension, SlotTable

# The exit code normally arrives right after EOF.
EXIT_CODE_SECONDS = 0.05


class ProcessPort(Mailbox):
    """A worker process, and the caller's end of its mailbox.

    Attributes:
        position: The place of its first core, see :class:`HomeCore`.
        workers: How many workers there are.
    """

    replaceable = True
    shared = True

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        return spec.workers or available_cores()

    position = 0
    workers = 1

    # ---------------------------------------------------------------- start and table

    def start(self, make: Operation, packed: Sequence[Buffer] = ()) -> None:
        spec, count, cores = self.options.spec_as(Process), len(self.ids), len(core_numbers())
        # To watch takes nothing from the others: neither a core, nor of a quota that all share.
        may_watch = self.workers <= cores <= quota()
        ours, theirs = socket.socketpair()
        channel = Channel(ours)  # before the process starts, so that a fork drops it
        try:
            home = HomeCore(self.position, crowded=self.workers >= cores)
            core = core_of(self.worker) if spec.pin else home
            self.process = WorkerProcess(
                WorkerMain(theirs, count, core, WATCH_SECONDS if may_watch else SPIN_SECONDS),
                name=f"agym-{self.worker}",
                start_method=spec.start_method or "spawn",
            )
            self.process.start()
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        self.pid = self.process.pid
        arena = Arena(mailbox_fields(count), shared=True)
        self.connect(arena.arrays, channel)
        self.send(make, packed, arena.descriptor)
        arena.close()

    def attach(self, table: SlotTable) -> None:
        """Send the table's descriptor; the worker derives the layout from its own spaces."""
        message = Attach(table.num_envs, table.final, bool(table.leasable))
        attach = Operation(OPEN, 0, table.num_envs, message)
        self.send(attach, pack_by_value(attach), table.arena.descriptor)
        for extension in table.extensions.values():
            self.extend(extension)

    def extend(self, extension: Extension) -> None:
        extend = Operation(OPEN, 0, 0, Extend(extension.planes))
        self.send(extend, pack_by_value(extend), extension.arena.descriptor)

    def shrink(self, first: int) -> None:
        shrink = Operation(OPEN, 0, 0, Shrink(first))
        self.send(shrink, pack_by_value(shrink))

    # ---------------------------------------------------------------- end

    def waitables(self) -> Mapping[int, int]:
        events = EVENT_READ | (EVENT_WRITE if self.channel.backlog else 0)
        return {self.channel.fileno(): events, self.process.ended: EVENT_READ}

    def is_gone(self, ended: set[int]) -> bool:
        """Return whether the worker has ended: by EOF, or as one of the descriptors says."""
        self.receive()
        return self.channel.ended or self.process.ended in ended

    def kill(self) -> None:
        self.process.kill()

    def end(self, error: BaseException | None, late: str | None, *, closing: bool) -> str:
        if late is not None:
            self.kill()  # what is posted to it from now on would be lost
        code = self.process.reap(timeout=0.0 if closing else EXIT_CODE_SECONDS)
        if code is None and late is not None:
            code = -signal.SIGKILL
        elif code is None and not closing:
            self.kill()  # it closed its channel, and cannot be reached
            code = self.process.reap(timeout=1.0)
        self.exitcode = code
        return late or self.channel.corrupt or describe_exit(code)

    def close(self, force: Force = Force.NONE) -> None:
        if force is Force.TERMINATE:
            self.process.terminate()
        elif force is Force.KILL:
            self.process.kill()
        elif self.death is None:
            close = Operation(CLOSE, self.ids.start, self.ids.stop, Close())
            self.record(close)
            self.send(close, pack_by_value(close))

    @property
    def ended(self) -> bool:
        return not self.process.is_alive()

    def release(self) -> None:
        """Close the channel, whose EOF ends a living worker; what was received stays."""
        self.channel.close()

    def forget(self) -> bool:
        self.release()
        ended = self.process.reap(timeout=0.0) is not None
        if ended:
            self.process.close()
        return ended

    @classmethod
    def release_all(cls, ports: Sequence[Any]) -> None:
        """End workers: by EOF on their channels, else by force."""
        for port in ports:
            port.release()
        left = [port.process for port in ports]
        for force in (None, WorkerProcess.terminate, WorkerProcess.kill):
            if force is not None:
                for process in left:
                    force(process)
            end = time.monotonic() + 1.0
            left = [p for p in left if p.reap(max(0.0, end - time.monotonic())) is None]
        for port in ports:
            if port.process not in left:
                port.process.close()
