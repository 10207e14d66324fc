"""What limits a run while somebody pauses it or slows it down on its page."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

import agym
from tests.support.backends import FORK
from tests.support.drivers import SETUPS
from tests.support.envs.plain_envs import Tally
from tests.support.insides import hub_of, is_held
from tests.support.viewers import until

pytest.importorskip("starlette", reason="the extra `watch`")

Endless = partial(Tally, length=10**6)
PROCESS = {"backend": FORK, "workers": 2}


def stepped_until(envs: agym.Envs, *, limited: bool) -> Any:
    """Step until the statistics say that the page limits the run, or does not; gives them.

    They tell of the latest step alone, which on a crowded machine may take longer than it is held.
    """

    def step() -> agym.Stats | None:
        envs.step([0] * len(envs))
        stats = envs.stats()
        return stats if (stats.limit == "page") == limited else None

    return until(step)


def measured(stats: agym.Stats) -> tuple[float, ...]:
    return stats.queue, stats.work, stats.transport, stats.caller


@pytest.mark.once
@pytest.mark.parametrize("setup", SETUPS)
def test_slowed_down(setup: dict[str, Any]) -> None:
    """From the first step on, as ``agym watch`` does, and only as long as the limit matters."""
    with agym.make(Endless, 4, **setup) as envs:
        with agym.watch(envs) as page:
            page.limit_speed(20)
            envs.reset()
            before = stepped_until(envs, limited=True)
            for _ in range(20):
                after = stepped_until(envs, limited=True)
            assert "limited by: page" in str(after)
            # Workers that wake up for every step say nothing of a run that nobody slows down.
            assert measured(after) == measured(before)
            page.limit_speed(10**7)
            stepped_until(envs, limited=False)
            page.limit_speed(20)

            def step_one_by_one() -> bool:
                for env in envs:
                    env.step(0)
                return envs.stats().limit == "page"

            until(step_one_by_one)
            page.limit_speed(None)
            assert envs.stats().limit != "page"
            page.limit_speed(20)
        for _ in range(40):
            envs.step([0] * 4)
        assert envs.stats().limit != "page"


async def test_paused() -> None:
    async with agym.make_async(Endless, 4, **PROCESS) as envs:
        await envs.reset()
        async with agym.watch(envs) as page:
            await envs.step([0] * 4)
            page.pause()
            held = asyncio.ensure_future(envs.step([0] * 4))
            await asyncio.to_thread(until, partial(is_held, page))
            assert not held.done()
            assert envs.stats().limit == "page"
            numbers = await asyncio.to_thread(hub_of(page).metrics.read)
            assert json.loads(json.dumps(numbers))["limit"] == "page"
            page.resume()
            await held
            assert envs.stats().limit != "page"
