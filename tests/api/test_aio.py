"""The async API: every method, opening and closing, the order of operations, the loop."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium.error
import numpy as np
import pytest

import agym
from tests.support.backends import FORK
from tests.support.drivers import SETUPS
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.gated_envs import Gates, gated
from tests.support.envs.plain_envs import Tally

everywhere = pytest.mark.parametrize("setup", SETUPS)


class TestEveryMethod:
    pytestmark = everywhere

    async def test_reset_and_step(self, setup: dict[str, Any]) -> None:
        async with agym.make_async("CartPole-v1", 3, **setup) as envs:
            observations, infos = await envs.reset(seed=0)
            assert observations.shape == (3, 4)
            assert observations.dtype == np.float32
            assert infos == [{}] * 3
            actions = envs.action_space.sample()
            assert actions.shape == (3,)
            observations, rewards, terminated, truncated, infos = await envs.step(actions)
            assert rewards.tolist() == [1.0] * 3
            assert terminated.dtype == truncated.dtype == np.bool_
            assert len(envs) == envs.num_envs == 3
            assert "CartPole-v1" in repr(envs)

    async def test_lists_by_option(self, setup: dict[str, Any]) -> None:
        async with agym.make_async(Tally, 2, output="list", **setup) as envs:
            observations, _ = await envs.reset()
            assert isinstance(observations, list)
            result = await envs.step(envs.action_space.sample())
            assert all(isinstance(column, list) for column in result)

    async def test_next_step_by_default(self, setup: dict[str, Any]) -> None:
        async with agym.make_async(partial(Tally, length=1), 2, **setup) as envs:
            await envs.reset()
            assert (await envs.step([0, 0])).terminated.tolist() == [True, True]
            assert (await envs.step([0, 0])).observations[:, 0].tolist() == [2, 2]

    async def test_the_others(self, setup: dict[str, Any]) -> None:
        async with agym.make_async(Tally, 3, **setup) as envs:
            await envs.reset(seed=[1, 2, 3], options={"length": 8})
            await envs.step([0, 0, 0])
            await envs.step([0, 0], env_ids=[0, 2])
            assert await envs.render() == ["1:2", "1:1", "1:2"]
            assert await envs.render(env_ids=[1]) == ["1:1"]
            assert await envs.call("add", 1, b=1) == [11.8] * 3
            assert await envs.get_attr("length") == [8] * 3
            assert await envs.set_attr("gravity", [1, 2, 3]) is None
            assert await envs.get_attr("unwrapped.gravity") == [1, 2, 3]
            observations, infos = await envs.reset(seed=4, env_ids=[1])
            assert observations[:, 1].tolist() == [2, 0, 2]
            assert [info.get("seed") for info in infos] == [None, 5, None]
            with pytest.raises(AttributeError, match="no_such_thing"):
                await envs.get_attr("no_such_thing")
            with pytest.raises(agym.UsageError, match="set_attr"):
                envs.set_attr("gravity", [1, 2])

    async def test_copies_and_views(self, setup: dict[str, Any]) -> None:
        for copy in (True, False):
            async with agym.make_async(partial(Tally, length=99), 2, copy=copy, **setup) as envs:
                await envs.reset()
                batches = [await envs.step([k, k]) for k in range(6)]
                kept = batches if copy else batches[-2:]
                for batch in kept:
                    assert batch.observations[:, 2].tolist() == [batch.infos[0]["action"]] * 2


class TestOpening:
    pytestmark = everywhere

    async def test_by_await_and_by_async_with(self, setup: dict[str, Any]) -> None:
        envs = await agym.make_async(Tally, 2, **setup)
        await envs.reset()
        await envs.aclose()
        async with agym.make_async(Tally, 2, **setup) as envs:
            await envs.reset()

    async def test_use_before_opening(self, setup: dict[str, Any]) -> None:
        envs = agym.make_async(Tally, 2, **setup)
        with pytest.raises(agym.ClosedError, match="not open"):
            envs.reset()
        with pytest.raises(agym.ClosedError, match="not open"):
            envs.render()
        await envs.aclose()

    async def test_one_that_is_never_opened(self, setup: dict[str, Any]) -> None:
        agym.make_async(Tally, 2, **setup)

    async def test_a_constructor_that_raises(self, setup: dict[str, Any]) -> None:
        envs = agym.make_async([Tally, partial(Raises, "make"), Tally], **setup)
        with pytest.raises(agym.EnvError, match="environment 1") as caught:
            await envs
        assert (caught.value.env_id, caught.value.operation) == (1, "make")
        with pytest.raises(agym.ClosedError):
            envs.reset()

    async def test_closing_twice_and_use_after(self, setup: dict[str, Any]) -> None:
        envs = await agym.make_async(Tally, 2, **setup)
        await envs.aclose()
        await envs.aclose()
        for use in (
            envs.reset,
            envs.render,
            partial(envs.step, [0, 0]),
            partial(envs.call, "add", 1),
            partial(envs.get_attr, "gravity"),
            partial(envs.set_attr, "gravity", 1),
        ):
            with pytest.raises(agym.ClosedError, match="closed"):
                use()


async def test_opening_does_not_block_the_loop(gates: Gates) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        for _ in range(100):
            ticks += 1
            await asyncio.sleep(0)
        gates.open(0)

    def factory(path: str = gates.paths[0]) -> Tally:
        with Path(path).open() as pipe:
            pipe.read()
        return Tally()

    ticking = asyncio.create_task(tick())
    async with agym.make_async(factory, backend=FORK):
        assert ticks == 100
    await ticking


async def test_cancelled_opening_leaves_nothing(gates: Gates) -> None:
    def factory(path: str = gates.paths[0]) -> Tally:
        with Path(path).open() as pipe:
            pipe.read()
        return Tally()

    envs = agym.make_async([Tally, factory], backend=FORK, workers=2)
    opening = asyncio.ensure_future(_open(envs))
    await asyncio.sleep(0)
    opening.cancel()
    gates.open(0)
    with pytest.raises(asyncio.CancelledError):
        await opening
    with pytest.raises(agym.ClosedError):
        envs.reset()


async def _open(envs: agym.AsyncEnvs) -> agym.AsyncEnvs:
    return await envs


async def test_two_steps_in_flight(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = envs.step([1, 2, 3])
        for _ in range(2):
            with pytest.raises(agym.BusyError, match="environment 0") as caught:
                envs.step([4, 4, 4])
            assert isinstance(caught.value, gymnasium.error.AlreadyPendingCallError)
            assert caught.value.name == "step"
        gates.open(0)
        assert (await pending).observations[:, 1:].tolist() == [[1, 1], [1, 2], [1, 3]]
        assert await envs.get_attr("now") == [1, 1, 1]
        await envs.step([4, 4, 4])


async def test_steps_of_different_environments_in_flight(gates: Gates) -> None:
    async with gated(gates) as envs:
        slow = envs.step([1], env_ids=[0])
        quick = await envs.step([5, 6], env_ids=[1, 2])
        assert quick.observations[:, 2].tolist() == [5, 6]
        quick = await envs.step([7, 8], env_ids=[1, 2])
        assert quick.observations[:, 1:].tolist() == [[2, 7], [2, 8]]
        assert not slow.done()
        with pytest.raises(agym.BusyError, match="environment 0"):
            envs.step([0, 0, 0])
        gates.open(0)
        assert (await slow).observations.tolist() == [[1, 1, 1]]
        assert await envs.get_attr("now") == [1, 2, 2]


async def test_operations_run_in_the_order_of_dispatch(gates: Gates) -> None:
    async with gated(gates) as envs:
        pending = [
            envs.call("wait"),
            envs.render(),
            envs.set_attr("gravity", 1.0),
            envs.reset(seed=3),
            envs.render(),
            envs.step([5, 5, 5]),
            envs.render(),
            envs.call("add", 1),
            envs.reset(env_ids=[1]),
            envs.render(),
        ]
        for i in range(3):
            gates.open(i, "go")
        results: list[Any] = await asyncio.gather(*reversed(pending))
        results.reverse()
        assert results[0] == ["go"] * 3
        assert results[1] == ["1:0"] * 3
        assert results[3].observations.tolist() == [[2, 0, -1]] * 3
        assert results[4] == ["2:0"] * 3
        assert results[5].observations.tolist() == [[2, 1, 5]] * 3
        assert results[6] == ["2:1"] * 3
        assert results[7] == [2.0] * 3
        assert results[8].observations[:, :2].tolist() == [[2, 1], [3, 0], [2, 1]]
        assert results[9] == ["2:1", "3:0", "2:1"]


async def test_reset_behind_a_running_step_spoils_no_batch(gates: Gates) -> None:
    async with gated(gates) as envs:
        step = envs.step([1, 2, 3])
        some = envs.reset(env_ids=[0])
        everything = envs.reset()
        gates.open(0)
        assert (await everything).observations[:, 0].tolist() == [3, 2, 2]
        assert (await some).observations[:, :2].tolist() == [[2, 0], [1, 1], [1, 1]]
        assert (await step).observations.tolist() == [[1, 1, 1], [1, 1, 2], [1, 1, 3]]


async def test_the_loop_turns_while_a_step_is_awaited(gates: Gates) -> None:
    async with gated(gates) as envs:

        async def tick() -> int:
            for _ in range(100):
                await asyncio.sleep(0)
            gates.open(0)
            return 100

        ticking = asyncio.create_task(tick())
        await envs.step([1, 0, 0])  # never ends unless the other task gets its turns
        assert await ticking == 100


@everywhere
async def test_the_loop_turns_though_results_are_always_there(setup: dict[str, Any]) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    async with agym.make_async(partial(Tally, length=10**9), 2, **setup) as envs:
        await envs.reset()
        before = ticks
        for _ in range(1_000_000):
            await envs.step([0, 0])
            if ticks > before + 5:
                break
        assert ticks > before + 5
    ticking.cancel()


async def test_many_runners_share_a_loop() -> None:
    async def play(k: int) -> float:
        async with agym.make_async(partial(Tally, length=99), 2, backend=FORK, workers=1) as e:
            await e.reset()
            return float(sum([(await e.step([k, k])).observations[0, 2] for _ in range(20)]))

    assert await asyncio.gather(*(play(k) for k in range(4))) == [0.0, 20.0, 40.0, 60.0]


async def test_closing_while_operations_are_pending(gates: Gates) -> None:
    async with gated(gates) as envs:
        step = envs.step([1, 0, 0])
        behind = envs.reset()
        frames = envs.render()

        async def wait() -> None:
            await step

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        closing = asyncio.create_task(envs.aclose())
        await asyncio.sleep(0)
        gates.open(0)
        await closing
        for pending in (waiting, step, behind, frames):
            with pytest.raises(agym.ClosedError, match="closed"):
                await pending


async def test_an_error_of_one_environment_arrives_at_the_await() -> None:
    factories = [Tally, partial(Raises, "step"), Tally]
    async with agym.make_async(factories, backend=FORK, workers=2) as envs:
        await envs.reset()
        pending = envs.step([9, 9, 9])
        with pytest.raises(agym.EnvError, match="environment 1 raised in step"):
            await pending
        await envs.reset(env_ids=[1])
        assert (await envs.step([0, 0, 0])).observations[:, 1].tolist() == [2, 1, 2]


@everywhere
def test_opened_in_one_loop_and_used_in_the_next(setup: dict[str, Any]) -> None:
    async def opened() -> agym.AsyncEnvs:
        envs = await agym.make_async(Tally, 3, **setup)
        await envs.reset()
        return envs

    async def used(envs: agym.AsyncEnvs) -> Any:
        return (await envs.step([1, 2, 3])).observations[:, 2].tolist()

    envs = asyncio.run(opened())
    assert asyncio.run(used(envs)) == [1, 2, 3]
    asyncio.run(envs.aclose())
