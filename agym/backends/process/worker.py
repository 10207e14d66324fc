"""Worker: what a worker process does, from its first message to its last.

It makes its environments and tells what they are like, maps the slot table, and serves its
mailbox until it is told to close; or until the other end of its channel is gone, which is how it
learns that the caller died.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from agym._system.cpus import spread
from agym.backends.base import closed, open_host
from agym.backends.process.channel import Channel
from agym.backends.process.loop_worker import LoopWorker
from agym.backends.process.mailbox import RUNNING, mailbox_fields
from agym.backends.process.supervisor import cap_threads, ignore_interrupts
from agym.hosts.base import Host, describe_first
from agym.hosts.coroutine import CoroutineHost
from agym.hosts.gym import EnvHost
from agym.protocol.frames import FrameShelf
from agym.protocol.memory import Arena
from agym.protocol.messages import Completion, Operation
from agym.protocol.table import SlotTable

# What a step of a coroutine environment keeps until it ends, roughly.
OBJECTS_OF_A_STEP = 20


class WorkerMain:
    """Is a worker: what its process runs, first without an event loop and then on one.

    Environments with plain methods are made, stepped and closed while no loop runs, since they may
    use asyncio by themselves. Only for coroutine environments the loop has anything to do.
    """

    _serve_on_loop: Callable[[], Awaitable[None]] | None = None

    def __init__(self, end: socket.socket, count: int, position: int, core: int | None) -> None:
        """Say what to be; the process gets a copy of this.

        Args:
            end: Its end of the channel.
            count: Its number of environments.
            position: Its place among the workers, for a core of its own. Runners count from
                different numbers, so that they do not all begin with the same core.
            core: The core to stay on, with all threads to come; ``None`` to leave that to the
                system.
        """
        self._end = end
        self._count = count
        self._position = position
        self._core = core

    def begin(self) -> None:
        """Serve until the end, unless that needs a loop."""
        ignore_interrupts()  # Ctrl-C is the caller's to handle
        cap_threads()
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})
        channel = Channel(self._end)
        try:
            self._begin(channel)
        except EOFError:
            pass  # the caller is gone
        finally:
            if self._serve_on_loop is None:
                channel.close()

    def _begin(self, channel: Channel) -> None:
        fields = mailbox_fields(self._count)
        mail = Arena(Arena.size_of(fields), descriptor=channel.next_descriptor())
        mail.close()
        words = mail.carve(fields)["words"].data
        worker = LoopWorker(words, channel, settle=partial(spread, self._position))
        make = worker.next_message("make")
        if make is None:  # its factories cannot be read here, and the caller has been told
            worker.answer(Completion(*_wait_for_close(worker, None).span))
            return
        factories, autoreset, max_concurrency, track_running, record_actions, infos = make.shared
        coroutines, factories = describe_first(factories)
        marker = words[RUNNING : RUNNING + 1] if track_running else None
        if coroutines:
            tasks = CoroutineHost(
                factories, make.start, autoreset, worker.tell, max_concurrency, log=record_actions,
                marker=marker, infos=infos,
            )  # fmt: skip
            self._serve_on_loop = partial(_serve_on_loop, worker, channel, tasks, make.number)
            return
        host = EnvHost(
            factories, make.start, autoreset, catch=BaseException, log=record_actions,
            marker=marker, infos=infos,
        )  # fmt: skip
        opened = open_host(host, make.number)
        worker.answer(opened)
        try:
            if _attach(worker, channel, host, opened):
                worker.serve(host)
        finally:
            worker.answer(closed(host, host.close()))

    async def run(self) -> None:
        """Serve coroutine environments until the end."""
        if self._serve_on_loop is not None:
            await self._serve_on_loop()


async def _serve_on_loop(
    worker: LoopWorker, channel: Channel, host: CoroutineHost, number: int
) -> None:
    """Make coroutine environments, and run them until they are to be closed."""
    opened = open_host(host, number)
    try:
        worker.answer(opened)
        try:
            if _attach(worker, channel, host, opened):
                # A round keeps some objects for each environment, and none is garbage
                # before it ends: looking in the middle of it would be in vain.
                enough = OBJECTS_OF_A_STEP * (host.stop - host.first)
                gc.set_threshold(max(gc.get_threshold()[0], enough))
                await worker.run(host)
        finally:
            worker.answer(closed(host, await host.close()))
    except EOFError:
        pass  # the caller is gone
    finally:
        channel.close()


def _attach(worker: LoopWorker, channel: Channel, host: Host, opened: Completion) -> bool:
    """Take the table and all that goes with it; tell whether there is anything to serve then."""
    attach = worker.next_message()
    if opened.extras is not None and opened.extras.problems:
        _wait_for_close(worker, attach)
        return False
    if attach is None or attach.kind != "attach":
        return False
    host.attach(_map_table(host, attach, channel.next_descriptor()))
    host.frames = FrameShelf(channel.next_descriptor())
    # What exists now stays: the collector need not look through it ever again.
    gc.collect()
    gc.freeze()
    return True


def _wait_for_close(worker: LoopWorker, message: Operation | None) -> Operation:
    """Read on until the caller closes; what else comes is in vain."""
    while message is None or message.kind != "close":
        message = worker.next_message()
    return message


def _map_table(host: Host, attach: Operation, descriptor: int) -> SlotTable:
    observation, action = host.layouts()
    final, leases = attach.shared
    table = SlotTable(
        observation, action, attach.stop, final=final, leases=leases, descriptor=descriptor
    )
    table.arena.close()
    return table
