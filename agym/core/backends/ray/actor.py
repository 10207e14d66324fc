"""The actor of ``backend="ray"``: it runs environments, and replies with completions.

Gymnasium's environments run in the thread in which Ray calls ``run``. Coroutine environments run on
an event loop in a thread, and worker processes (``workers_per_node``) are used by another thread::

    driver                                          actor
    run(operation, actions) -------------------->   InThisThread, LoopPort, or PoolBridge -- pool
    <------------------ completions: a reply ----   ReplyBuffer
    listen() ----------------------------------->   ReplyBuffer
    <------------------ later completions -------   '--  waits until there are some

``listen`` is always under way, in a separate thread, so its failure tells the driver that the actor
died. Replies are numbered, because a reply may overtake another.

This module imports neither Ray nor the driver's ``__main__``.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode

from agym.core._system.defer_signals import RECHECK_SECONDS
from agym.core._system.platform import sleep_on
from agym.core.backends.loop import LoopPort
from agym.core.backends.options import Process, Ray
from agym.core.backends.outbox import Outbox
from agym.core.backends.pool import Pool
from agym.core.backends.port import BackendOptions, close_host, open_host
from agym.core.backends.process.process_pool import ProcessPool
from agym.core.backends.process.serialization import Sealed, unseal
from agym.core.backends.process.worker_process import cap_threads
from agym.core.backends.ray.reply_buffer import ReplyBuffer
from agym.core.hosts.factories import describe_first, reraise
from agym.core.hosts.loop_host import guarded
from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import CLOSE, Attach, Make, Operation
from agym.core.protocol.metrics.gauges import ENV_GAUGES
from agym.core.protocol.table import SlotTable

# How often, in seconds, to reply while sent steps run one by one.
REPLY_SECONDS = 1e-3


class RayActor:
    """Runs environments of a range. Ray makes it an actor. It must not have coroutine methods.

    Attributes:
        replies: Collects the completions.
        runner: Runs the environments.
    """

    runner: InThisThread | LoopPort | PoolBridge

    def __init__(self) -> None:
        cap_threads()
        self.replies = ReplyBuffer()

    def run(self, sealed: Sealed) -> Sealed:
        """Run an operation, or start it in another thread; return the completions so far."""
        operation, actions = unseal(sealed, copy=True)
        message = operation.message
        if isinstance(message, Make):
            self._make(operation, _read(message.options, operation))
            return self.replies.take()
        self.replies.opened.wait()
        if isinstance(message, Attach):
            self._attach(message)
            return self.replies.take()
        self.replies.expect(operation, actions)
        if operation.number == CLOSE:
            self.runner.close()
        else:
            self.runner.post(operation)
        return self.replies.take()

    def listen(self) -> Sealed:
        """Wait for completions that no ``run`` returns."""
        return self.replies.wait()

    def _make(self, make: Operation, options: BackendOptions) -> None:
        """Make the environments; their kind decides where they run."""
        replies, spec = self.replies, options.spec_as(Ray)
        ids = range(make.start, make.stop)
        replies.hosts = [ids]
        replies.report_each = options.track_running
        if spec.workers_per_node is not None:
            processes = Process(workers=spec.workers_per_node, max_concurrency=spec.max_concurrency)
            pool = ProcessPool(replace(options, spec=processes))
            replies.hosts = pool.ranges
            self.runner = PoolBridge(pool, replies)
        else:
            coroutines, factories = describe_first(options.factories)
            options = replace(options, factories=factories, blocking=True)
            if coroutines:
                outbox: Any = LoopReplies(replies)
                self.runner = LoopPort(0, ids, options, outbox)
            else:
                self.runner = InThisThread(options, ids, replies)
        self.runner.start(make)

    def _attach(self, attach: Attach) -> None:
        """Lay out a table like the driver's, but use only this actor's rows."""
        description = self.replies.description
        if description is None:
            return  # construction failed
        table = SlotTable(
            *description.layouts,
            attach.num_envs,
            final=attach.final,
            shared=isinstance(self.runner, PoolBridge),
        )
        ids = self.replies.ids
        for name in ENV_GAUGES:
            table.gauges.arrays[name][ids.start : ids.stop] = attach.gauges[name]
        self.replies.table = table
        self.runner.attach(table)
        # Objects that exist now stay: the garbage collector need not scan them again.
        gc.collect()
        gc.freeze()


class InThisThread:
    """Runs Gymnasium environments in the thread that calls it."""

    def __init__(self, options: BackendOptions, ids: range, replies: ReplyBuffer) -> None:
        self._replies = replies
        self._host = options.host(SyncHost, ids, catch=BaseException)
        self.attach = self._host.attach

    def start(self, make: Operation) -> None:
        self._replies.add([open_host(self._host, make.number)])

    def post(self, operation: Operation) -> None:
        """Run an operation; for sent steps, reply now and then with those that are done."""
        host, started = self._host, time.perf_counter()
        for piece in operation.split(range(host.first, host.stop)):
            if time.perf_counter() - started > REPLY_SECONDS:
                self._replies.ring()
                started = time.perf_counter()
            self._replies.add([host.run(piece)])

    def close(self) -> None:
        self._replies.add([close_host(self._host)])


class LoopReplies:
    """The outbox of a :class:`LoopPort`: completions of one turn of the loop are sent together."""

    def __init__(self, replies: ReplyBuffer) -> None:
        self._replies = replies
        self._done: list[Completion] = []

    def put(self, _: LoopPort, done: Completion | BaseException) -> None:
        if not isinstance(done, Completion):
            self._replies.fail(done)
            return
        if not self._done:
            asyncio.get_running_loop().call_soon(guarded, self._replies.fail, self.ring)
        self._done.append(done)

    def ring(self) -> None:
        done, self._done = self._done, []
        self._replies.add(done)
        self._replies.ring()


def _read(sealed: Sealed, make: Operation) -> BackendOptions:
    """Unseal the options; a failure is raised by each factory, like an error of a constructor."""
    try:
        options: BackendOptions = unseal(sealed, copy=True)
    except Exception as error:
        failing = [partial(reraise, error)] * (make.stop - make.start)
        return BackendOptions(failing, AutoresetMode.DISABLED, first=make.start)
    return options


class PoolBridge:
    """Runs operations on a pool, and collects its completions."""

    def __init__(self, pool: Pool, replies: ReplyBuffer) -> None:
        self._pool = pool
        self._replies = replies
        self._inbox: deque[Callable[[], None]] = deque()
        self._bell = Outbox()  # only its bell is used, for the inbox
        self._closing = False

    def start(self, make: Operation) -> None:
        """Start the pool; ``make`` makes the environments."""
        self._enqueue(partial(self._try, make, self._pool.start, make.number))
        threading.Thread(target=self._run, name="agym-pool-bridge", daemon=True).start()

    def attach(self, table: SlotTable) -> None:
        self._enqueue(partial(self._pool.attach, table))

    def post(self, operation: Operation) -> None:
        """Queue an operation."""
        self._enqueue(partial(self._try, operation, self._pool.submit, operation))

    def close(self) -> None:
        self._enqueue(self._close)

    def _enqueue(self, do: Callable[[], None]) -> None:
        # Append, then ring. The bridge's thread parks, then empties the inbox, so it either finds
        # this call there or is woken by the ring.
        self._inbox.append(do)
        self._bell.ring()

    def _close(self) -> None:
        self._closing = True
        self._pool.close()

    def _try(self, operation: Operation, function: Callable[..., None], *arguments: Any) -> None:
        """Start an operation by a call of the pool, and complete it if that raises."""
        try:
            function(*arguments)
        except Exception as error:
            failure = Failure.of(error, operation.start, operation.message.name)
            self._replies.add([Completion(*operation.span, Payload(problems=[failure]))])
            self._replies.ring()

    def _run(self) -> None:
        """Run the thread; if it fails, the actor ends, which the driver notices."""
        pool, inbox, bell = self._pool, self._inbox, self._bell
        try:
            ended = False
            while not ended:
                bell.park()
                pool.park()
                while inbox:
                    inbox.popleft()()
                # Read ``ended`` before polling, so that the poll returns all earlier completions.
                ended = self._closing and pool.ended
                completions = pool.poll()
                if completions:
                    self._replies.add(completions)
                    self._replies.ring()
                elif not ended:
                    sleep_on({**bell.waitables(), **pool.waitables()}, RECHECK_SECONDS)
                bell.unpark()
                pool.unpark()
            pool.release()
        except BaseException as error:
            self._replies.fail(error)
