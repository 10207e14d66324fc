"""Runs a pool of worker processes in an actor, for a driver on another machine.

Only the bridge's thread uses the pool. It sleeps on the pool's descriptors and its inbox's bell.
"""

from __future__ import annotations

import os
import select
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from agym._system.defer_signals import RECHECK_SECONDS
from agym.backends.outbox import Outbox
from agym.backends.pool import Pool
from agym.backends.ray.reply_buffer import ReplyBuffer
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import CLOSE, OPEN, Operation
from agym.protocol.table import SlotTable
from agym.protocol.typing import Array


class PoolBridge:
    """Runs operations on a backend, and collects its completions."""

    def __init__(self, backend: Pool, replies: ReplyBuffer, make: Operation) -> None:
        """Start ``backend``, and collect its completions; ``make`` is the first operation."""
        self._backend = backend
        self._replies = replies
        self._make = make
        self._inbox: deque[Callable[[], None]] = deque()
        self._bell = Outbox()  # which rings for the inbox
        self._closing = False
        threading.Thread(target=self._run, name="agym-pool-bridge", daemon=True).start()

    def attach(self, table: SlotTable) -> None:
        self._give(partial(self._backend.attach, table))

    def give(self, operation: Operation, actions: Sequence[Array]) -> None:
        """Queue an operation."""
        self._give(partial(self._submit, operation, actions))

    def _give(self, do: Callable[[], None]) -> None:
        self._inbox.append(do)
        self._bell.ring()

    def _run(self) -> None:
        """Run the thread; if it fails, the actor ends, which the driver notices."""
        try:
            self._work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _work(self) -> None:
        backend, inbox, bell = self._backend, self._inbox, self._bell
        try:
            backend.start()
        except Exception as error:
            self._fail(self._make, error)
        while True:
            bell.park()
            backend.park()
            while inbox:
                inbox.popleft()()
            ended = self._closing and backend.ended
            completions = backend.poll()
            if completions:
                self._replies.add([self._renumber(completion) for completion in completions])
                self._replies.ring()
            if ended:
                break
            if not completions:
                self._sleep()
            bell.unpark()
            backend.unpark()
        backend.release()

    def _sleep(self) -> None:
        poller = select.poll()
        for descriptor in (*self._bell.waitables(), *self._backend.waitables()):
            poller.register(descriptor, select.POLLIN)
        poller.poll(RECHECK_SECONDS * 1000)

    def _submit(self, operation: Operation, actions: Sequence[Array]) -> None:
        if operation.number == CLOSE:
            self._closing = True
            self._backend.close()
            return
        self._replies.expect(operation, actions)
        try:
            self._backend.submit(operation)
        except Exception as error:
            self._fail(operation, error)

    def _renumber(self, done: Completion) -> Completion:
        return done._replace(number=self._make.number) if done.number == OPEN else done

    def _fail(self, operation: Operation, error: Exception) -> None:
        failure = Failure.of(error, operation.start, operation.message.name)
        self._replies.add([Completion(*operation.span, Payload(problems=[failure]))])
        self._replies.ring()
