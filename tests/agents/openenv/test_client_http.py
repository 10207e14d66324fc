"""Environments over HTTP alone: a request for each operation, one clear error for each failure."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import agym
from agym.agents.openenv.client import openenv
from tests.support.patience import deadline, patience

# What a step is answered with instead of its echo: a status, headers and a body.
Answer = tuple[int, dict[str, str], bytes]


class Server(ThreadingHTTPServer):
    """A server that echoes a step's value; ``answers`` are given first."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer | str] = []
        self.requests: list[tuple[str, Any]] = []
        self.gate = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        pages = {"/schema": {"action": {}, "observation": {}}, "/state": {"step_count": 4}}
        self._answer((200, {}, json.dumps(pages[self.path]).encode()))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, body))
        answer = self.server.answers.pop(0) if self.server.answers else None
        if answer == "wait":
            self.server.gate.wait(patience())
        if answer == "drop":
            self.close_connection = True
            return
        if isinstance(answer, tuple):
            self._answer(answer)
            return
        value = body.get("seed", 0) if self.path == "/reset" else body["action"]["value"]
        result = {"observation": {"value": value}, "reward": value, "done": value == 9}
        self._answer((200, {}, json.dumps(result).encode()))

    def _answer(self, answer: Answer) -> None:
        status, headers, body = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running
        finally:
            running.gate.set()
            running.shutdown()
            thread.join(patience())


async def test_reset_step_and_state(server: Server) -> None:
    factory = openenv(server.url, protocol="http")
    async with agym.make_async(factory, 3, backend="asyncio") as envs:
        observations, _ = await envs.reset(seed=5)
        assert [each["value"] for each in observations] == [5, 6, 7]
        result = await envs.step([{"value": value} for value in (1, 2, 9)])
        assert result.rewards.tolist() == [1.0, 2.0, 9.0]
        assert result.terminated.tolist() == [False, False, True]
        assert await envs.call("state") == [{"step_count": 4}] * 3
    assert ("/step", {"action": {"value": 2}}) in server.requests


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ((422, {}, b'{"detail": [{"msg": "no such field"}]}'), "VALIDATION_ERROR", "no such field"),
        ((500, {}, b"Internal Server Error"), "EXECUTION_ERROR", "Internal Server Error"),
        ((500, {}, b'{"detail": "the oven is cold"}'), "EXECUTION_ERROR", "the oven is cold"),
        ((401, {}, b""), "REFUSED", "pass the server's token"),
        ((404, {}, b""), "BAD_ANSWER", "answers /step with HTTP status 404"),
        ((200, {}, b"<html>"), "BAD_ANSWER", "it is no OpenEnv server"),
        ((200, {}, b"[]"), "BAD_ANSWER", "it is no OpenEnv server"),
        ((200, {}, b"\xff\xfe"), "BAD_ANSWER", "it is no OpenEnv server"),
        ((200, {}, b"{}"), "BAD_ANSWER", "the answer to step is wrong"),
        ((200, {}, b"x" * 200_000), "BAD_ANSWER", "more than 100000 bytes"),
        ((200, {"Content-Length": "900"}, b"{}"), "BAD_ANSWER", "it is no OpenEnv server"),
        ("drop", "CONNECTION_LOST", "the connection ended before step was answered"),
        ("wait", "TIMEOUT", "no answer to step within timeout="),
    ],
)
async def test_failures_are_one_error(server: Server, answer: Any, code: str, says: str) -> None:
    timeout = deadline(0.2) if answer == "wait" else patience()
    factory = openenv(server.url, protocol="http", max_size=100_000, timeout=timeout)
    async with agym.make_async(factory, 1, backend="asyncio") as envs:
        await envs.reset()
        server.answers = [answer]
        with pytest.raises(agym.EnvError, match=says) as caught:
            await envs.step([{"value": 1}])
        assert isinstance(caught.value.exception, agym.RemoteError)
        assert caught.value.exception.code == code
        server.gate.set()
        await envs.reset()
        assert (await envs.step([{"value": 2}])).rewards.tolist() == [2.0]


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0.05"}, {"Retry-After": "soon"}])
async def test_a_full_server_is_asked_again(server: Server, headers: dict[str, str]) -> None:
    factory = openenv(server.url, protocol="http", connect_timeout=patience())
    async with agym.make_async(factory, 1, backend="asyncio") as envs:
        server.answers = [(503, headers, b"")] * 2
        await envs.reset(seed=3)
        assert server.requests == [("/reset", {"seed": 3})] * 3
