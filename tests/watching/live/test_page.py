"""The page: what is shown, to whom, what it may cost, and who may hold whom up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
import urllib.error
import urllib.request
from functools import partial
from typing import Any

import numpy as np
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import agym
from tests.support.drivers import APIS, FORKED
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.painting_envs import AsyncPainter, Painter
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of, painted, workers_of
from tests.support.patience import patience
from tests.support.viewers import looking, once_held, stepping, until

each_api = pytest.mark.parametrize("api", APIS)
TWO: dict[str, Any] = {**FORKED, "workers": 2}
SETUPS = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread"},
    "process": TWO,
    "asyncio": {"backend": "asyncio"},
    "coroutines": TWO,
}


class Counted(Painter):
    """Counts how often it is rendered."""

    renders = 0

    def render(self) -> Any:
        self.renders += 1
        return super().render()


class Stumbles(Tally):
    def step(self, action: Any) -> Any:
        if self.now == 2:
            raise RuntimeError("stumbled")
        return super().step(action)


class Blind(Painter):
    def render(self) -> Any:
        raise RuntimeError("no light")


def painters(count: int = 2, kind: Any = Painter, **options: Any) -> list[Any]:
    return [partial(kind, i, shape=(64, 96, 3), **options) for i in range(count)]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=patience()) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


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
@pytest.mark.parametrize("setup", SETUPS)
def test_it_shows_what_environments_render(setup: str, api: str) -> None:
    kind = AsyncPainter if setup in ("asyncio", "coroutines") else Painter
    with stepping(api, painters(3, kind), **SETUPS[setup]) as run, looking(run.page.url) as look:
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
        assert not engine_of(run.envs).hooks.all
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
        until(lambda: not engine_of(run.envs).hooks.all)
        run.goes_on()  # a step that had begun before may still have taken a picture
        before = renders_of(run)
        run.goes_on()
        assert renders_of(run) == before


def renders_of(run: Any) -> list[int]:
    """Read off the environments themselves, which are in this process."""
    return [slot.env.unwrapped.renders for slot in workers_of(run.envs)[0]._host.shared.slots]


@each_api
def test_who_shows_nothing_gets_nothing_more_and_holds_nobody_up(api: str) -> None:
    with (
        stepping(api, painters(1, Counted), backend="serial") as run,
        looking(run.page.url) as look,
    ):
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
    with stepping(api, painters(), **setup) as run, looking(run.page.url) as look:
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
def test_what_is_paused_goes_on_when_the_last_viewer_leaves(api: str) -> None:
    with stepping(api, painters(), backend="serial") as run:
        with looking(run.page.url) as one:
            with looking(run.page.url) as other:
                other.say("pause")
                one.next("controls", lambda controls: controls["paused"])
                run.stands()
            until(lambda: run.page.viewers == 1)
            run.stands()
        run.goes_on()


@each_api
def test_a_paused_page_shows_one_environment_of_those_it_knows(api: str) -> None:
    with stepping(api, painters(4), backend="serial") as run, looking(run.page.url) as look:
        look.next("picture")
        look.say("pause")
        run.stands()
        look.say("view", env=3, page=0)
        assert look.next("picture", lambda picture: len(picture.ids) == 1).ids == range(3, 4)


@each_api
def test_the_token_is_needed(api: str) -> None:
    with stepping(api, painters(), backend="serial") as run:
        url = run.page.url
        bare = url.partition("?")[0]
        assert get(url)[0] == 200
        for wrong in (bare, bare + "?token=", bare + "?token=%C3%A9", url[:-1]):
            code, text = get(wrong)
            assert code == 403
            assert "token" in text
            with (
                pytest.raises(InvalidStatus, match="403"),
                looking(wrong),
            ):
                pass
        assert run.page.viewers == 0


INVALID_MESSAGE = [
    "", "[]", "{}", '{"type": "fly"}', "\x00" * 5000,
    '{"type": "view", "env": 99, "page": 0}', '{"type": "view", "env": null, "page": true}',
    '{"type": "speed", "value": -1}', '{"type": "speed"}', '{"type": "fps", "value": 1e9}',
    '{"type": "keys", "down": [1]}', "[" * 4000,
]  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize("nonsense", INVALID_MESSAGE)
def test_nonsense_is_hung_up_on(nonsense: str) -> None:
    with stepping("sync", painters(), backend="serial") as run:
        with looking(run.page.url) as look:
            look.socket.send(nonsense)
            with pytest.raises(ConnectionClosed):
                look.next("never")
        run.goes_on()
        with looking(run.page.url) as look:
            look.next("picture")


@each_api
def test_faults_and_restarts_are_told(api: str) -> None:
    options = {"on_fault": agym.FaultPolicy("restart", max_restarts=10**9), **TWO}
    with (
        stepping(api, [Tally, Stumbles], **options) as run,
        looking(run.page.url) as look,
    ):
        numbers = look.next("numbers", lambda numbers: numbers["envs"][1][-1] > 1)
        assert numbers["envs"][0][-1] == 0


@each_api
def test_who_cannot_be_rendered_leaves_the_others_seen(api: str) -> None:
    envs = [*painters(2), partial(Blind, 2)]
    with stepping(api, envs, backend="serial") as run, looking(run.page.url) as look:
        look.next("numbers", lambda numbers: "no light" in (numbers["trouble"] or ""))
        picture = look.next("picture")
        assert picture.place(1).std() > 10 > picture.place(2).std()
        run.goes_on()


@each_api
def test_it_draws_no_random_numbers_and_takes_no_signals(api: str) -> None:
    handler = signal.getsignal(signal.SIGINT)
    random.seed(1)
    state = random.getstate()
    with stepping(api, painters(), backend="serial") as run:
        with looking(run.page.url) as look:
            for _ in range(5):
                look.next("picture")
        assert signal.getsignal(signal.SIGINT) is handler
    assert random.getstate() == state


@each_api
def test_it_ends_with_the_environments(api: str) -> None:
    with stepping(api, painters(), backend="serial") as run:
        url = run.page.url
        look = looking(url)
        seen = look.__enter__()
        seen.next("picture")
        assert listening(url) == [os.getpid()]
    with pytest.raises(ConnectionClosed):
        seen.next("never")
    look.__exit__(None, None, None)
    assert not listening(url)


def test_bad_arguments() -> None:
    with agym.make(painters(), backend="serial") as envs:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"port": -1}, "port=-1"),
            ({"port": 70000}, "port=70000"),
            ({"port": "80"}, "port='80'"),
            ({"host": 5}, "host=5"),
            ({"host": "no.such.host.invalid"}, "no.such.host"),
            ({"fps": 0}, "fps=0"),
            ({"fps": 60}, "at most 30"),
            ({"share": 2}, "share=2"),
            ({"share": "all"}, "share='all'"),
        ]
        for options, match in wrong:
            with pytest.raises(agym.UsageError, match=match):
                agym.watch(envs, **options)
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
        with agym.watch(envs) as page:  # after the first was closed
            assert page.url in page._repr_html_()
            page.close()
    with pytest.raises(agym.ClosedError):
        agym.watch(envs)


async def test_bad_uses_of_the_async_api() -> None:
    envs = agym.make_async(painters(), backend="serial")
    with pytest.raises(agym.ClosedError, match="not open"):
        agym.watch(envs)
    async with envs:
        with pytest.raises(agym.UsageError, match="coroutine"):
            await asyncio.to_thread(agym.watch, envs)
        page = agym.watch(envs)
        with pytest.raises(agym.UsageError, match="async with"), page:
            pass
        with pytest.raises(agym.UsageError, match="aclose"):
            page.close()
        await page.aclose()
        await page.aclose()


async def test_a_cancelled_await_of_a_paused_step_spoils_nothing() -> None:
    async with agym.make_async([Tally] * 2, backend="serial", autoreset="disabled") as envs:
        await envs.reset()
        async with agym.watch(envs) as page:
            page.pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(envs.step([0, 0]), 0.2)
            step = asyncio.create_task(envs.step([1, 1]))
            received = asyncio.create_task(asyncio.sleep(0))
            await received
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


def test_ctrl_c_breaks_a_paused_step_off() -> None:
    with agym.make([Tally] * 2, backend="serial") as envs:
        envs.reset()
        with agym.watch(envs) as page:
            page.pause()
            ctrl_c = partial(os.kill, os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt), once_held(page, ctrl_c):
                envs.step([0, 0])
            page.resume()
            assert envs.step([0, 0])[0][0][1] == 2


def test_whoever_forks_does_not_keep_the_port() -> None:
    with agym.make(painters(), backend="serial") as envs:
        page = agym.watch(envs)
        with agym.make(painters(), **TWO):  # forked while it is open
            assert listening(page.url) == [os.getpid()]
            page.close()
            assert not listening(page.url)


def test_the_other_apis_have_it_too() -> None:
    envs = agym.make_vec("CartPole-v1", 2, backend="serial", render_mode="rgb_array")
    with agym.watch(envs) as page:
        assert page.viewers == 0
        assert page.keys == frozenset()
    envs.close()


async def test_coroutine_environments_on_the_same_loop() -> None:
    factories = [partial(AsyncTally, Tally)] * 3
    async with agym.make_async(factories, backend="asyncio") as envs:
        await envs.reset()
        async with agym.watch(envs) as page:
            page.limit_speed(100)

            def told() -> Any:
                with looking(page.url) as look:
                    return look.next("numbers", lambda numbers: numbers["steps"] >= 9)

            telling = asyncio.create_task(asyncio.to_thread(told))
            while not telling.done():
                await envs.step([0] * 3)
            assert [row[0] > 0 for row in (await telling)["envs"]] == [True] * 3
