"""The actor of ``backend="ray"``: it runs some environments, and tells what has ended.

Gymnasium's environments live in the thread in which Ray calls ``run``. So do coroutine
environments, whose event loop has that thread from then on; what is done next comes by ``post``.
The pool of worker processes of ``workers_per_node`` has a thread of its own::

    driver                                           actor
    run(operation, actions) --------------------->   EnvHost
    <----------------- what has ended: a reply ---   Told
    post(operation, actions) -------------------->   LoopServer, or Pump -- ProcessBackend
    listen() ------------------------------------>   Told
    <----------------- what ended since ----------   '--  waits, until there is something

``listen`` is always under way, in a thread of its own; so its failure is also how the driver
learns that the actor died. Replies bear numbers, since two of them may overtake each other.

Nothing here imports Ray, nor anything of the driver's ``__main__``.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gymnasium.vector import AutoresetMode

from agym.backends.base import BackendOptions, close_host, open_host
from agym.backends.options import Process, Ray
from agym.backends.process.backend import ProcessBackend
from agym.backends.process.serialization import Sealed, seal, unseal
from agym.backends.process.supervisor import cap_threads, own_loop
from agym.backends.ray.event_loop import LoopServer
from agym.backends.ray.pool_bridge import PoolBridge
from agym.backends.ray.reply_buffer import ReplyBuffer
from agym.hosts.base import describe_first, reraise
from agym.hosts.gym import EnvHost
from agym.protocol.messages import CLOSE, ROW_KINDS, SENT_PLANE, Operation
from agym.protocol.space_layout import Layout
from agym.protocol.table import SlotTable
from agym.protocol.transfer import ENV_GAUGES, copy_plane
from agym.protocol.typing import Array

# While steps that were sent are run one by one, who listens is told of them this often.
TELL_SECONDS = 1e-3


class RayActor:
    """Environments of a range; Ray makes an actor of this class, which must have no coroutines.

    Attributes:
        told: What there is to tell.
        served: Who does operations in the place of Ray's threads.
    """

    served: PoolBridge | LoopServer | None = None

    def __init__(self) -> None:
        """Make nothing yet; the first message says what."""
        cap_threads()
        self.told = ReplyBuffer()
        self._host: EnvHost | None = None

    def run(self, message: Sealed) -> Sealed:
        """Do an operation; gives what has ended."""
        operation, beside = unseal(message, copy=True)
        if operation.kind == "make":
            self._make(operation, _read(beside, operation))
        elif operation.kind == "attach":
            self._attach(operation, *beside)
        elif self._host is not None:
            self._run_here(self._host, operation, beside)
        return self.told.take()

    def post(self, message: Sealed) -> Sealed:
        """Begin an operation, which another thread does, once the environments are made."""
        self.told.opened.wait()
        operation, beside = unseal(message, copy=True)
        if operation.kind == "attach":
            self._attach(operation, *beside)
        elif self.served is not None:
            self.served.give(operation, beside)
        elif self._host is not None:  # it could not even be read what is to be served
            self._run_here(self._host, operation, beside)
            self.told.ring()
        return seal(None)

    def listen(self) -> Sealed:
        """Wait until something has ended that no ``run`` tells."""
        return self.told.wait()

    # ---------------------------------------------------------------- life

    def _make(self, operation: Operation, options: BackendOptions) -> None:
        """Make the environments; their kind decides who runs them."""
        told, spec = self.told, options.spec_as(Ray)
        told.ids = range(operation.start, operation.stop)
        told.report_each = options.track_running
        if spec.workers_per_node is not None:
            pool = Process(workers=spec.workers_per_node, max_concurrency=spec.max_concurrency)
            backend = ProcessBackend(replace(options, spec=pool))
            told.firsts = [ids.start for ids in backend.ranges]
            self.served = PoolBridge(backend, told, operation)
            return
        told.firsts = [operation.start]
        coroutines, factories = describe_first(options.factories)
        if coroutines:
            with asyncio.Runner(loop_factory=own_loop) as runner:
                runner.run(_serve_on_loop(self, operation, replace(options, factories=factories)))
            return
        self._host = EnvHost(
            factories, options.first, options.autoreset, catch=BaseException,
            log=options.record_actions, infos=options.infos,
        )  # fmt: skip
        told.add([open_host(self._host, operation.number)])

    def _attach(self, operation: Operation, final: bool, gauges: dict[str, Array]) -> None:
        """Lay out a table like the driver's; only the rows of this actor are ever touched."""
        description = self.told.description
        if description is None:
            return  # they could not be made
        table = SlotTable(
            Layout(description.observation_space),
            Layout(description.action_space),
            operation.stop,
            final=final,
            shared=isinstance(self.served, PoolBridge),
        )
        ids = self.told.ids
        for name in ENV_GAUGES:
            table.gauges.arrays[name][ids.start : ids.stop] = gauges[name]
        self.told.table = table
        keeper = self.served or self._host
        assert keeper is not None
        keeper.attach(table)
        # What exists now stays: the collector need not look through it ever again.
        gc.collect()
        gc.freeze()

    # ---------------------------------------------------------------- operations

    def _run_here(self, host: EnvHost, operation: Operation, actions: Sequence[Array]) -> None:
        if operation.number == CLOSE:
            self.told.add([close_host(host)])
            return
        self.told.expect(operation, actions)
        operation = operation._replace(plane=copy_plane(operation.plane))
        if operation.plane != SENT_PLANE or operation.kind not in ROW_KINDS:
            self.told.add([host.run(operation)])
            return
        begun = time.perf_counter()
        for piece in operation.pieces(range(host.first, host.stop)):
            self.told.add([host.run(piece)])
            if time.perf_counter() - begun > TELL_SECONDS:
                self.told.ring()
                begun = time.perf_counter()


def _read(sealed: Sealed, make: Operation) -> BackendOptions:
    """Read what to make; what cannot be read fails as a constructor does."""
    try:
        options: BackendOptions = unseal(sealed, copy=True)
    except Exception as error:
        failing = [partial(reraise, error)] * (make.stop - make.start)
        return BackendOptions(failing, AutoresetMode.DISABLED, first=make.start)
    return options


async def _serve_on_loop(actor: RayActor, make: Operation, options: BackendOptions) -> None:
    """Run coroutine environments; they stay on this loop."""
    actor.served = server = LoopServer(options.factories, options, actor.told)
    await server.serve(make.number)
