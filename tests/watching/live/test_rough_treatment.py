"""A page does no harm: whatever viewers do, and whenever it is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

import agym
from agym.testing import Script
from tests.support.drivers import FORKED, each_api
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.painting_envs import Painter
from tests.support.insides import engine_of, hub_of, workers_of
from tests.support.patience import deadline, patience
from tests.support.viewers import Look, Stepping, looking, once_held, stepping, until, viewing

TWO: dict[str, Any] = {**FORKED, "workers": 2}


class Blind(Painter):
    renders = 0

    def render(self) -> Any:
        self.renders += 1
        raise RuntimeError("no light")


def on_its_loop(run: Stepping, function: Callable[[], None]) -> None:
    """Call what is the caller's to call, where the caller is at its steps."""
    hub_of(run.page)._loop.call_soon_threadsafe(function) if run.api == "async" else function()


def deaf(url: str) -> socket.socket:
    """A browser that asks for the page's socket, and then reads nothing at all."""
    address = urlsplit(url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect((address.hostname, address.port))
    request = ClientProtocol(parse_uri(f"ws://{address.netloc}/live?{address.query}")).connect()
    client.sendall(request.serialize())
    return client


@each_api
def test_a_viewer_that_reads_nothing_does_not_keep_a_page_open(api: str) -> None:
    envs = [partial(Painter, i, shape=(400, 600, 3)) for i in range(4)]
    with stepping(api, envs, backend="serial") as run, deaf(run.page.url):
        until(lambda: run.page.viewers == 1)
        on_its_loop(run, run.page.pause)
        run.stands()
        run.end()


def seen(look: Look) -> threading.Thread:
    """Ends when a picture has come."""
    waiting = threading.Thread(target=look.next, args=["picture"])
    waiting.start()
    return waiting


@contextmanager
def watched(envs: Any) -> Iterator[Look]:
    """Have somebody look at the page of environments that the test steps itself."""
    with agym.watch(envs, fps=30, share=1.0) as page, looking(page.url) as look:
        look.next("about")
        until(lambda: bool(engine_of(envs).hooks.all))
        yield look


def test_who_comes_before_the_first_reset_sees_the_first_step() -> None:
    with agym.make([Painter] * 2, backend="serial") as envs, watched(envs) as look:
        envs.reset()
        waiting = seen(look)
        while waiting.is_alive():
            envs.step([0, 0])
            envs.reset()


def test_a_slow_environment_keeps_only_itself_out_of_the_picture(tmp_path: Path) -> None:
    options = {**TWO, "autoreset": "next_step", "output": "array"}
    script = Script(str(tmp_path))
    script.set(1, "step", "wait")
    with agym.make(script.factories(2), **options) as envs:
        envs.reset()
        with watched(envs) as look:
            envs.send([0, 0])
            waiting, others = seen(look), 0
            while waiting.is_alive():
                batch = envs.recv(1, timeout=0.2)
                others += 1 in batch.env_ids
                envs.send([0] * len(batch.env_ids), batch.env_ids.tolist())
            assert others == 0  # it still is at its first step
            script.open(1, patience())


@pytest.mark.full
@each_api
def test_looking_costs_nobody_a_deadline(api: str) -> None:
    limit = deadline(0.4)
    envs = [partial(Painter, i, seconds=1.5 * limit) for i in range(2)]
    options = {**TWO, "timeout": limit}
    with viewing(api, envs, **options) as (run, look):
        for _ in range(2):
            look.next("picture")
        assert run.error is None


@each_api
def test_a_render_that_raises_is_shown_and_not_asked_for_again_and_again(api: str) -> None:
    """The others stay visible."""
    with stepping(api, [Painter, partial(Blind, 1)], backend="serial") as run:
        with looking(run.page.url) as look:
            look.next("numbers", lambda numbers: "no light" in (numbers["trouble"] or ""))
            for _ in range(5):
                picture = look.next("picture")
            assert picture.place(0).std() > 10 > picture.place(1).std()
            blind = workers_of(run.envs)[0]._host.shared.slots[1].env.unwrapped
            assert blind.renders <= 2
            asked = blind.renders
            look.say("view", env=1, page=0)  # a click tries once more
            until(lambda: blind.renders == asked + 1)
        run.goes_on()


@contextmanager
def paused() -> Iterator[tuple[Any, Any]]:
    """Environments whose page is paused, and the page; an action 9 raises."""
    with agym.make([partial(Raises, "step")] * 2, **TWO) as envs:
        envs.reset()
        with agym.watch(envs) as page:
            page.pause()
            yield envs, page


def test_what_is_held_back_is_not_the_callers_time() -> None:
    with paused() as (envs, page):

        def let_go() -> None:
            time.sleep(0.2)
            page.resume()

        with once_held(page, let_go):
            envs.step([0, 0])  # the first one is followed
        envs.step([0, 0])
        assert envs.stats().caller < 0.2


def test_recv_keeps_its_timeout_while_paused() -> None:
    with paused() as (envs, _):
        envs.send([0, 0])
        begun = time.monotonic()
        timeout = deadline(0.3)
        assert len(envs.recv(2, timeout=timeout).env_ids) == 2
        assert time.monotonic() - begun > 0.8 * timeout


def test_errors_are_not_held_back() -> None:
    with paused() as (envs, _), pytest.raises(ExceptionGroup, match="step"):
        envs.step([9, 9])


def test_ctrl_c_breaks_a_paused_step_off() -> None:
    with paused() as (envs, page):
        ctrl_c = partial(os.kill, os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), once_held(page, ctrl_c):
            envs.step([0, 0])
        page.resume()
        assert envs.step([0, 0])[0][0][1] == 2


@each_api
def test_a_pause_in_code_stays_when_a_viewer_leaves(api: str) -> None:
    with stepping(api, [Painter] * 2, backend="serial") as run:
        on_its_loop(run, run.page.pause)
        with looking(run.page.url) as look:
            look.next("numbers", lambda numbers: numbers["paused"])
            run.stands()
        until(lambda: run.page.viewers == 0)
        assert hub_of(run.page).throttle.paused
        run.stands()


@pytest.mark.parametrize("number", [np.float32, np.float64, int])
def test_numbers_of_other_kinds(number: Any) -> None:
    with viewing("sync", [Painter] * 2, {"fps": number(10)}) as (_, look):
        assert look.next("numbers")["fps"] == 10


@each_api
def test_nothing_gets_into_the_callers_log(api: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), viewing(api, [Painter] * 2) as (_, look):
        look.next("picture")
    names = {record.name for record in caplog.records if "websockets.client" not in record.name}
    assert names <= {"asyncio"}
    logging.getLogger("uvicorn.error").error("of a server of the caller's own")
    assert caplog.records[-1].name == "uvicorn.error"


def test_only_frames_within_reach_are_kept() -> None:
    envs = [partial(Painter, i, mode="rgb_array_list") for i in range(130)]
    with viewing("sync", envs) as (run, look):
        for page in (1, 2, 0):
            look.say("view", env=None, page=page)
            first = 64 * page
            look.next("picture", lambda picture, first=first: picture.ids.start == first)
        look.say("view", env=3, page=0)
        for _ in range(3):
            look.next("picture", lambda picture: len(picture.ids) == 1)
        frames = hub_of(run.page)._frames
        assert frames.keys() <= {*range(64)}
        assert all(isinstance(frame, np.ndarray) for frame in frames.values())


@pytest.mark.parametrize("act", ["close", "step"])
def test_a_forked_child_is_not_held_back(act: str) -> None:
    with agym.make([Painter] * 2, backend="serial") as envs:
        envs.reset()
        with agym.watch(envs) as page:
            if act == "step":
                page.limit_speed(1e-3)
                page.pause()
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    envs.close() if act == "close" else envs.step([0, 0])
                    code = 0
                finally:
                    os._exit(code)
            _, status = until(lambda: (found := os.waitpid(pid, os.WNOHANG))[0] and found)
            assert status == 0
            with looking(page.url) as look:
                look.next("about")


def test_closing_in_the_midst_of_a_picture() -> None:
    with agym.make([partial(Painter, seconds=0.3)] * 2, **TWO) as envs:
        envs.reset()
        with watched(envs):
            envs.send([0, 0])
        assert len(envs.recv(2).env_ids) == 2
        assert len(envs.step([0, 0])[0]) == 2


async def test_closing_it_is_no_reason_to_wait(caplog: pytest.LogCaptureFixture) -> None:
    async with agym.make_async([Painter] * 2, backend="serial") as envs:
        await envs.reset()
        page = agym.watch(envs)
        task = asyncio.create_task(page.aclose())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await page.aclose()
        await envs.step([0, 0])
    assert not caplog.records
