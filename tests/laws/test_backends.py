"""Each law, in all worlds: every backend, API, autoreset mode and kind of environment."""

from __future__ import annotations

import inspect
import queue
import threading
from dataclasses import dataclass

import pytest

import agym
from agym.backends import BackendSpec
from agym.core.backends.options import ProcessWithCaller
from agym.core.backends.port import Force, Operation, Port, SlotTable, close_host, open_host
from agym.core.hosts.sync_host import SyncHost
from agym.testing import BackendConformance
from tests.support.backends import FORK
from tests.support.core_selection import examples


class QueuePort(Port):
    """A worker's environments in one thread, behind a queue: written against port.py alone."""

    def start(self, make: Operation) -> None:
        self._inbox: queue.SimpleQueue[Operation | SlotTable | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(make.number,), daemon=True)
        self._thread.start()

    def attach(self, table: SlotTable) -> None:
        self._inbox.put(table)

    def post(self, operation: Operation) -> None:
        self._inbox.put(operation)

    def close(self, force: Force = Force.NONE) -> None:
        self._inbox.put(None)
        self.closed = self.closed or force is Force.KILL

    def join(self) -> None:
        self._thread.join()

    def _run(self, number: int) -> None:
        host = self.options.host(SyncHost, self.ids)
        self.report(open_host(host, number))
        while (item := self._inbox.get()) is not None:
            if isinstance(item, SlotTable):
                host.attach(item)
            else:
                self.report(host.run(item))
        self.report(close_host(host))


@dataclass(frozen=True, kw_only=True)
class Queue(BackendSpec):
    """Its options."""

    name = "queue"
    port = QueuePort


def test_a_backend_takes_less_than_80_lines() -> None:
    lines = [inspect.getsource(part).splitlines() for part in (QueuePort, Queue)]
    assert sum(map(len, lines)) < 80


def test_the_class_of_a_strangers_options_is_called() -> None:
    with pytest.raises(agym.UsageError, match=r"backend=Queue is a class: call it, Queue\(\)"):
        agym.make("CartPole-v1", 2, backend=Queue)  # type: ignore[arg-type]


class TestSerial(BackendConformance):
    backend = "serial"
    examples = examples(50).max_examples


class TestThread(BackendConformance):
    backend = "thread"
    examples = examples(50).max_examples


class TestProcess(BackendConformance):
    backend = FORK  # how a worker starts is nothing to what it does then: see test_process.py
    examples = examples(10).max_examples


class TestProcessWithCaller(BackendConformance):
    backend = ProcessWithCaller(start_method="fork")
    worlds_per_law = 3
    examples = examples(10).max_examples


class TestAsyncio(BackendConformance):
    backend = "asyncio"
    kind = "coroutine"
    examples = examples(50).max_examples


class TestProcessWithCoroutines(BackendConformance):
    backend = FORK
    worlds_per_law = 3
    examples = examples(10).max_examples
    kind = "coroutine"


class TestVector(BackendConformance):
    backend = "vector"
    kind = "vector"


@pytest.mark.full  # its host is that of TestThread
class TestStranger(BackendConformance):
    backend = Queue()
    examples = examples(25).max_examples
