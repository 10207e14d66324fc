"""A page does no harm: whatever viewers do, and whenever it is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.drivers import APIS, FORKED
from tests.support.envs.painting_envs import Painter
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of, hub_of, workers_of
from tests.support.patience import deadline
from tests.support.viewers import Look, Stepping, looking, once_held, stepping, until

each_api = pytest.mark.parametrize("api", APIS)
TWO: dict[str, Any] = {**FORKED, "workers": 2}


class Sleeper(Painter):
    """Sleeps in its steps until a file is there."""

    def __init__(self, me: int, path: Path) -> None:
        super().__init__(me)
        self.path = path

    def step(self, action: Any) -> Any:
        until(self.path.exists)
        return super().step(action)


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
    host, port = url.split("/")[2].split(":")
    query = url.partition("?")[2]
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect((host, int(port)))
    client.sendall(
        f"GET /live?{query} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    return client


@each_api
def test_a_viewer_that_reads_nothing_does_not_keep_a_page_open(api: str) -> None:
    envs = [partial(Painter, i, shape=(400, 600, 3)) for i in range(4)]
    with stepping(api, envs, backend="serial") as run, deaf(run.page.url):
        until(lambda: run.page.viewers == 1)
        on_its_loop(run, run.page.pause)
        run.end()


def seen(look: Look) -> threading.Thread:
    """Ends when a picture has come."""
    waiting = threading.Thread(target=look.next, args=["picture"])
    waiting.start()
    return waiting


def test_who_comes_before_the_first_reset_sees_the_first_step() -> None:
    with (
        agym.make([Painter] * 2, backend="serial") as envs,
        agym.watch(envs, fps=30) as page,
        looking(page.url) as look,
    ):
        look.next("about")
        until(lambda: bool(engine_of(envs).hooks.all))
        envs.reset()
        waiting = seen(look)
        while waiting.is_alive():
            envs.step([0, 0])
            envs.reset()


def test_a_slow_environment_keeps_only_itself_out_of_the_picture(tmp_path: Path) -> None:
    options = {**TWO, "autoreset": "next_step", "output": "array"}
    path = tmp_path / "awake"
    with agym.make([Painter, partial(Sleeper, 1, path)], **options) as envs:
        envs.reset()
        with agym.watch(envs, fps=30, share=1.0) as page, looking(page.url) as look:
            look.next("about")
            until(lambda: bool(engine_of(envs).hooks.all))
            envs.send([0, 0])
            waiting, others = seen(look), 0
            while waiting.is_alive():
                batch = envs.recv(1, timeout=0.2)
                others += 1 in batch.env_ids
                envs.send([0] * len(batch.env_ids), batch.env_ids.tolist())
            assert others == 0  # it still is at its first step
            path.touch()


@pytest.mark.full
@each_api
def test_looking_costs_nobody_a_deadline(api: str) -> None:
    limit = deadline(0.4)
    envs = [partial(Painter, i, seconds=1.5 * limit) for i in range(2)]
    options = {**TWO, "timeout": limit}
    with stepping(api, envs, **options) as run, looking(run.page.url) as look:
        for _ in range(2):
            look.next("picture")
        assert run.error is None


@each_api
def test_a_render_that_raises_is_not_asked_for_again_and_again(api: str) -> None:
    with stepping(api, [Painter, Blind], backend="serial") as run:
        with looking(run.page.url) as look:
            look.next("numbers", lambda numbers: "no light" in (numbers["trouble"] or ""))
            for _ in range(5):
                look.next("picture")
            blind = workers_of(run.envs)[0]._host.shared.slots[1].env.unwrapped
            assert blind.renders <= 2
            asked = blind.renders
            look.say("view", env=1, page=0)  # a click tries once more
            until(lambda: blind.renders == asked + 1)
        run.goes_on()


def test_what_is_held_back_is_not_the_callers_time() -> None:
    with agym.make([Tally] * 2, **TWO) as envs:
        envs.reset()
        with agym.watch(envs) as page:
            page.pause()

            def let_go() -> None:
                time.sleep(0.2)
                page.resume()

            with once_held(page, let_go):
                envs.step([0, 0])  # the first one is followed
            envs.step([0, 0])
            assert envs.stats().caller < 0.2


def test_recv_keeps_its_timeout_while_paused() -> None:
    with agym.make([Tally] * 2, backend="serial") as envs:
        envs.reset()
        with agym.watch(envs) as page:
            page.pause()
            envs.send([0, 0])
            begun = time.monotonic()
            assert len(envs.recv(2, timeout=0.3).env_ids) == 2
            assert time.monotonic() - begun > 0.25


def test_errors_are_not_held_back() -> None:
    class Falls(Tally):
        def step(self, action: Any) -> Any:
            raise RuntimeError("fell")

    with agym.make([Falls] * 2, backend="serial") as envs:
        envs.reset()
        with agym.watch(envs) as page:
            page.pause()
            with pytest.raises(ExceptionGroup, match="step"):
                envs.step([0, 0])


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
    with (
        stepping("sync", [Painter] * 2, {"fps": number(10)}, backend="serial") as run,
        looking(run.page.url) as look,
    ):
        assert look.next("numbers")["fps"] == 10


@each_api
def test_nothing_gets_into_the_callers_log(api: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        stepping(api, [Painter] * 2, backend="serial") as run,
        looking(run.page.url) as look,
    ):
        look.next("picture")
    names = {record.name for record in caplog.records if "websockets.client" not in record.name}
    assert names <= {"asyncio"}
    logging.getLogger("uvicorn.error").error("of a server of the caller's own")
    assert caplog.records[-1].name == "uvicorn.error"


def test_only_frames_within_reach_are_kept() -> None:
    envs = [partial(Painter, i, mode="rgb_array_list") for i in range(130)]
    with stepping("sync", envs, backend="serial") as run, looking(run.page.url) as look:
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


def test_a_page_that_is_closed_says_so() -> None:
    with agym.make([Painter] * 2, backend="serial") as envs:
        with agym.watch(envs) as page:
            pass
        page.close()
        for control in (page.pause, page.resume, partial(page.limit_speed, 5)):
            with pytest.raises(agym.ClosedError, match="page is closed"):
                control()


@pytest.fixture
def child() -> Iterator[Any]:
    """Does something in a forked child, which must end well by itself."""

    def fork(function: Any) -> None:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                function()
                code = 0
            finally:
                os._exit(code)
        ended = until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid and "ended")
        assert ended

    return fork


def test_a_forked_child_closes_at_once(child: Any) -> None:
    with agym.make([Painter] * 2, backend="serial") as envs:
        envs.reset()
        with agym.watch(envs) as page:
            child(envs.close)
            assert page.viewers == 0
            with looking(page.url) as look:
                look.next("about")


def test_a_forked_child_is_not_held_back(child: Any) -> None:
    with agym.make([Tally] * 2, backend="serial") as envs:
        envs.reset()
        with agym.watch(envs) as page:
            page.limit_speed(1e-3)
            page.pause()
            child(partial(envs.step, [0, 0]))


def test_closing_in_the_midst_of_a_picture() -> None:
    with agym.make([partial(Painter, seconds=0.3)] * 2, **TWO) as envs:
        envs.reset()
        with agym.watch(envs, fps=30, share=1.0) as page, looking(page.url) as look:
            look.next("about")
            until(lambda: bool(engine_of(envs).hooks.all))
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
