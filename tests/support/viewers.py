"""Environments that are stepped in a thread, behind either API, and whoever looks at them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from websockets.sync.client import ClientConnection, connect

import agym
from tests.support.drivers import attached, opened
from tests.support.insides import hub_of, is_held
from tests.support.patience import patience


def until(condition: Callable[[], Any]) -> Any:
    """Wait until something holds."""
    end = time.monotonic() + patience(3)
    while not (result := condition()):
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)
    return result


class Stepping:
    """A caller, in a thread: it steps all environments until it is told to end."""

    def __init__(self, api: str, envs: Any, watch: dict[str, Any], options: dict[str, Any]) -> None:
        self.api = api
        self.rounds = 0
        self.page: Any = None
        self.envs: Any = None
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._ready = threading.Event()
        self._factories, self._watch = envs, watch
        self._options = {"autoreset": "next_step", "output": "array", **options}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Start, and wait for the page."""
        self._thread.start()
        assert self._ready.wait(patience(3))
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with opened(self.api, self._factories, **self._options) as self.envs:
                self.envs.reset(seed=0)
                with attached(self.envs, partial(agym.watch, **self._watch)) as self.page:
                    self._ready.set()
                    while not self._over.is_set():
                        self.envs.step(np.zeros(len(self.envs), int))
                        self.rounds += 1
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()

    def goes_on(self) -> None:
        """It steps, still or again."""
        before = self.rounds
        until(lambda: self.rounds > before + 2)

    def stands(self) -> int:
        """It steps no more, since the page holds its next step; gives how often it did.

        That it made no step for a while says nothing: it may only not have had its turn.
        """
        until(lambda: is_held(self.page))
        before = self.rounds
        time.sleep(0.3)
        assert self.rounds == before
        return before

    def end(self) -> None:
        self._over.set()
        if self.page is not None:
            hub_of(self.page).throttle.resume()  # as any thread may
        self._thread.join(patience(3))
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


@contextmanager
def stepping(
    api: str, envs: Any, watch: dict[str, Any] | None = None, **options: Any
) -> Iterator[Stepping]:
    run = Stepping(api, envs, {"fps": 30, "share": 1.0, **(watch or {})}, options)
    try:
        run.begin()
        yield run
    finally:
        run.end()


@contextmanager
def once_held(page: Any, act: Callable[[], Any]) -> Iterator[None]:
    """Do something, in a thread, once a paused page holds the block's step."""

    def wait() -> None:
        until(lambda: is_held(page))
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def started(*words: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A command of agym's that runs; gives the address that it tells."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "agym", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


class Picture:
    """What a browser is sent."""

    def __init__(self, data: bytes) -> None:
        length = int.from_bytes(data[:4], "little")
        self.header = json.loads(data[4 : 4 + length])
        self.pixels = np.asarray(Image.open(BytesIO(data[4 + length :])))
        self.ids = range(*self.header["ids"])

    def place(self, env_id: int) -> np.ndarray[Any, Any]:
        """One environment's."""
        head, k = self.header, self.ids.index(env_id)
        top = k // head["columns"] * (head["height"] + head["gap"])
        left = k % head["columns"] * (head["width"] + head["gap"])
        return self.pixels[top : top + head["height"], left : left + head["width"]]


class Look:
    """A browser, as far as its socket goes."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def say(self, kind: str, **rest: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **rest}))

    def next(self, kind: str, condition: Callable[[Any], Any] = lambda _: True) -> Any:
        """Wait for a message of a kind, or a ``"picture"``, that is as wanted."""
        end = time.monotonic() + patience(3)
        while True:
            data = self.socket.recv(timeout=end - time.monotonic())
            if isinstance(data, bytes):
                found: Any = Picture(data)
                self.say("shown")
                of = "picture"
            else:
                found = json.loads(data)
                self.say("here")
                of = found["type"]
            if of == kind and condition(found):
                return found


@contextmanager
def looking(url: str) -> Iterator[Look]:
    address = url.replace("http://", "ws://").replace("/?", "/live?")
    with connect(address, max_size=None, ping_interval=None, open_timeout=patience()) as socket:
        yield Look(socket)


@contextmanager
def viewing(
    api: str, envs: Any, watch: dict[str, Any] | None = None, **options: Any
) -> Iterator[tuple[Stepping, Look]]:
    """Step environments whose page somebody looks at."""
    options = {"backend": "serial", **options}
    with stepping(api, envs, watch, **options) as run, looking(run.page.url) as look:
        yield run, look
