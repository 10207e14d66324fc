"""First-k when something fails, is late, or is closed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

import agym
from tests.support.drivers import (
    FORKED,
    Setup,
    apart,
    each_api,
    everywhere,
    gated,
    played,
    rows,
)
from tests.support.envs.coroutine_envs import AsyncTally, Keeper
from tests.support.envs.exiting_envs import Hangs
from tests.support.envs.faulty_envs import Exits
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Result, Tally
from tests.support.insides import backend_of
from tests.support.patience import deadline, patience

# One that hangs fails by itself, and not the whole run.


# ---------------------------------------------------------------- faults


@everywhere
@each_api
def test_an_environment_that_raises(api: str, setup: Setup) -> None:
    factories = [partial(setup.raises, "step")] * 4
    with played(api, factories, **setup.options) as envs:
        envs.reset()
        envs.send([5, 9, 6, 7])
        errors, got = [], []
        for _ in range(5):
            try:
                got += rows(envs.recv())
            except agym.EnvError as error:
                errors.append((error.env_id, error.operation, int(error.action)))
            if len(got) == 3 and errors:
                break
        assert errors == [(1, "step", 9)]
        assert sorted(got) == [[0, 1, 5], [2, 1, 6], [3, 1, 7]]
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        with pytest.raises(agym.ResetNeededError, match="environment 1"):
            envs.send([0, 0], [0, 1])
        envs.reset(env_ids=[1])
        envs.send([2, 3, 4, 5])
        batch = envs.recv(min_envs=4)
        assert sorted(rows(batch)) == [[0, 2, 2], [1, 1, 3], [2, 2, 4], [3, 2, 5]]


@everywhere
@each_api
def test_several_that_raise(api: str, setup: Setup) -> None:
    """Each of them is told, by itself or in a group, and none is received as if it had not."""
    factories = [partial(setup.raises, "step")] * 5
    with played(api, factories, **setup.options) as envs:
        envs.reset()
        envs.send([9, 5, 9, 6, 9])
        named: list[int] = []
        got = []
        while len(named) + len(got) < 5:
            try:
                got += rows(envs.recv())
            except (agym.EnvError, agym.AgymErrorGroup) as error:
                named += error.env_ids
        assert sorted(named) == [0, 2, 4]
        assert sorted(got) == [[1, 1, 5], [3, 1, 6]]


class Patchy(Tally):
    """Ends each episode at once; its info and whether a reset fails are what ``tell`` says."""

    def __init__(self) -> None:
        super().__init__(length=1)
        self.info: dict[str, Any] = {}
        self.fails = False

    def tell(self, info: dict[str, Any], fails: bool) -> None:
        self.info, self.fails = info, fails

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.fails:
            raise ValueError("told to fail")
        return super().reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> Result:
        *result, _ = super().step(action)
        return (*result, self.info)  # type: ignore[return-value]


@pytest.mark.parametrize("coroutines", [False, True], ids=["serial", "asyncio"])
def test_nothing_of_a_failed_step_shows_up_later(coroutines: bool) -> None:
    env = partial(AsyncTally, Patchy) if coroutines else Patchy
    backend = "asyncio" if coroutines else "serial"
    with played("sync", env, 1, backend=backend, autoreset="same_step") as envs:
        envs.reset()
        envs.call("tell", {"old": 1}, True)
        envs.send([0])
        with pytest.raises(agym.EnvError) as caught:
            envs.recv()
        assert caught.value.operation == "reset"  # as it says of plain steps
        envs.call("tell", {}, False)
        envs.reset()
        envs.send([0])
        (info,) = envs.recv().infos
        assert info["final_info"] == {}


@each_api
def test_a_worker_that_dies(api: str) -> None:
    with played(api, [partial(Exits, 3)] * 4, **FORKED, workers=2) as envs:
        envs.reset()
        envs.send([9, 5, 6, 7])
        told: list[tuple[int, ...]] = []
        got = []
        for _ in range(6):
            try:
                got += rows(envs.recv())
            except agym.WorkerDied as error:
                told.append(error.env_ids)
            except agym.UsageError:
                break
        assert told == [(0, 1)]
        assert sorted(got) == [[2, 1, 6], [3, 1, 7]]
        with pytest.raises(agym.WorkerDied):
            envs.send([0], [1])
        envs.send([4, 4], [2, 3])
        assert sorted(rows(envs.recv(min_envs=2))) == [[2, 2, 4], [3, 2, 4]]


def test_a_worker_that_dies_is_told_to_every_group() -> None:
    """Each of them waits for environments that will never come."""
    with agym.make([partial(Exits, 3)] * 2, **FORKED, workers=1) as envs:
        envs.reset()
        groups = envs.split(2)
        groups[1].send([5])
        groups[1].recv()
        for group in groups:
            group.send([0 if group is groups[1] else 9])
        with pytest.raises(agym.WorkerDied):
            groups[0].recv()
        with pytest.raises(agym.WorkerDied):
            _receive_and_send_again(groups[1])  # its step may have ended before the other's


def _receive_and_send_again(envs: Any) -> None:
    while True:
        envs.recv()
        envs.send([0])


def test_a_worker_that_dies_while_a_step_is_under_way_too(gates: Gates) -> None:
    """The step's error does not stand for the one of what was sent."""

    async def main() -> None:
        factories = gates.factories[:2]
        async with agym.make_async(factories, **FORKED, workers=1) as envs:
            await envs.reset()
            pids = await envs.call("pid")
            step = envs.step([1], env_ids=[0])
            envs.send([1], [1])
            os.kill(pids[0], signal.SIGKILL)
            with pytest.raises(agym.WorkerDied):
                await step
            with pytest.raises(agym.WorkerDied):
                await envs.recv()

    asyncio.run(main())


