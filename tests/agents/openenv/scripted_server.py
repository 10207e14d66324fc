"""A server that speaks OpenEnv's protocol over real sockets, and misbehaves when an action says so.

An action is ``{"value": n, "do": WHAT}``; without ``do`` the value comes back as observation and
reward. A server has no part of agym's, so that it proves what the client does.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import TCPServer
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.support.patience import patience

SCHEMA = {"action": {}, "observation": {}, "state": {}}
# What an action can have done, each instead of an answer.
MISDEEDS: dict[str, Callable[[ServerConnection], object]] = {
    "drop": lambda ws: ws.transport.abort(),
    "half-close": lambda ws: ws.transport.write_eof(),
    "bytes": lambda ws: ws.transport.write(b"\xff\xfe\xfd no frames at all"),
    "masked": lambda ws: ws.transport.write(b"\x81\x80\0\0\0\0"),
    "not-utf8": lambda ws: ws.transport.write(b"\x81\x02\xff\xff"),
    "endless": lambda ws: ws.transport.write(b"\x82\x7f\x40\0\0\0\0\0\0\0"),
}
# Wrong answers.
GARBAGE = {
    "no-json": "{{{",
    "no-object": "[1, 2]",
    "no-data": '{"type": "observation"}',
    "no-observation": '{"type": "observation", "data": {}}',
    "data-list": '{"type": "observation", "data": [1]}',
    "reward-text": '{"type": "observation", "data": {"observation": {}, "reward": "much"}}',
    "done-text": '{"type": "observation", "data": {"observation": {}, "done": "false"}}',
    "metadata-text": '{"type": "observation", "data": {"observation": {}, "metadata": "x"}}',
    "another-type": '{"type": "state", "data": {}}',
    "binary": b"\0\1\2\3",
    "deep": '{"type":' + "[" * 100_000,
    "huge": "x" * 200_000,
}


def _error(message: str, code: str, **rest: Any) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **rest}})


ANSWERS: dict[str, str | bytes] = {
    **GARBAGE,
    "fail": _error("the oven is cold", "EXECUTION_ERROR"),
    "end": _error("the session is over", "SESSION_ERROR"),
}


class ScriptedServer:
    """A server in a thread.

    Attributes:
        refusals: How many sessions are still to be refused, and how: by an ``"error"`` message, or
            by an HTTP status.
        told: The seconds after which to come again, which a refusal says.
        opened: Sessions so far.
        open: Sessions at present; ``most_open``: the most at a time.
        headers: Those of the latest session.
        questions: All messages.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        schema: str | None = json.dumps(SCHEMA),
        port: int = 0,
    ) -> None:
        self.port = port
        self.refusals: list[int | str] = []
        self.told: float | None = None
        self.opened = self.open = self.most_open = 0
        self.headers: dict[str, str] = {}
        self.questions: list[dict[str, Any]] = []
        self._token, self._schema = token, schema
        self._gate: asyncio.Event
        self._connections: set[ServerConnection] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(patience())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(patience())
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def let_go(self) -> None:
        """Answer all that waits, and what will wait."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def asked(self, count: int) -> None:
        """Wait until so many questions have come."""
        self._wait_for(lambda: len(self.questions) >= count)

    def no_session(self) -> None:
        """Wait until there is none."""
        self.let_go()
        self._wait_for(lambda: not self.open)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(condition)

        asyncio.run_coroutine_threadsafe(wait(), self._loop).result(patience())

    def end_sessions(self) -> None:
        """End all sessions, as a server does with idle ones, and wait until they are closed."""

        async def end() -> None:
            await asyncio.gather(*(ws.close(1001, "idle") for ws in [*self._connections]))

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(patience())

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._gate, self._changed = asyncio.Event(), asyncio.Condition()
        server: Server
        async with serve(
            self._serve, "127.0.0.1", self.port, process_request=self._process, close_timeout=0.1
        ) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            self._ready.set()
            await self._end.wait()
            self._gate.set()

    def _process(self, ws: ServerConnection, request: Request) -> Response | None:
        """Answer what is no session, or refuse one."""

        def answer(status: int, text: str, **fields: str) -> Response:
            headers = Headers({"Content-Length": str(len(text)), **fields})
            return Response(status, HTTPStatus(status).phrase, headers, text.encode())

        if self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            return answer(401, "who are you?")
        if request.path == "/schema":
            return answer(404, "") if self._schema is None else answer(200, self._schema)
        if request.path != "/ws":
            return answer(404, "no such page")
        if self.refusals and isinstance(self.refusals[0], int):
            told = {} if self.told is None else {"Retry-After": str(self.told)}
            return answer(self.refusals.pop(0), "full", **told)  # type: ignore[arg-type]
        self.headers = dict(request.headers)
        return None

    async def _serve(self, ws: ServerConnection) -> None:
        if self.refusals:
            self.refusals.pop(0)
            told = {} if self.told is None else {"retry_after": self.told}
            await ws.send(_error("no place", "CAPACITY_REACHED", **told))
            return
        self.opened += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        self._connections.add(ws)
        try:
            await self._session(ws)
        except ConnectionClosed:
            pass
        finally:
            self._connections.discard(ws)
            async with self._changed:
                self.open -= 1
                self._changed.notify_all()

    async def _session(self, ws: ServerConnection) -> None:
        steps = 0
        while True:
            question = json.loads(await ws.recv())
            async with self._changed:
                self.questions.append(question)
                self._changed.notify_all()
            data = question.get("data", {})
            if question["type"] == "close":
                return
            if question["type"] == "state":
                await ws.send(json.dumps({"type": "state", "data": {"step_count": steps}}))
                continue
            steps = 0 if question["type"] == "reset" else steps + 1
            value = data.get("seed", 0) if question["type"] == "reset" else data.get("value", 0)
            answer = json.dumps({"type": "observation", "data": _result(value, data, steps)})
            await self._act(ws, data.get("do", ""), answer)

    async def _act(self, ws: ServerConnection, what: str, answer: str) -> None:
        if what in MISDEEDS:
            MISDEEDS[what](ws)
            return
        if what == "wait":
            await self._gate.wait()
        elif what == "ping":
            await (await ws.ping())
        elif what == "twice":
            await ws.send(answer)
        elif what == "fragments":
            await ws.send([answer[:10], answer[10:20], answer[20:]])
            return
        await ws.send(ANSWERS.get(what, answer))
        if what == "end":
            await ws.close()


def _result(value: Any, data: dict[str, Any], steps: int) -> dict[str, Any]:
    return {
        "observation": {"value": value, "text": f"<{value}>", "pixels": [[value, 1], [2, 3]]},
        "reward": value if steps else None,
        "done": bool(data.get("done")),
        "metadata": {"steps": steps, **data.get("metadata", {})},
    }


@contextmanager
def in_thread(server: TCPServer) -> Iterator[str]:
    """Run a server of the standard library in a thread; gives its address."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(patience())
