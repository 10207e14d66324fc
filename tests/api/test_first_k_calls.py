"""First-k among several calls: shared, cancelled, and mixed with others."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import agym
from agym.backends import BackendSpec
from agym.core.backends.pool import Pool
from agym.core.backends.port import BackendOptions
from agym.core.backends.thread import ThreadPort
from tests.support.drivers import (
    FORKED,
    Setup,
    apart,
    everywhere,
    rows,
)
from tests.support.envs.coroutine_envs import AsyncTally, Keeper, Parrot
from tests.support.envs.gated_envs import Gates, try_gate
from tests.support.patience import patience

# One that hangs fails by itself, and not the whole run.


# ---------------------------------------------------------------- several that receive


async def test_two_that_receive_share() -> None:
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(4), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([2, 3, 4, 5])
        tasks = [asyncio.create_task(envs.recv(min_envs=2, max_envs=2)) for _ in range(2)]
        await keeper.let(3, 1, 0, 2)
        batches = await asyncio.gather(*tasks)
        assert [batch.env_ids.tolist() for batch in batches] == [[3, 1], [0, 2]]
        assert [rows(batch) for batch in batches] == [
            [[3, 1, 5], [1, 1, 3]],
            [[0, 1, 2], [2, 1, 4]],
        ]


@pytest.mark.parametrize("consumers", [2, 3])
async def test_several_that_iterate_share(consumers: int) -> None:
    """Each of them ends when nothing is left, and nothing is lost between them."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(4), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([2, 3, 4, 5])
        got: list[list[float]] = []

        async def consume() -> None:
            async for batch in envs.as_completed(max_envs=1):
                got.extend(rows(batch))

        tasks = [asyncio.create_task(consume()) for _ in range(consumers)]
        await keeper.let(3, 1, 0, 2)
        await asyncio.gather(*tasks)
        assert got == [[3, 1, 5], [1, 1, 3], [0, 1, 2], [2, 1, 4]]


