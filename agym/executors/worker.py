"""Worker: what a worker process does, from its first message to its last.

It makes its environments and tells what they are like, maps the slot table, and serves its
mailbox until it is told to close; or until the other end of its channel is gone, which is how it
learns that the caller died.
"""

from __future__ import annotations

import gc
import os
import socket
from functools import partial

from agym.core.arena import Arena
from agym.core.coroutine_host import CoroutineHost
from agym.core.frames import FrameShelf
from agym.core.host import EnvHost
from agym.core.machine import spread
from agym.core.making import Host, look_at_first
from agym.core.operations import Operation
from agym.core.slots import SlotTable
from agym.executors.base import closed, open_host
from agym.executors.channel import Channel
from agym.executors.loop_worker import LoopWorker
from agym.executors.mailbox import RUNNING, mailbox_fields
from agym.executors.supervisor import cap_threads, ignore_interrupts

# What a step of a coroutine environment keeps until it ends, roughly.
OBJECTS_OF_A_STEP = 20


async def work(end: socket.socket, count: int, position: int, core: int | None) -> None:
    """Be a worker: the coroutine that its process runs.

    Args:
        end: Its end of the channel.
        count: Its number of environments.
        position: Its place among the workers, for a core of its own. Runners count from
            different numbers, so that they do not all begin with the same core.
        core: The core to stay on, with all threads to come; ``None`` to leave that to the system.
    """
    ignore_interrupts()  # Ctrl-C is the caller's to handle
    cap_threads()
    if core is not None:
        os.sched_setaffinity(0, {core})
    channel = Channel(end)
    try:
        fields = mailbox_fields(count)
        mail = Arena(Arena.size_of(fields), descriptor=channel.next_descriptor())
        mail.close()
        words = mail.carve(fields)["words"].data
        worker = LoopWorker(words, channel, settle=partial(spread, position))
        make = worker.next_message()
        if make is None:
            return  # its factories cannot be read here, and the caller has been told
        factories, autoreset, max_concurrency, watched, logged, infos = make.shared
        coroutines, factories = look_at_first(factories)
        host: EnvHost | CoroutineHost
        marker = words[RUNNING : RUNNING + 1] if watched else None
        if coroutines:
            host = CoroutineHost(
                factories, make.start, autoreset, worker.tell, max_concurrency, log=logged,
                marker=marker, infos=infos,
            )  # fmt: skip
        else:
            host = EnvHost(
                factories, make.start, autoreset, catch=BaseException, log=logged, marker=marker,
                infos=infos,
            )  # fmt: skip
        opened = open_host(host, make.number)
        worker.answer(opened)
        try:
            attach = worker.next_message()
            if opened.extras is not None and opened.extras.problems:
                while attach is None or attach.kind != "close":  # what else comes is in vain
                    attach = worker.next_message()
            elif attach is not None and attach.kind == "attach":
                host.attach(_map_table(host, attach, channel.next_descriptor()))
                host.frames = FrameShelf(channel.next_descriptor())
                # What exists now stays: the collector need not look through it ever again.
                gc.collect()
                gc.freeze()
                if isinstance(host, CoroutineHost):
                    # A round keeps some objects for each environment, and none is garbage
                    # before it ends: looking in the middle of it would be in vain.
                    gc.set_threshold(max(gc.get_threshold()[0], OBJECTS_OF_A_STEP * count))
                    await worker.run(host)
                else:
                    worker.serve(host)
        finally:
            failures = host.close() if isinstance(host, EnvHost) else await host.close()
            worker.answer(closed(host, failures))
    except EOFError:
        pass  # the caller is gone
    finally:
        channel.close()


def _map_table(host: Host, attach: Operation, descriptor: int) -> SlotTable:
    observation, action = host.layouts()
    final, leases = attach.shared
    table = SlotTable(
        observation, action, attach.stop, final=final, leases=leases, descriptor=descriptor
    )
    table.arena.close()
    return table
