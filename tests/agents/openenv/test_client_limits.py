"""How many sessions are open at a time, and how a full server is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agym
from agym.agents.openenv.client import openenv
from tests.agents.openenv.scripted_server import ScriptedServer
from tests.support.patience import deadline, patience


async def episode(env: Any, number: int, order: list[int]) -> float:
    """Play an episode of three steps; the first answer says that the session was open."""
    await env.reset()
    order.append(number)
    total = 0.0
    for k in range(3):
        total += (await env.step({"value": number, "done": k == 2}))[1]
    return total


@pytest.mark.parametrize("most", [1, 3])
async def test_max_sessions_are_shared_by_turns(server: ScriptedServer, most: int) -> None:
    factory = openenv(server.url, max_sessions=most, connect_timeout=patience(5))
    order: list[int] = []
    async with agym.make_async(factory, 12, backend="asyncio", autoreset="disabled") as envs:
        totals = await asyncio.gather(*(episode(envs[i], i, order) for i in range(12)))
    assert totals == [3.0 * i for i in range(12)]
    assert server.most_open <= most + 1  # the end of one session may reach the server late
    assert server.opened >= 12
    if most == 1:
        assert order == [*range(12)]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_session_without_an_episode_goes_to_the_next(
    server: ScriptedServer, lost: bool
) -> None:
    """Environments play one after another; sessions that the server has ended do not count."""
    factory = openenv(server.url, max_sessions=2, connect_timeout=patience())
    order: list[int] = []
    async with agym.make_async(factory, 5, backend="asyncio", autoreset="disabled") as envs:
        for _ in range(2):
            for i in range(5):
                assert await episode(envs[i], i, order) == 3.0 * i
                if lost:
                    server.end_sessions()
    assert server.most_open <= 3  # the end of one session may reach the server late


async def test_one_that_waits_is_first_if_an_episode_follows_at_once(
    server: ScriptedServer,
) -> None:
    """A reset right after the last step, as an automatic one, takes no turn of the event loop."""
    first, second = (
        openenv(server.url, max_sessions=1, connect_timeout=patience())() for _ in range(2)
    )
    await first.reset()
    order: list[str] = []

    async def wait() -> None:
        await second.reset()
        order.append("second")
        await second.step({"value": 1, "done": True})

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0.01)
    await first.step({"value": 1, "done": True})
    await first.reset()
    order.append("first")
    await waiting
    assert order == ["second", "first"]
    for env in (first, second):
        await env.close()


@pytest.mark.parametrize("end", ["close", "timeout", "cancelled", "drop"])
async def test_the_end_of_a_session_frees_its_place(server: ScriptedServer, end: str) -> None:
    """An environment that stops waiting for a place takes none."""
    options: dict[str, Any] = {"max_sessions": 1, "connect_timeout": patience()}
    first = openenv(server.url, timeout=deadline(0.3), **options)()
    second, third = (openenv(server.url, **options)() for _ in range(2))
    await first.reset()
    stopped, waiting = (asyncio.ensure_future(env.reset(seed=4)) for env in (third, second))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    stopped.cancel()
    if end == "close":
        await first.close()
    else:
        do = "drop" if end == "drop" else "wait"
        step = asyncio.ensure_future(first.step({"value": 1, "do": do}))
        if end == "cancelled":
            await asyncio.sleep(0.01)
            step.cancel()
        with pytest.raises((agym.RemoteError, asyncio.CancelledError)):
            await step
    assert (await waiting)[0]["value"] == 4
    for env in (first, second, third):
        await env.close()


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


@pytest.mark.parametrize(
    ("how", "told"), [("error", None), (503, None), (503, 3600.0)], ids=["error", "503", "pause"]
)
async def test_a_server_that_stays_full_is_one_error(
    server: ScriptedServer, how: Any, told: float | None
) -> None:
    """A pause that is too long is not waited for."""
    env = openenv(server.url, connect_timeout=patience() if told else deadline(0.3))()
    server.refusals, server.told = [how] * 1000, told
    async with asyncio.timeout(patience()):
        with pytest.raises(agym.RemoteError, match="the server is full") as caught:
            await env.reset()
    assert caught.value.code == "CAPACITY_REACHED"
    server.refusals = []
    await env.reset()
    await env.close()