async def test_many_that_receive_and_send_again() -> None:
    """A pool of consumers: whoever receives an environment sends it again."""
    async with agym.make_async(
        partial(AsyncTally, length=10**6), 4, backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([0] * 4)
        steps = [1] * 4
        seen = [0] * 4

        async def consume() -> None:
            for _ in range(50):
                batch = await envs.recv(max_envs=1)
                (i,) = batch.env_ids.tolist()
                seen[i] += 1
                assert rows(batch) == [[i, seen[i], seen[i] % 10 if seen[i] > 1 else 0]]
                steps[i] += 1
                envs.send([steps[i] % 10], [i])

        await asyncio.gather(*(consume() for _ in range(3)))
        await envs.recv(min_envs=4)
        assert sum(seen) == 150
        assert await envs.get_attr("now") == steps


# ---------------------------------------------------------------- cancelling


async def cancelled_after(turns: int, coroutine: Any) -> Any:
    """Run a coroutine and cancel it after so many turns of the loop; ``None`` if that was in time.

    What it gave is given in a tuple otherwise.
    """
    task = asyncio.ensure_future(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return (await task,)
    except asyncio.CancelledError:
        return None


@pytest.mark.parametrize("held", [False, True], ids=["quick", "held"])
async def test_cancelling_recv_at_any_point_loses_nothing(held: bool) -> None:
    keeper = Keeper()
    where = ("step",) if held else ()
    async with agym.make_async(
        keeper.factories(3, where=where), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        received = [0] * 3
        for turns in range(12):
            envs.send([turns % 10] * 3)
            if held:
                opening = asyncio.create_task(keeper.let(1, 0, 2))
            got: list[list[float]] = []
            while len(got) < 3:
                result = await cancelled_after(turns, envs.recv(max_envs=2))
                batch = await envs.recv(max_envs=1) if result is None else result[0]
                got += rows(batch)
            if held:
                await opening
                assert [row[0] for row in got] == [1, 0, 2]
            for i, now, action in got:
                received[int(i)] += 1
                assert (now, action) == (received[int(i)], turns % 10)
        assert received == [12] * 3 == [keeper.envs[i].total for i in range(3)]


@apart
async def test_cancelling_recv_loses_nothing_anywhere(setup: Setup, gates: Gates) -> None:
    async with agym.make_async(
        [partial(setup.gated, path) for path in gates.paths], autoreset="disabled", **setup.options
    ) as envs:
        await envs.reset()
        for turns in range(8):
            envs.send([1, 1, 1])
            assert await cancelled_after(turns, envs.recv()) is None
            iteration = envs.as_completed()
            assert await cancelled_after(turns, anext(iteration)) is None
            for path in gates.paths:
                while not try_gate(path):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            got = []
            while len(got) < 3:
                result = await cancelled_after(turns, envs.recv(max_envs=1))
                got += [] if result is None else rows(result[0])
                if result is None:
                    got += rows(await envs.recv(max_envs=2))
            assert sorted(got) == [[i, turns + 1, 1] for i in range(3)]
        assert await envs.get_attr("now") == [8] * 3


async def test_a_recv_that_times_out_around_it(gates: Gates) -> None:
    async with agym.make_async(gates.factories, autoreset="disabled", **FORKED, workers=3) as envs:
        await envs.reset()
        envs.send([1, 1, 1])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await envs.recv()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(envs.recv(), 0.01)
        gates.open(1)
        assert rows(await envs.recv()) == [[1, 1, 1]]
        gates.open(0)
        gates.open(2)
        assert sorted(rows(await envs.recv(min_envs=2))) == [[0, 1, 1], [2, 1, 1]]


class ParkingPool(Pool):
    """Tells whether the caller said that it sleeps."""

    parked = False

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options, ThreadPort)

    def park(self, envs: int = 1) -> None:
        ParkingPool.parked = True
        super().park(envs)

    def unpark(self, ready: Collection[int] | None = None) -> None:
        ParkingPool.parked = False
        super().unpark(ready)


@dataclass(frozen=True, kw_only=True)
class Parking(BackendSpec):
    name = "parking"
    port = ParkingPool


async def test_a_cancelled_recv_is_not_waited_for_for_ever(gates: Gates) -> None:
    """Once nobody waits any more, workers need not ring."""
    async with agym.make_async(gates.factories, backend=Parking()) as envs:
        await envs.reset()
        assert not ParkingPool.parked
        envs.send([1, 1, 1])
        task = asyncio.create_task(envs.recv())
        while not ParkingPool.parked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for i in range(3):
            gates.open(i)
        assert sorted(rows(await envs.recv(min_envs=3))) == [[i, 1, 1] for i in range(3)]
        await envs.render()
        assert not ParkingPool.parked


# ---------------------------------------------------------------- the order of operations


async def test_a_reset_behind_steps_that_were_sent() -> None:
    """It waits for them, and what comes behind it waits for it: no step is doubled or mixed up."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(2, where=("step", "reset")), backend="asyncio", autoreset="disabled"
    ) as envs:
        opening = asyncio.create_task(keeper.let_all())
        await envs.reset()
        await opening
        envs.send([2, 3])
        reset = envs.reset()
        await keeper.let(0, 1)
        assert rows(await envs.recv(min_envs=2)) == [[0, 1, 2], [1, 1, 3]]
        first = envs.step([4, 5])
        await keeper.let(0, 1)
        assert (await reset).observations[:, :2].tolist() == [[2, 0], [2, 0]]
        with pytest.raises(agym.BusyError):
            envs.step([6, 7])
        await keeper.let(0, 1)
        assert (await first).observations[:, 1:].tolist() == [[1, 4], [1, 5]]
        assert [keeper.envs[i].total for i in range(2)] == [2, 2]


async def test_a_step_behind_a_call_that_ends_first() -> None:
    """The call's end frees nothing that the step holds."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(2), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        frames = envs.render()
        step = envs.step([4, 5])
        assert await frames == ["1:0", "1:0"]
        with pytest.raises(agym.BusyError):
            envs.step([6, 7])
        await keeper.let(0, 1)
        assert (await step).observations[:, 1:].tolist() == [[1, 4], [1, 5]]


async def test_a_reset_behind_a_step_behind_a_call() -> None:
    """No row of the first step is written again before that step is collected."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(2), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        frames = envs.render()
        first = envs.step([4, 5])
        await frames
        await keeper.let(0)
        reset = envs.reset()
        try:
            second = envs.step([6, 7])
        except agym.BusyError:
            second = None
        opening = asyncio.create_task(keeper.let_all())
        assert (await first).observations[:, 1:].tolist() == [[1, 4], [1, 5]]
        assert (await reset).observations[:, :2].tolist() == [[2, 0], [2, 0]]
        if second is not None:
            assert (await second).observations[:, 1:].tolist() == [[1, 6], [1, 7]]
        await opening


async def test_what_cannot_be_sent_from_behind_a_reset_spoils_nothing_else() -> None:
    """The step that waits behind the reset fails by itself, when its turn comes."""
    async with agym.make_async(Parrot, 2, **FORKED, workers=1, autoreset="disabled") as envs:
        (worker,) = envs.stats().workers
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)  # so that the reset is still under way
        try:
            reset = envs.reset()
            step = envs.step([threading.Lock(), "fine"])
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        assert [*(await reset).observations] == ["", ""]
        with pytest.raises(agym.UsageError, match="can't be pickled"):
            await step
        assert [*(await envs.step(["a", "b"])).observations] == ["a", "b"]


@everywhere
def test_forgotten_runners_end(setup: Setup) -> None:
    """Also with results that were sent for and never received."""
    envs = agym.make(setup.of(2), **setup.options)
    envs.reset()
    envs.send([0, 0])
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("agym-")]
    del envs
    gc.collect()
    for thread in threads:
        thread.join(patience())
        assert not thread.is_alive()
