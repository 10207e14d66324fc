"""``send``, ``recv`` and ``as_completed``: the cases that are not laws of every backend."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.testing import Script
from agym.testing.law import rows as scripted_rows
from tests.support.backends import SERIAL_OR_FORK
from tests.support.drivers import FORKED, Setup, each_api, everywhere, played, rows
from tests.support.envs.coroutine_envs import Parrot
from tests.support.envs.exiting_envs import Hangs
from tests.support.envs.plain_envs import Tally
from tests.support.insides import backend_of
from tests.support.patience import deadline, patience

# ---------------------------------------------------------------- batches


def test_batches_of_all_environments_in_order_are_views() -> None:
    """With ``copy=False``, until the next but one; another batch is a copy."""
    with played("sync", Tally, 4, backend="serial", copy=False) as envs:
        envs.reset()
        envs.send([5] * 4)
        assert not envs.recv(min_envs=4).observations.flags.owndata
        envs.send([9], [3])
        batch = envs.recv()
        envs.step([1] * 4)
        assert rows(batch) == [[3, 2, 9]]


def test_infos_do_not_change_the_order_of_results(script: Script) -> None:
    """A worker returns infos and observations by different ways; the oldest step comes first."""
    with agym.make(script.factories(3), **FORKED, workers=1, output="array") as envs:
        envs.reset()
        script.set(0, "step", "no info")
        script.set(2, "step", "wait")
        envs.send([0, 2, 1])
        with Path(script.gate(2).path).open("w"):  # environment 2 steps: 0 and 1 have finished
            assert scripted_rows(envs.recv(min_envs=2)) == [[0, 1, 0], [1, 1, 2]]
        envs.recv()


@contextmanager
def stopped(envs: Any) -> Iterator[None]:
    """Stop the first worker, so that no operation of its environments finishes."""
    pid = envs.stats().workers[0].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_an_empty_batch_of_objects() -> None:
    with agym.make(Parrot, 1, **FORKED, workers=1) as envs:
        envs.reset()
        with stopped(envs):
            envs.send(["wait"])
            batch = envs.recv(timeout=0)
        assert ([*batch.env_ids], [*batch.observations], batch.infos) == ([], [], [])
        assert [*envs.recv().observations] == ["wait"]


# ---------------------------------------------------------------- a sent step excludes others


@each_api
def test_a_sent_step_of_a_vector_environment_excludes_others(api: str) -> None:
    with played(api, "CartPole-v1", 4, backend="vector", workers=2) as envs:
        envs.reset(seed=0)
        for is_finished in (False, True):
            envs.send([1] * 4)
            if is_finished:
                envs.get_attr("metadata")
            for dispatch in (
                partial(envs.step, [0] * 4),
                partial(envs.step, [0, 0], env_ids=[0, 1]),
                partial(envs.send, [0, 0], [2, 3]),
            ):
                with pytest.raises(agym.BusyError, match="recv"):
                    dispatch()
            assert len(envs.recv(min_envs=4).env_ids) == 4
            envs.step([0] * 4)


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_a_step_sent_through_the_runner_of_a_gymnasium_vector_environment(backend: Any) -> None:
    with closing(agym.make_vec("CartPole-v1", 2, backend=backend)) as envs:
        envs.reset(seed=0)
        envs.runner.send([0, 0])
        for dispatch in (envs.step, envs.step_async):
            with pytest.raises(agym.BusyError, match="recv"):
                dispatch([0, 0])
        envs.runner.recv(min_envs=2)
        envs.step([0, 0])


# ---------------------------------------------------------------- cancelling, and what comes behind


async def test_a_cancelled_receipt_unparks_the_caller(script: Script) -> None:
    """Workers need not ring when no task waits any more."""
    async with agym.make_async(script.factories(3), backend="thread") as envs:
        await envs.reset()
        backend = backend_of(envs)
        for i in range(3):
            script.set(i, "step", "wait")
        envs.send([1, 1, 1])
        task = asyncio.create_task(envs.recv())
        while not backend._parked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for i in range(3):
            script.open(i)
        assert sorted(scripted_rows(await envs.recv(min_envs=3))) == [[i, 1, 1] for i in range(3)]
        await envs.render()
        assert not backend._parked


async def test_an_unpicklable_action_behind_a_reset_fails_alone() -> None:
    """The step that waits for the reset raises; the reset and later steps succeed."""
    async with agym.make_async(Parrot, 2, **FORKED, workers=1, autoreset="disabled") as envs:
        with stopped(envs):  # so that the reset has not finished
            reset = envs.reset()
            step = envs.step([threading.Lock(), "fine"])
        assert [*(await reset).observations] == ["", ""]
        with pytest.raises(agym.UsageError, match="can't be pickled"):
            await step
        assert [*(await envs.step(["a", "b"])).observations] == ["a", "b"]


@everywhere
def test_environments_without_references_end_their_threads(setup: Setup) -> None:
    """Also if results were sent for and never received."""
    envs = agym.make(setup.of(2), **setup.options)
    envs.reset()
    envs.send([0, 0])
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("agym-")]
    del envs
    gc.collect()
    for thread in threads:
        thread.join(patience())
        assert not thread.is_alive()


async def test_closing_before_a_waiting_receipt_takes_its_batch() -> None:
    """The batch is ready, but its task has not run: it gets the batch, or ``ClosedError``."""
    async with agym.make_async(Tally, 2, backend="serial") as envs:
        await envs.reset()
        envs.send([3, 4])
        time.sleep(0.002)  # noqa: ASYNC251 - for so long that recv lets the loop turn once
        receiving = asyncio.create_task(envs.recv(min_envs=2))
        await asyncio.sleep(0)
        await envs.aclose()
        try:
            batch = await receiving
        except agym.ClosedError:
            pass
        else:
            assert rows(batch) == [[0, 1, 3], [1, 1, 4]]


# ---------------------------------------------------------------- faults


def test_every_group_receives_a_worker_death(script: Script) -> None:
    def receive_and_send_again(envs: Any) -> None:
        while True:
            envs.recv()
            envs.send([0])

    with agym.make(script.factories(2), **FORKED, workers=1) as envs:
        envs.reset()
        groups = envs.split(2)
        groups[1].send([5])
        groups[1].recv()
        script.set(0, "step", "exit")
        for group in groups:
            group.send([0])
        for group in groups:  # the step of the second may have finished before the death
            with pytest.raises(agym.WorkerDied):
                receive_and_send_again(group)


@pytest.mark.parametrize("fault", ["died", "timeout"])
def test_fast_environments_do_not_hide_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that always finds results notices the fault of another worker."""
    options: dict[str, Any] = {"on_fault": "restart", "autoreset": "next_step"}
    if fault == "timeout":
        options["timeout"] = deadline(0.5)
    with agym.make([Tally, Hangs], **FORKED, workers=2, **options) as envs:
        envs.reset()
        envs.send([0, 9])
        if fault == "died":
            os.kill(envs.stats().workers[1].pid or 0, signal.SIGKILL)
        found, end = None, time.monotonic() + patience(2)
        with monkeypatch.context() as patch:
            patch.setattr(backend_of(envs).spinning, "limit", patience())  # never sleeps
            while found is None and time.monotonic() < end:
                batch = envs.recv(min_envs=1)
                for i, info in zip(batch.env_ids, batch.infos, strict=True):
                    if i == 1:
                        found = info.get("fault")
                    else:
                        envs.send([0], [0])
        assert found is not None
        assert (found.env_id, found.kind) == (1, fault)