@pytest.mark.once
@apart
@each_api
def test_a_missed_deadline(api: str, setup: Setup, gates: Gates) -> None:
    with gated(api, setup, gates, timeout=deadline(0.4)) as envs:
        envs.send([4, 1, 5])
        assert sorted(rows(envs.recv(min_envs=2))) == [[0, 1, 4], [2, 1, 5]]
        thread = setup.backend == "thread"
        warned = pytest.warns(RuntimeWarning, match="abandoned") if thread else nullcontext()
        with warned, pytest.raises(agym.StepTimeout, match="environment 1;") as caught:
            envs.recv()
        assert (caught.value.env_ids, caught.value.operation) == ((1,), "step")
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        envs.reset(env_ids=[1])  # another one, behind the late step
        if thread:
            envs.let(gates.paths[1])  # what it answers late is dropped
        envs.send([6, 7], [0, 2])
        got = rows(envs.recv(min_envs=2))
        assert sorted(got) == [[0, 2, 6], [2, 2, 7]]
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        envs.send([8, 8, 8])
        assert sorted(rows(envs.recv(min_envs=3))) == [[0, 3, 8], [1, 1, 8], [2, 3, 8]]


# ---------------------------------------------------------------- closing


async def test_closing_while_a_recv_waits() -> None:
    keeper = Keeper()
    async with agym.make_async(keeper.factories(2), backend="asyncio") as envs:
        await envs.reset()
        envs.send([0, 0])
        waiting = [asyncio.create_task(envs.recv()) for _ in range(2)]
        listening = asyncio.create_task(anext(envs.as_completed()))
        while len(keeper.waiting) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await envs.aclose()
        for task in (*waiting, listening):
            with pytest.raises(agym.ClosedError, match="closed"):
                await task
        assert keeper.envs[0].log == ["reset", "step", "step cancelled", "close"]


async def test_closing_while_a_recv_waits_for_a_worker(gates: Gates) -> None:
    async with agym.make_async(gates.factories, **FORKED, workers=3) as envs:
        await envs.reset()
        envs.send([1, 1, 1])
        waiting = asyncio.create_task(envs.recv())
        await asyncio.sleep(0)
        closing = asyncio.create_task(envs.aclose())
        await asyncio.sleep(0)
        for i in range(3):
            gates.open(i)
        await closing
        with pytest.raises(agym.ClosedError, match="closed"):
            await waiting


async def test_closing_just_before_a_recv_takes_its_batch() -> None:
    """The batch was there, and its waiter had not had its turn: it gets it, or ClosedError."""
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


@pytest.mark.parametrize("fault", ["died", "timeout"])
def test_fast_environments_do_not_hide_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that always finds results never sleeps, and would not hear of the other worker."""
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
                    found = info.get("fault", found)
                    if i == 0:
                        envs.send([0], [0])
        assert found is not None
        assert (found.env_id, found.kind) == (1, fault)
