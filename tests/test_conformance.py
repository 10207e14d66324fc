"""The conformance kit over every backend, and over an backend of a stranger's."""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import threading
from selectors import EVENT_READ

from agym.backends.base import (
    Backend,
    BackendOptions,
    Completion,
    Force,
    Operation,
    SlotTable,
    Workers,
    close_host,
    open_host,
)
from agym.hosts.sync import SyncHost
from agym.testing import BackendConformance
from tests.support.backends import FORK
from tests.support.core_selection import examples


class QueueBackend(Backend, Workers):
    """All environments in one thread, behind a queue: written against backends/base.py alone."""

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self._inbox: queue.SimpleQueue[Operation | SlotTable | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[Completion] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._ended = False

    def start(self) -> None:
        self._thread.start()

    def attach(self, table: SlotTable) -> None:
        self._inbox.put(table)

    def submit(self, operation: Operation) -> None:
        self._inbox.put(operation)

    def poll(self) -> list[Completion]:
        outcomes = []
        while not self._outbox.empty():
            outcomes.append(self._outbox.get())
        return outcomes

    @property
    def workers(self) -> Workers:
        return self

    def waitables(self) -> dict[int, int]:
        return {self._reader: EVENT_READ}

    def unpark(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)

    def close(self, force: Force = Force.NONE) -> None:
        self._inbox.put(None)

    @property
    def ended(self) -> bool:
        return self._ended

    def release(self) -> None:
        if self._reader >= 0:
            self._thread.join()
            os.close(self._reader)
            os.close(self._writer)
            self._reader = -1

    def _run(self) -> None:
        host = SyncHost(self.options.factories, 0, self.options.autoreset)
        self._tell(open_host(host))
        while (item := self._inbox.get()) is not None:
            if isinstance(item, SlotTable):
                host.attach(item)
            else:
                self._tell(host.run(item))
        self._ended = True
        self._tell(close_host(host))

    def _tell(self, outcome: Completion) -> None:
        self._outbox.put(outcome)
        os.write(self._writer, b"!")


def test_a_backend_takes_less_than_80_lines() -> None:
    assert len(inspect.getsource(QueueBackend).splitlines()) < 80


class TestSerial(BackendConformance):
    backend = "serial"
    examples = examples(50).max_examples


class TestThread(BackendConformance):
    backend = "thread"
    examples = examples(50).max_examples


class TestProcess(BackendConformance):
    backend = FORK  # how a worker starts is nothing to what it does then: see test_process.py
    examples = examples(10).max_examples


class TestAsyncio(BackendConformance):
    backend = "asyncio"
    coroutines = True
    examples = examples(50).max_examples


class TestProcessWithCoroutines(BackendConformance):
    backend = FORK
    examples = examples(10).max_examples
    coroutines = True


class TestStranger(BackendConformance):
    backend = QueueBackend
    examples = examples(25).max_examples
