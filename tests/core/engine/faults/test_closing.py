"""Closing always ends: twice, in the middle of something, and with workers that do not answer."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import psutil
import pytest

import agym
from agym.backends import Process
from tests.support.drivers import APIS, opened
from tests.support.envs.faulty_envs import Hangs
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Probe, Tally
from tests.support.patience import patience

SETUPS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread"},
    "spawn": {"backend": "process", "workers": 2},
    "forkserver": {"backend": Process(start_method="forkserver"), "workers": 2},
}
each_place = pytest.mark.parametrize("setup", SETUPS)
pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.mark.once
@each_place
async def test_aclose_twice_and_at_the_same_time(setup: str) -> None:
    envs = await agym.make_async(Tally, 3, **SETUPS[setup])
    await envs.reset()
    await asyncio.gather(*(envs.aclose() for _ in range(3)))
    await envs.aclose()
    with pytest.raises(agym.ClosedError):
        envs.step([0, 0, 0])


async def test_aclose_before_they_were_opened() -> None:
    envs = agym.make_async(Tally, 2, backend="process", workers=1)
    await envs.aclose()
    await envs.aclose()


@pytest.mark.once
@pytest.mark.parametrize("turns", [0, 1, 50])
async def test_an_opening_that_is_cancelled(turns: int) -> None:
    async def start() -> None:
        async with agym.make_async(Tally, 2, backend="process", workers=2):
            await asyncio.Event().wait()

    task = asyncio.create_task(start())
    for _ in range(turns):
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_aclose_with_all_kinds_of_operations_under_way() -> None:
    envs = await agym.make_async(Tally, 3, backend="process", workers=2)
    await envs.reset()
    pending = [envs.step([1, 1, 1]), envs.render(), envs.get_attr("length"), envs.reset()]
    waiting = asyncio.create_task(asyncio.wait_for(pending[0], patience(3)))
    await asyncio.sleep(0)
    await envs.aclose()
    for operation in pending[1:]:
        with suppress(agym.ClosedError):  # or it was quicker
            await operation
    with suppress(agym.ClosedError):
        await waiting


@pytest.mark.once
@pytest.mark.parametrize("again", [False, True])
async def test_aclose_after_a_cancelled_await(again: bool, gates: Gates) -> None:
    async with agym.make_async(gates.factories, backend="process", workers=2) as envs:
        await envs.reset()
        step = envs.step([1, 0, 0])
        task = asyncio.create_task(asyncio.wait_for(step, patience(3)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if again:
            task = asyncio.create_task(envs.aclose())
            await asyncio.sleep(0)
        gates.open(0)
        await envs.aclose()
        if again:
            await task
        with pytest.raises(agym.ClosedError):
            await step


async def test_an_aclose_that_is_cancelled_ends_the_workers_at_once() -> None:
    envs = await agym.make_async(partial(Hangs, True), 2, backend="process", workers=2)
    await envs.reset()
    workers = [psutil.Process(pid) for pid in await envs.call("pid")]
    envs.step([9, 9])
    closing = asyncio.create_task(envs.aclose())
    await asyncio.sleep(0.1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    _, left = psutil.wait_procs(workers, timeout=patience())
    assert not left
    await envs.aclose()


@pytest.fixture
def frozen() -> Iterator[list[int]]:
    """Processes that were stopped, and go on after the test if they still exist."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.full
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_do_not_answer(method: str, api: str, frozen: list[int]) -> None:
    """One computes for ever, one hangs in C, one is stopped, one is dead, and one is fine."""
    hangs = [Hangs, partial(Hangs, True), Hangs, Hangs, Hangs]
    options: dict[str, Any] = {"backend": Process(start_method=method), "workers": 5}
    with opened(api, hangs, 5, timeout=None, **options) as envs:
        envs.reset()
        pids = envs.call("pid")
        (envs if api == "sync" else envs.envs).send([9, 9], env_ids=[0, 1])
        close = envs.close if api == "sync" else envs.aclose
        frozen.append(pids[2])
        os.kill(pids[2], signal.SIGSTOP)
        os.kill(pids[3], signal.SIGKILL)
        with suppress(agym.WorkerDied):
            close()
        close()
        assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.once
@pytest.mark.parametrize("api", APIS)
def test_workers_that_are_all_dead(api: str) -> None:
    with opened(api, Probe, 4, backend="process", workers=2) as envs:
        envs.reset()
        for pid in {*envs.call("pid")}:
            os.kill(pid, signal.SIGKILL)


def test_a_finished_group_closes_all_and_all_may_close_again() -> None:
    envs = agym.make(Tally, 4, backend="process", workers=2)
    first, second = envs.split(2)
    envs.reset()
    first.send([0, 0])
    first.close()
    second.close()
    envs.close()
