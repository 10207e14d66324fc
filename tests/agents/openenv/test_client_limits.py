"""How many sessions are open at a time, and how a full server is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agym
from agym.agents.openenv.client import openenv
from tests.agents.openenv.scripted_server import ScriptedServer
from tests.support.patience import deadline, patience


async def episode(env: Any, number: int, order: list[int] | None = None) -> float:
    """Play an episode of three steps; the first answer says that the session was open."""
    await env.reset()
    if order is not None:
        order.append(number)
    total = 0.0
    for k in range(3):
        total += (await env.step({"value": number, "done": k == 2}))[1]
    return total


async def test_max_sessions_are_shared_by_turns(server: ScriptedServer) -> None:
    factory = openenv(server.url, max_sessions=3, connect_timeout=patience(5))
    async with agym.make_async(factory, 12, backend="asyncio", autoreset="disabled") as envs:
        for _ in range(2):
            totals = await asyncio.gather(*(episode(envs[i], i) for i in range(12)))
            assert totals == [3.0 * i for i in range(12)]
    assert server.most_open <= 3 + 1  # the end of one session may reach the server late
    assert server.opened >= 12


async def test_those_that_wait_are_served_in_order(server: ScriptedServer) -> None:
    factory = openenv(server.url, max_sessions=1, connect_timeout=patience(5))
    order: list[int] = []
    async with agym.make_async(factory, 8, backend="asyncio", autoreset="disabled") as envs:
        await asyncio.gather(*(episode(envs[i], i, order) for i in range(8)))
    assert order == [*range(8)]


async def test_a_closed_environment_frees_its_session(server: ScriptedServer) -> None:
    first, second = openenv(server.url, max_sessions=1, connect_timeout=patience())(), None
    second = openenv(server.url, max_sessions=1, connect_timeout=patience())()
    await first.reset()
    waiting = asyncio.ensure_future(second.reset(seed=4))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await first.close()
    assert (await waiting)[0]["value"] == 4
    await second.close()


@pytest.mark.parametrize("end", ["timeout", "cancelled", "drop"])
async def test_a_failed_session_frees_its_place(server: ScriptedServer, end: str) -> None:
    options: dict[str, Any] = {"max_sessions": 1, "connect_timeout": patience()}
    first = openenv(server.url, timeout=deadline(0.3), **options)()
    second = openenv(server.url, **options)()
    await first.reset()
    waiting = asyncio.ensure_future(second.reset(seed=4))
    step = asyncio.ensure_future(
        first.step({"value": 1, "do": "drop" if end == "drop" else "wait"})
    )
    if end == "cancelled":
        await asyncio.sleep(0.01)
        step.cancel()
    with pytest.raises((agym.RemoteError, asyncio.CancelledError)):
        await step
    assert (await waiting)[0]["value"] == 4
    await second.close()
    await first.close()


async def test_one_that_stops_waiting_takes_no_place(server: ScriptedServer) -> None:
    options: dict[str, Any] = {"max_sessions": 1, "connect_timeout": patience()}
    first, second, third = (openenv(server.url, **options)() for _ in range(3))
    await first.reset()
    waiting = [asyncio.ensure_future(env.reset()) for env in (second, third)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await first.close()
    await waiting[1]
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await third.close()
    await second.reset()
    await second.close()


async def test_no_place_in_time_is_one_error(server: ScriptedServer) -> None:
    options: dict[str, Any] = {"max_sessions": 1, "connect_timeout": deadline(0.2)}
    first, second = openenv(server.url, **options)(), openenv(server.url, **options)()
    await first.reset()
    with pytest.raises(agym.RemoteError, match="all max_sessions=1 sessions") as caught:
        await second.reset()
    assert caught.value.code == "MAX_SESSIONS"
    await first.close()
    await second.reset()
    await second.close()


@pytest.mark.parametrize("told", [None, 0.05, 0.0])
@pytest.mark.parametrize("how", ["error", 503, 429])
async def test_a_full_server_is_asked_again(
    server: ScriptedServer, how: int | str, told: float | None
) -> None:
    factory = openenv(server.url, connect_timeout=patience())
    server.refusals, server.told = [how] * 3, told
    async with agym.make_async(factory, 2, backend="asyncio") as envs:
        observations, _ = await envs.reset(seed=4)
        assert [each["value"] for each in observations] == [4, 5]
    assert server.refusals == []


@pytest.mark.parametrize("how", ["error", 503])
async def test_a_server_that_stays_full_is_one_error(server: ScriptedServer, how: Any) -> None:
    factory = openenv(server.url, connect_timeout=deadline(0.3))
    server.refusals = [how] * 1000
    async with agym.make_async(factory, 1, backend="asyncio") as envs:
        with pytest.raises(agym.EnvError, match="the server is full") as caught:
            await envs.reset()
        assert isinstance(caught.value.exception, agym.RemoteError)
        assert caught.value.exception.code == "CAPACITY_REACHED"
        server.refusals = []
        await envs.reset()


async def test_a_pause_that_is_too_long_is_not_waited_for(server: ScriptedServer) -> None:
    factory = openenv(server.url, connect_timeout=patience())
    server.refusals, server.told = [503], 3600.0
    async with asyncio.timeout(patience()):
        with pytest.raises(agym.RemoteError, match="the server is full"):
            await factory().reset()


async def test_more_environments_than_the_server_has_sessions() -> None:
    with ScriptedServer(most=2) as server:
        factory = openenv(server.url, connect_timeout=patience(5), max_sessions=2)
        async with agym.make_async(factory, 6, backend="asyncio", autoreset="disabled") as envs:
            totals = await asyncio.gather(*(episode(envs[i], i) for i in range(6)))
        assert totals == [3.0 * i for i in range(6)]
        assert server.most_open == 2
