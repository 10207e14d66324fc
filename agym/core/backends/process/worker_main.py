"""The main program of a worker process.

It constructs the environments, sends their descriptions, maps the slot table, and serves the
mailbox until ``close``, or until EOF, which means that the caller died.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from agym.core._system.cpus import HomeCore
from agym.core.backends.options import Process
from agym.core.backends.port import BackendOptions, close_host, closed, open_host
from agym.core.backends.process.channel import Channel
from agym.core.backends.process.mailbox import RUNNING, mailbox_fields
from agym.core.backends.process.worker_loop import WorkerLoop
from agym.core.backends.process.worker_process import cap_threads, set_worker_signals
from agym.core.hosts.base import Host
from agym.core.hosts.factories import describe_first
from agym.core.hosts.loop_host import LoopHost
from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.memory import Arena
from agym.core.protocol.messages.completions import Completion
from agym.core.protocol.messages.operations import Attach, Close, Make, Operation, Standby
from agym.core.protocol.table import SlotTable

# Rough number of objects that a step of a coroutine environment keeps until it ends.
OBJECTS_OF_A_STEP = 20


@dataclass
class WorkerMain:
    """The main program, first without an event loop and then on one.

    Environments with plain methods are made, stepped and closed while no loop runs, because they
    may use asyncio themselves. Only coroutine environments need the loop.

    The process gets a copy of this object.

    Attributes:
        end: The worker's end of the channel.
        count: Number of its environments.
        core: The core for all of its threads; or the object that keeps this thread on a core.
        watch: How long to watch for the next operation before sleeping, in seconds.
    """

    end: socket.socket
    count: int
    core: int | HomeCore
    watch: float
    _serve_on_loop: Callable[[], Awaitable[None]] | None = None

    def start(self) -> None:
        """Serve until the end, unless a loop is needed."""
        set_worker_signals()
        cap_threads()
        if isinstance(self.core, int):
            os.sched_setaffinity(0, {self.core})
        self._channel = Channel(self.end)
        try:
            self._serve(self._channel)
        except EOFError:
            pass  # the caller is gone
        except BaseException:
            # EOF tells the caller, even if a thread of an environment keeps this process alive.
            self._channel.close()
            raise

    def _serve(self, channel: Channel) -> None:
        mail = Arena(mailbox_fields(self.count), descriptor=channel.next_descriptor())
        mail.close()
        # Serves plain environments, too, as long as its loop is not run.
        home = None if isinstance(self.core, int) else self.core
        worker = WorkerLoop(mail.arrays, channel, home, self.watch)
        make = worker.next_message("make")
        if make is None:  # the factories could not be unpickled, which has been reported
            worker.answer(Completion(*_wait_for_close(worker, None).span))
            return
        options: BackendOptions = cast(Make, make.message).options
        coroutines, factories = describe_first(options.factories)
        options = replace(options, factories=factories)
        ids, marker = range(make.start, make.stop), mail.arrays["words"].data[RUNNING : RUNNING + 1]
        if coroutines:
            if options.track_running:  # a deadline needs to know at once which have ended
                worker.patience = 0.0
            tasks = options.host(
                LoopHost, ids, marker=marker, report=worker.report, fail=worker.fail,
                max_concurrency=options.spec_as(Process).max_concurrency,
            )  # fmt: skip
            self._serve_on_loop = partial(_serve_on_loop, worker, channel, tasks, make.number)
            return
        host = options.host(
            SyncHost, ids, marker=marker, catch=BaseException, closes_within=worker.closes_within
        )
        opened = open_host(host, make.number)
        if isinstance(make.message, Standby) and opened.payload and not opened.payload.problems:
            codecs = make.message.codecs
            opened.payload.values = {} if codecs is None else host.prove(codecs)
        try:
            if _start(worker, channel, host, opened):
                worker.serve(host)
        finally:
            worker.answer(close_host(host))

    async def run(self) -> None:
        """Serve coroutine environments until the end."""
        with suppress(EOFError), closing(self._channel):
            if self._serve_on_loop is not None:
                await self._serve_on_loop()


async def _serve_on_loop(worker: WorkerLoop, channel: Channel, host: LoopHost, number: int) -> None:
    """Construct coroutine environments, and run them until ``close``."""
    try:
        if _start(worker, channel, host, open_host(host, number)):
            # A round keeps some objects per environment, and none is garbage before the round ends:
            # a collection during the round would free nothing.
            enough = OBJECTS_OF_A_STEP * (host.stop - host.first)
            gc.set_threshold(max(gc.get_threshold()[0], enough))
            await worker.run(host)
    finally:
        worker.answer(closed(host, await host.close()))


def _start(worker: WorkerLoop, channel: Channel, host: Host, opened: Completion) -> bool:
    """Send the descriptions and map the table; return whether there is anything to serve."""
    worker.answer(opened)
    attach = worker.next_message()
    if opened.payload is not None and opened.payload.problems:
        _wait_for_close(worker, attach)
        return False
    if attach is None or not isinstance(attach.message, Attach):
        return False
    assert host.description is not None
    message = attach.message
    table = SlotTable(
        *host.description.layouts, message.num_envs,
        final=message.final, leases=message.leases, descriptor=channel.next_descriptor(),
    )  # fmt: skip
    table.arena.close()
    host.attach(table)
    host.shared.keep_frame = worker.shelf.keep
    # Objects that exist now stay: the garbage collector need not scan them again.
    gc.collect()
    gc.freeze()
    return True


def _wait_for_close(worker: WorkerLoop, message: Operation | None) -> Operation:
    """Read messages until ``close``; others are ignored."""
    while message is None or not isinstance(message.message, Close):
        message = worker.next_message()
    return message
