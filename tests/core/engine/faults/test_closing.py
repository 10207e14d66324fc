"""Closing always ends: repeated, during operations, and with workers that do not answer."""

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
from tests.support.drivers import each_api, opened
from tests.support.envs.faulty_envs import Hangs
from tests.support.envs.plain_envs import Probe, Tally
from tests.support.patience import patience

PROCESS: dict[str, Any] = {"backend": "process", "workers": 2}
pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.mark.once
@pytest.mark.parametrize("seconds", [0, 0.001, 0.05])
async def test_opening_may_be_cancelled(seconds: float) -> None:
    async def start() -> None:
        async with agym.make_async(Tally, 2, **PROCESS):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(start(), seconds)


async def test_an_aclose_that_is_cancelled_ends_the_workers_at_once() -> None:
    envs = await agym.make_async(partial(Hangs, True), 2, **PROCESS)
    await envs.reset()
    workers = [psutil.Process(pid) for pid in await envs.call("pid")]
    envs.step([9, 9])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(envs.aclose(), 0.1)
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
@each_api
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_that_do_not_answer_are_killed(method: Any, api: str, frozen: list[int]) -> None:
    """One computes without end, one hangs in C, one is stopped, one is dead, and one is fine.

    A process that is stopped does not act upon SIGTERM.
    """
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
@each_api
def test_workers_may_all_be_dead(api: str) -> None:
    with opened(api, Probe, 4, **PROCESS) as envs:
        envs.reset()
        for pid in {*envs.call("pid")}:
            os.kill(pid, signal.SIGKILL)
