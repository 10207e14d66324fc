"""The page: what is shown, to whom, what it may cost, and who may hold whom up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import agym
from agym.testing import Script
from tests.support.drivers import FORKED, Setup, each_api, everywhere
from tests.support.envs.painting_envs import Painter
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of, painted, workers_of
from tests.support.patience import patience
from tests.support.viewers import looking, stepping, until, viewing

TWO: dict[str, Any] = {**FORKED, "workers": 2}


class Counted(Painter):
    """Counts how often it is rendered."""

    renders = 0

    def render(self) -> Any:
        self.renders += 1
        return super().render()


def painters(count: int = 2, kind: Any = Painter) -> list[Any]:
    return [partial(kind, i, shape=(64, 96, 3)) for i in range(count)]


def listening(url: str) -> list[int]:
    """Which of this process and its children listen at a page's port: another's may get it too."""
    port = int(url.split(":")[2].split("/")[0])
    found = []
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            listens = [it for it in process.net_connections("tcp") if it.status == "LISTEN"]
            found += [process.pid for it in listens if it.laddr.port == port]
    return found


@each_api
@everywhere
def test_it_shows_what_environments_render(setup: Setup, api: str) -> None:
    made = [setup.adapt(one) for one in painters(3)]
    with viewing(api, made, **setup.options) as (_, look):
        about = look.next("about")
        assert (about["num_envs"], about["pictures"]) == (3, True)
        first = look.next("picture")
        assert first.ids == range(3)
        later = look.next("picture", lambda picture: (picture.pixels != first.pixels).any())
        for i in later.ids:  # blue tells who it is, and green runs from left to right
            place_of = later.place(i).astype(int)
            assert place_of.shape == (64, 96, 3)
            assert abs(place_of[20:-20, 20:-20, 2].mean() - i) < 8
            assert abs(np.diff(place_of[20:40, 20:76, 1].mean(axis=0)).mean() - 1) < 0.2
        look.say("view", env=1, page=0)
        alone = look.next("picture", lambda picture: len(picture.ids) == 1)
        assert alone.ids == range(1, 2)


@pytest.mark.once
@each_api
def test_only_what_is_looked_at_is_rendered(api: str) -> None:
    envs = painters(70, Counted)
    with stepping(api, envs, backend="serial") as run:
        run.goes_on()
        alone = engine_of(run.envs).hooks.all  # that count episodes
        with looking(run.page.url) as look:
            assert look.next("picture").ids == range(64)
            look.say("view", env=2, page=0)
            look.next("picture", lambda picture: picture.ids == range(2, 3))
            for _ in range(10):
                look.next("picture")
            look.say("pause")
            run.stands()
            count = renders_of(run)
            assert max(count[:2] + count[3:64]) <= min(count[:64]) + 1 <= 6
            assert count[2] >= count[0] + 9
            assert set(count[64:]) == {0}
            look.say("resume")
            look.say("view", env=None, page=1)
            assert look.next("picture", lambda picture: picture.ids != range(2, 3)).ids == range(
                64, 70
            )
        until(lambda: engine_of(run.envs).hooks.all == alone)
        run.goes_on()  # a step that had begun before may still have taken a picture
        before = renders_of(run)
        run.goes_on()
        assert renders_of(run) == before


def renders_of(run: Any) -> list[int]:
    """Read off the environments themselves, which are in this process."""
    return [slot.env.unwrapped.renders for slot in workers_of(run.envs)[0]._host.shared.slots]


@each_api
def test_who_shows_nothing_gets_nothing_more_and_holds_nobody_up(api: str) -> None:
    with viewing(api, painters(1, Counted)) as (run, look):
        until(lambda: renders_of(run) == [1])
        run.goes_on()
        time.sleep(0.5)
        assert renders_of(run) == [1]
        look.next("picture")
        until(lambda: renders_of(run) >= [2])


@pytest.mark.once
@each_api
@pytest.mark.parametrize("setup", [{"backend": "serial"}, TWO], ids=["serial", "process"])
def test_pause_step_and_speed(setup: dict[str, Any], api: str) -> None:
    with viewing(api, painters(), **setup) as (run, look):
        look.say("pause")
        look.next("controls", lambda controls: controls["paused"])
        before, pictures = run.stands(), painted(run.page)
        for k in range(1, 4):
            look.say("step")
            until(lambda k=k: run.rounds == before + k)
        assert run.stands() == before + 3

        def seen() -> bool:
            look.say("step")
            numbers = look.next("numbers", lambda numbers: numbers["paused"])
            return bool(numbers["pictures"] > pictures)

        until(seen)
        look.say("speed", value=20)
        look.say("resume")
        look.next("controls", lambda controls: not controls["paused"])
        begun, before = time.monotonic(), run.rounds
        until(lambda: run.rounds >= before + 10)
        assert time.monotonic() - begun >= 9 / 20
        look.say("speed", value=None)
        look.next("controls", lambda controls: controls["speed"] is None)
        run.goes_on()


@each_api
def test_a_paused_page_shows_what_it_knows_and_goes_on_when_the_last_viewer_leaves(
    api: str,
) -> None:
    with viewing(api, painters(4)) as (run, one):
        with looking(run.page.url) as other:
            other.next("picture")
            other.say("pause")
            one.next("controls", lambda controls: controls["paused"])
            run.stands()
            other.say("view", env=3, page=0)
            assert other.next("picture", lambda picture: len(picture.ids) == 1).ids == range(3, 4)
        until(lambda: run.page.viewers == 1)
        run.stands()
        one.socket.close()
        run.goes_on()


@each_api
def test_the_token_is_needed(api: str) -> None:
    with stepping(api, painters(), backend="serial") as run:
        url = run.page.url
        bare = url.partition("?")[0]
        options: Any = {"timeout": patience(), "trust_env": False}
        assert httpx2.get(url, **options).status_code == 200
        for wrong in (bare, bare + "?token=", bare + "?token=%C3%A9", url[:-1]):
            answer = httpx2.get(wrong, **options)
            assert (answer.status_code, "token" in answer.text) == (403, True)
            with pytest.raises(InvalidStatus, match="403"), looking(wrong):
                pass
        assert run.page.viewers == 0


INVALID_MESSAGE = [
    "", "[]", "{}", '{"type": "fly"}', "\x00" * 5000,
    '{"type": "view", "env": 99, "page": 0}', '{"type": "view", "env": null, "page": true}',
    '{"type": "speed", "value": -1}', '{"type": "speed"}', '{"type": "fps", "value": 1e9}',
    '{"type": "keys", "down": [1]}', "[" * 4000,
]  # fmt: skip


def test_nonsense_is_hung_up_on() -> None:
    with stepping("sync", painters(), backend="serial") as run:
        for nonsense in INVALID_MESSAGE:
            with looking(run.page.url) as look:
                look.socket.send(nonsense)
                with pytest.raises(ConnectionClosed):
                    look.next("never")
        run.goes_on()
        with looking(run.page.url) as look:
            look.next("picture")


@each_api
def test_faults_and_restarts_are_told(api: str, tmp_path: Path) -> None:
    script = Script(str(tmp_path))
    script.set(1, "step", "raise", always=True)
    options = {"on_fault": agym.FaultPolicy("restart", max_restarts=10**9), **TWO}
    with viewing(api, script.factories(2), **options) as (_, look):
        numbers = look.next("numbers", lambda numbers: numbers["envs"][1][-1] > 1)
        assert numbers["envs"][0][-1] == 0


@each_api
def test_it_draws_no_random_numbers_takes_no_signals_and_ends_with_the_environments(
    api: str,
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    random.seed(1)
    state = random.getstate()
    with contextlib.ExitStack() as stack:
        with stepping(api, painters(), backend="serial") as run:
            look = stack.enter_context(looking(run.page.url))
            for _ in range(5):
                look.next("picture")
            assert signal.getsignal(signal.SIGINT) is handler
            assert listening(run.page.url) == [os.getpid()]
        with pytest.raises(ConnectionClosed):
            look.next("never")
    assert not listening(run.page.url)
    assert random.getstate() == state


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"port": -1}, "port=-1"), ({"port": 70000}, "port=70000"), ({"port": "80"}, "port='80'"),
        ({"host": 5}, "host=5"), ({"host": "no.such.host.invalid"}, "no.such.host"),
        ({"fps": 0}, "fps=0"), ({"fps": 60}, "at most 30"),
        ({"share": 2}, "share=2"), ({"share": "all"}, "share='all'"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    with (
        agym.make(painters(), backend="serial") as envs,
        pytest.raises(agym.UsageError, match=match),
    ):
        agym.watch(envs, **options)


def test_environments_have_one_page_and_a_port_one_server() -> None:
    with agym.make(painters(), backend="serial") as envs:
        with agym.watch(envs) as page:
            with pytest.raises(agym.UsageError, match="already have a page"):
                agym.watch(envs)
            taken = int(page.url.split(":")[2].split("/")[0])
            with (
                agym.make(painters(), backend="serial") as others,
                pytest.raises(agym.UsageError, match=f"port={taken}.*port=0"),
            ):
                agym.watch(others, taken)
            for seconds in (0, "fast"):
                with pytest.raises(agym.UsageError, match="steps="):
                    page.limit_speed(seconds)  # type: ignore[arg-type]
        for control in (page.pause, page.resume, partial(page.limit_speed, 5)):
            with pytest.raises(agym.ClosedError, match="page is closed"):
                control()
        with agym.watch(envs) as page:
            assert page.url in page._repr_html_()


async def test_pages_of_async_environments_are_made_in_a_coroutine() -> None:
    async with agym.make_async(painters(), backend="serial") as envs:
        with pytest.raises(agym.UsageError, match="coroutine"):
            await asyncio.to_thread(agym.watch, envs)


async def test_a_cancelled_await_of_a_paused_step_spoils_nothing() -> None:
    async with agym.make_async([Tally] * 2, backend="serial", autoreset="disabled") as envs:
        await envs.reset()
        async with agym.watch(envs) as page:
            page.pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(envs.step([0, 0]), 0.2)
            step = asyncio.create_task(envs.step([1, 1]))
            await asyncio.create_task(asyncio.sleep(0))
            assert not step.done()
            page.resume()
            observations, *_ = await step
            assert observations[:, 1].tolist() == [2, 2]
            page.pause()
            envs.send([0, 0])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(envs.recv(2), 0.2)
            page.resume()
            batch = await envs.recv(2)
            assert batch.observations[:, 1].tolist() == [3, 3]


def test_whoever_forks_does_not_keep_the_port() -> None:
    with agym.make(painters(), backend="serial") as envs:
        page = agym.watch(envs)
        with agym.make(painters(), **TWO):  # forked while it is open
            assert listening(page.url) == [os.getpid()]
            page.close()
            assert not listening(page.url)
