"""The async API: defaults, opening, and event loops; the rest are laws of every backend."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import agym
from agym.testing import Script
from tests.support.backends import FORK
from tests.support.drivers import SETUPS, each_setup
from tests.support.envs.plain_envs import Tally


@each_setup
async def test_arrays_and_next_step_by_default(setup: dict[str, Any]) -> None:
    async with agym.make_async(partial(Tally, length=1), 2, **setup) as envs:
        await envs.reset()
        assert (await envs.step(envs.action_space.sample())).terminated.tolist() == [True, True]
        assert (await envs.step([0, 0])).observations[:, 0].tolist() == [2, 2]
        assert await envs.get_attr("unwrapped.gravity") == [9.8] * 2
        with pytest.raises(agym.UsageError, match="set_attr"):
            envs.set_attr("gravity", [1, 2, 3])


@each_setup
async def test_environments_that_are_not_open(setup: dict[str, Any]) -> None:
    """Calls are refused; ``await`` opens them, and they may also be dropped or closed."""
    agym.make_async(Tally, 2, **setup)
    envs = agym.make_async(Tally, 2, **setup)
    name = envs.backend
    start = f"AsyncEnvs(environments, num_envs=2, backend={name!r}"
    assert (repr(envs), envs.closed) == (f"{start}, not open)", False)
    for call in (envs.reset, envs.render, envs.stats):
        with pytest.raises(agym.ClosedError, match="not open"):
            call()
    with pytest.raises(AttributeError, match="set_attr"):
        envs.gravity = 1
    with pytest.raises(AttributeError, match="open"):
        _ = envs.observation_space
    assert await envs is envs
    await envs.reset()
    assert repr(envs) == f"{start})"
    await asyncio.gather(*(envs.aclose() for _ in range(3)))
    never_opened = agym.make_async(Tally, 2, **setup)
    for _ in range(2):
        await never_opened.aclose()


async def test_opening_does_not_block_the_loop(script: Script) -> None:
    ticks = 0
    script.set(0, "make", "wait")

    async def tick() -> None:
        nonlocal ticks
        for _ in range(100):
            ticks += 1
            await asyncio.sleep(0)
        await asyncio.to_thread(script.open, 0)

    ticking = asyncio.create_task(tick())
    async with agym.make_async(script.factories(1), backend=FORK):
        assert ticks == 100
    await ticking


async def test_many_runners_share_a_loop() -> None:
    async def play(k: int) -> float:
        async with agym.make_async(partial(Tally, length=99), 2, backend=FORK, workers=1) as e:
            await e.reset()
            return float(sum([(await e.step([k, k])).observations[0, 2] for _ in range(20)]))

    assert await asyncio.gather(*(play(k) for k in range(4))) == [0.0, 20.0, 40.0, 60.0]


@pytest.mark.parametrize("setup", [*SETUPS, {"backend": "thread"}, {"backend": "asyncio"}])
def test_environments_go_on_in_a_loop_after_the_first_is_closed(
    setup: dict[str, Any], script: Script
) -> None:
    coroutines = setup["backend"] == "asyncio"
    envs = agym.make_async(script.factories(3, coroutines=coroutines), **setup)

    async def start() -> None:
        await envs
        await envs.reset()

    async def go_on() -> Any:
        return (await envs.step([1, 2, 3])).observations[:, 3].tolist()

    asyncio.run(start())
    assert asyncio.run(go_on()) == [1, 2, 3]
    asyncio.run(envs.aclose())
