"""The outbox: its bell rings when as many environments have ended as the caller waits for."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode

import agym
from agym.api import waiting
from agym.backends import BackendSpec
from agym.core.backends.outbox import Outbox
from agym.core.backends.pool import Pool
from agym.core.backends.port import BackendOptions, Port
from agym.core.backends.thread import ThreadPort
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import Failure
from agym.testing import Script
from tests.support.patience import patience

# Completions of one environment and of two; and one that failed.
ONE, TWO = Completion(1, 0, 1), Completion(2, 1, 3)
FAILED = Completion(3, 0, 1, Payload(problems=[Failure(0, "step", "ValueError", "")]))


@pytest.fixture
def outbox() -> Iterator[Outbox]:
    outbox = Outbox()
    yield outbox
    outbox.close()


@pytest.fixture
def port(outbox: Outbox) -> Port:
    options = BackendOptions([], AutoresetMode.NEXT_STEP)
    return ThreadPort(0, range(3), options, outbox)


def rings(outbox: Outbox) -> bool:
    return bool(select.select([*outbox.waitables()], [], [], 0)[0])


def test_it_rings_when_enough_have_ended(outbox: Outbox, port: Port) -> None:
    port.report(ONE)
    assert outbox.collect() == [ONE]  # what was taken does not count
    outbox.park(3)
    port.report(ONE)
    assert not rings(outbox)
    port.report(TWO)
    assert rings(outbox)
    assert outbox.collect() == [ONE, TWO]


def test_what_another_thread_took_counts(outbox: Outbox, port: Port) -> None:
    port.report(ONE)
    outbox.park(3)
    port.report(ONE)
    assert outbox.collect() == [ONE, ONE]
    assert not rings(outbox)
    port.report(ONE)
    assert rings(outbox)


@pytest.mark.parametrize("what", [FAILED, RuntimeError()], ids=["problem", "end"])
def test_a_problem_rings_at_once(outbox: Outbox, port: Port, what: Any) -> None:
    outbox.park(3)
    port.report(what)
    assert rings(outbox)


class ParkingPool(Pool):
    """Tells when a caller goes to sleep for several environments."""

    parked = threading.Event()

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options, ThreadPort)

    def park(self, envs: int = 1) -> None:
        super().park(envs)
        if envs > 1:
            self.parked.set()


@dataclass(frozen=True, kw_only=True)
class Parking(BackendSpec):
    name = "parking"
    port = ParkingPool


def test_a_call_of_fewer_environments_wakes_a_thread_that_sleeps_for_more(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "RECHECK_SECONDS", 2 * patience())  # no call for help
    with (
        ThreadPoolExecutor(2) as pool,
        agym.make(script.factories(3), backend=Parking()) as envs,
    ):
        envs.reset()
        for i in range(3):
            script.set(i, "step", "wait")
        two = pool.submit(envs.step, [1, 1], env_ids=[0, 1])
        assert ParkingPool.parked.wait(patience())
        one = pool.submit(envs.step, [1], env_ids=[2])
        try:
            script.open(2)
            assert len(one.result(patience()).rewards) == 1
            assert not two.done()
        finally:
            script.open(0)
            script.open(1)
        assert len(two.result(patience()).rewards) == 2
