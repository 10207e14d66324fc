"""One worker process and its mailbox: how they start, and get the slot table."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace

from agym._system.cpus import HomeCore, core_of
from agym.backends.base import BackendOptions
from agym.backends.options import Process
from agym.backends.process.channel import Channel
from agym.backends.process.mailbox import Mailbox, mailbox_fields
from agym.backends.process.serialization import Buffer, pack_by_value
from agym.backends.process.worker_main import WorkerMain
from agym.backends.process.worker_process import WorkerProcess
from agym.backends.registry import Entries, with_registry
from agym.protocol.memory import Arena
from agym.protocol.messages.operations import OPEN, Attach, Extend, Make, Operation, Shrink
from agym.protocol.table import Extension, SlotTable


@dataclass(eq=False)
class WorkerHandle:
    """A worker process, and the caller's end of its mailbox.

    Attributes:
        watched: The caller may be sleeping on its descriptors.
    """

    mailbox: Mailbox
    process: WorkerProcess
    watched: bool = True

    def attach(self, table: SlotTable) -> None:
        """Send the table's descriptor; the worker derives the layout from its own spaces."""
        message = Attach(table.num_envs, table.final, bool(table.leasable))
        attach = Operation(OPEN, 0, table.num_envs, message)
        self.mailbox.send(attach, pack_by_value(attach), table.arena.descriptor)
        self.mailbox.channel.send((), self.mailbox.frames.descriptor)
        for extension in table.extensions.values():
            self.extend(extension)

    def extend(self, extension: Extension) -> None:
        planes = extension.planes
        extend = Operation(OPEN, 0, 0, Extend(planes))
        self.mailbox.send(extend, pack_by_value(extend), extension.arena.descriptor)

    def shrink(self, first: int) -> None:
        """Have the planes from ``first`` on unmapped."""
        shrink = Operation(OPEN, 0, 0, Shrink(first))
        self.mailbox.send(shrink, pack_by_value(shrink))

    def close(self) -> bool:
        """Close the channel, whose EOF ends a living worker; return whether it has ended."""
        self.mailbox.close()
        ended = self.process.reap(timeout=0.0) is not None
        if ended:
            self.process.close()
        return ended


def pack_make(
    options: BackendOptions,
    ids: range,
    number: int,
    registry: Entries | None,
    message: Make,
) -> tuple[Operation, list[Buffer]]:
    """Pack the operation by which a worker constructs the environments ``ids``.

    ``message`` is completed. Without ``registry`` the worker keeps its own: it is forked.

    Raises:
        UsageError: A factory cannot be pickled.
    """
    factories = options.some(ids)
    if registry is not None:
        factories = with_registry(factories, registry)
    mine = replace(options, factories=factories, first=ids.start)
    make = Operation(number, ids.start, ids.stop, replace(message, options=mine))
    return make, pack_by_value(make, options.named(ids))


def start_worker(
    make: Operation,
    message: list[Buffer],
    worker: int,
    spec: Process,
    *,
    position: int,
    crowded: bool,
    watch: float,
) -> WorkerHandle:
    """Start a worker, and post its ``make``.

    For ``position`` and ``crowded`` see :class:`HomeCore`, for ``watch`` :class:`WorkerMain`.
    """
    ids = range(make.start, make.stop)
    ours, theirs = socket.socketpair()
    channel = Channel(ours)  # before the process starts, so that a fork drops it
    try:
        home = HomeCore(position, crowded=crowded)
        core = core_of(worker) if spec.pin else home
        process = WorkerProcess(
            WorkerMain(theirs, len(ids), core, watch),
            name=f"agym-{worker}",
            start_method=spec.start_method or "spawn",
        )
        process.start()
    except BaseException:
        channel.close()
        raise
    finally:
        theirs.close()
    fields = mailbox_fields(len(ids))
    arena = Arena(Arena.size_of(fields), shared=True)
    mailbox = Mailbox(arena.carve(fields)["words"].data, channel, ids)
    mailbox.post(make, message, arena.descriptor)
    arena.close()
    return WorkerHandle(mailbox, process)
