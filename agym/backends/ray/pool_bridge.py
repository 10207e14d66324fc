"""Pump: a thread of an actor that runs a pool of worker processes, for who is far away.

The thread alone uses the pool, and sleeps on the pool's descriptors and the bell of its own inbox.
"""

from __future__ import annotations

import os
import select
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial

from agym._system.defer_signals import RECHECK_SECONDS
from agym.backends.base import Backend
from agym.backends.outbox import Outbox
from agym.backends.ray.reply_buffer import ReplyBuffer
from agym.protocol.messages import CLOSE, OPEN, Completion, Failure, Operation, Payload
from agym.protocol.table import SlotTable
from agym.protocol.transfer import copy_plane
from agym.protocol.typing import Array


class PoolBridge:
    """Runs operations on an backend, and tells what has ended."""

    def __init__(self, backend: Backend, told: ReplyBuffer, make: Operation) -> None:
        """Begin to make the environments.

        Args:
            backend: Not started yet.
            told: Whom to tell.
            make: The operation that this belongs to.
        """
        self._backend = backend
        self._told = told
        self._make = make
        self._inbox: Outbox[Callable[[], None]] = Outbox()
        self._closing = False
        threading.Thread(target=self._run, name="agym-pump", daemon=True).start()

    def attach(self, table: SlotTable) -> None:
        """Give the backend its table."""
        self._inbox.put(partial(self._backend.attach, table))

    def give(self, operation: Operation, actions: Sequence[Array]) -> None:
        """Have an operation done."""
        self._inbox.put(partial(self._submit, operation, actions))

    def _run(self) -> None:
        """Be the thread; should it fail, the actor ends, which is what the driver is told of."""
        try:
            self._work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _work(self) -> None:
        backend, inbox = self._backend, self._inbox
        try:
            backend.start()
        except Exception as error:
            self._fail(self._make, error)
        while True:
            inbox.park()
            backend.park()
            for do in inbox.take():
                do()
            ended = self._closing and backend.ended
            outcomes = backend.poll()
            if outcomes:
                self._told.add([self._renumbered(outcome) for outcome in outcomes])
                self._told.ring()
            if ended:
                break
            if not outcomes:
                self._sleep()
            inbox.unpark()
            backend.unpark()
        backend.release()

    def _sleep(self) -> None:
        poller = select.poll()
        for descriptor in (*self._inbox.waitables(), *self._backend.waitables()):
            poller.register(descriptor, select.POLLIN)
        poller.poll(RECHECK_SECONDS * 1000)

    def _submit(self, operation: Operation, actions: Sequence[Array]) -> None:
        if operation.number == CLOSE:
            self._closing = True
            self._backend.close()
            return
        self._told.expect(operation, actions)
        try:
            self._backend.submit(operation._replace(plane=copy_plane(operation.plane)))
        except Exception as error:
            self._fail(operation, error)

    def _renumbered(self, outcome: Completion) -> Completion:
        return outcome._replace(number=self._make.number) if outcome.number == OPEN else outcome

    def _fail(self, operation: Operation, error: Exception) -> None:
        failure = Failure.of(error, operation.start, operation.kind)
        self._told.add([Completion(*operation.span, Payload(problems=[failure]))])
        self._told.ring()
