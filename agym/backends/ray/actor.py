"""The actor of ``backend="ray"``: it runs some environments, and replies with completions.

Gymnasium's environments run in the thread in which Ray calls ``run``. So do coroutine environments,
whose event loop then occupies that thread; later operations come by ``post``. The worker processes
of ``workers_per_node`` have a thread of their own::

    driver                                          actor
    run(operation, actions) -------------------->   SyncHost
    <------------------ completions: a reply ----   ReplyBuffer
    post(operation, actions) ------------------->   LoopServer, or PoolBridge -- ProcessPool
    listen() ----------------------------------->   ReplyBuffer
    <------------------ later completions -------   '--  waits until there are some

``listen`` is always under way, in a thread of its own, so its failure tells the driver that the
actor died. Replies are numbered, since two may overtake each other.

This module imports neither Ray nor the driver's ``__main__``.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gymnasium.vector import AutoresetMode

from agym.backends.options import Process, Ray
from agym.backends.port import BackendOptions, close_host, open_host
from agym.backends.process.pool import ProcessPool
from agym.backends.process.serialization import Sealed, seal, unseal
from agym.backends.process.worker_process import cap_threads, own_loop
from agym.backends.ray.event_loop import LoopServer
from agym.backends.ray.pool_bridge import PoolBridge
from agym.backends.ray.reply_buffer import ReplyBuffer
from agym.hosts.factories import describe_first, reraise
from agym.hosts.sync import SyncHost
from agym.protocol.messages.operations import CLOSE, Attach, Make, Operation, Step
from agym.protocol.metrics.gauges import ENV_GAUGES
from agym.protocol.table import SlotTable
from agym.protocol.typing import Array

# How often to reply while sent steps run one by one.
REPLY_SECONDS = 1e-3


class RayActor:
    """Runs environments of a range. Ray makes an actor of it, which must have no coroutines.

    Attributes:
        replies: Collects the completions.
        server: Runs operations instead of Ray's threads, if any.
    """

    server: PoolBridge | LoopServer | None = None

    def __init__(self) -> None:
        cap_threads()
        self.replies = ReplyBuffer()
        self._host: SyncHost | None = None

    def run(self, sealed: Sealed) -> Sealed:
        """Run an operation; return what has completed."""
        operation, actions = unseal(sealed, copy=True)
        message = operation.message
        if isinstance(message, Make):
            self._make(operation, _read(message.options, operation))
        elif isinstance(message, Attach):
            self._attach(message)
        elif self._host is not None:
            self._run_here(self._host, operation, actions)
        return self.replies.take()

    def post(self, sealed: Sealed) -> Sealed:
        """Start an operation on the server, once the environments are made."""
        self.replies.opened.wait()
        operation, actions = unseal(sealed, copy=True)
        if isinstance(operation.message, Attach):
            self._attach(operation.message)
        elif self.server is not None:
            self.server.give(operation, actions)
        elif self._host is not None:  # its factories could not be unpickled
            self._run_here(self._host, operation, actions)
            self.replies.ring()
        return seal(None)

    def listen(self) -> Sealed:
        """Wait for completions that no ``run`` returns."""
        return self.replies.wait()

    # ---------------------------------------------------------------- life

    def _make(self, operation: Operation, options: BackendOptions) -> None:
        """Make the environments; their kind decides where they run."""
        replies, spec = self.replies, options.spec_as(Ray)
        replies.ids = range(operation.start, operation.stop)
        replies.report_each = options.track_running
        if spec.workers_per_node is not None:
            pool = Process(workers=spec.workers_per_node, max_concurrency=spec.max_concurrency)
            backend = ProcessPool(replace(options, spec=pool))
            replies.firsts = [ids.start for ids in backend.ranges]
            self.server = PoolBridge(backend, replies, operation)
            return
        replies.firsts = [operation.start]
        coroutines, factories = describe_first(options.factories)
        options = replace(options, factories=factories)
        if coroutines:
            with asyncio.Runner(loop_factory=own_loop) as runner:
                runner.run(_serve_on_loop(self, operation, options))
            return
        self._host = options.host(SyncHost, replies.ids, catch=BaseException)
        replies.add([open_host(self._host, operation.number)])

    def _attach(self, attach: Attach) -> None:
        """Lay out a table like the driver's, of which only this actor's rows are used."""
        description = self.replies.description
        if description is None:
            return  # construction failed
        table = SlotTable(
            *description.layouts,
            attach.num_envs,
            final=attach.final,
            shared=isinstance(self.server, PoolBridge),
        )
        ids = self.replies.ids
        for name in ENV_GAUGES:
            table.gauges.arrays[name][ids.start : ids.stop] = attach.gauges[name]
        self.replies.table = table
        keeper = self.server or self._host
        assert keeper is not None
        keeper.attach(table)
        # Objects that exist now stay: the garbage collector need not scan them again.
        gc.collect()
        gc.freeze()

    # ---------------------------------------------------------------- operations

    def _run_here(self, host: SyncHost, operation: Operation, actions: Sequence[Array]) -> None:
        if operation.number == CLOSE:
            self.replies.add([close_host(host)])
            return
        self.replies.expect(operation, actions)
        if not (isinstance(operation.message, Step) and operation.message.sent):
            self.replies.add([host.run(operation)])
            return
        begun = time.perf_counter()
        for piece in operation.split(range(host.first, host.stop)):
            self.replies.add([host.run(piece)])
            if time.perf_counter() - begun > REPLY_SECONDS:
                self.replies.ring()
                begun = time.perf_counter()


def _read(sealed: Sealed, make: Operation) -> BackendOptions:
    """Unseal the options; a failure is raised by each factory, as by a constructor."""
    try:
        options: BackendOptions = unseal(sealed, copy=True)
    except Exception as error:
        failing = [partial(reraise, error)] * (make.stop - make.start)
        return BackendOptions(failing, AutoresetMode.DISABLED, first=make.start)
    return options


async def _serve_on_loop(actor: RayActor, make: Operation, options: BackendOptions) -> None:
    """Run coroutine environments on this loop."""
    actor.server = server = LoopServer(options, actor.replies)
    await server.serve(make.number)
