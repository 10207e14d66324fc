"""The web application: a page, and a WebSocket per browser that has it open.

Requests without the token of the page's address are refused, so that no other page in a browser
and no other user of the machine can watch or pause.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agym.core._system.extras import require
from agym.core.protocol.arguments import check_count, is_number
from agym.errors import UsageError
from agym.watching.live.hub import Hub
from agym.watching.live.view import View, pages

PAGE = Path(__file__).with_name("page.html")
REFUSED = "This page needs its token: open the whole address that was shown, ?token=... included.\n"

# Timeout of a silent browser: it normally answers two messages per second.
SILENT_SECONDS = 15.0

# Maximum number of pictures per second that a browser can ask for.
MAX_FPS = 30

# Maximum number of bytes of a browser's message, and of keys held down.
MAX_BYTES = 4096
MAX_KEYS = 32

# Exceptions that malformed messages raise.
INVALID_MESSAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
        " connect-src 'self'; img-src blob: data:; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def make_app(hub: Hub, token: str, num_envs: int) -> Any:
    """Make the application.

    Raises:
        MissingExtraError: Starlette is not installed.
    """
    responses = require("starlette.responses", "watch")
    routing = require("starlette.routing", "watch")
    applications = require("starlette.applications", "watch")

    def has_token(connection: Any) -> bool:
        given = connection.query_params.get("token", "")
        return secrets.compare_digest(given.encode(), token.encode())

    async def page(_: Any) -> Any:
        return responses.HTMLResponse(PAGE.read_text("utf-8"), headers=HEADERS)

    def download(name: str, text: Callable[[], str]) -> Any:
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}

        async def send(_: Any) -> Any:
            content = await asyncio.to_thread(text)
            return responses.Response(content, headers=headers, media_type="text/csv")

        return route(f"/{name}", send)

    def route(path: str, answer: Any) -> Any:
        async def guarded(request: Any) -> Any:
            if not has_token(request):
                return responses.PlainTextResponse(REFUSED, 403, HEADERS)
            return await answer(request)

        return routing.Route(path, guarded)

    async def live(socket: Any) -> None:
        if not has_token(socket):
            await socket.close(1008)  # before it is accepted: 403
            return
        await socket.accept()
        await SocketViewer(hub, socket, num_envs).serve()

    return applications.Starlette(
        routes=[
            route("/", page),
            download("episodes.csv", hub.metrics.episodes_csv),
            download("logged.csv", hub.metrics.logged_csv),
            routing.WebSocketRoute("/live", live),
        ]
    )


class SocketViewer:
    """One browser's socket; see :class:`~agym.watching.live.hub.Viewer`."""

    def __init__(self, hub: Hub, socket: Any, num_envs: int) -> None:
        self.view = View()
        self.due = False
        self.keys: frozenset[str] = frozenset()
        self._hub = hub
        self._socket = socket
        self._num_envs = num_envs
        self._picture: bytes | None = None
        self._messages: dict[str, str] = {}  # the latest of each kind
        self._news = asyncio.Event()

    def show(self, picture: bytes) -> None:
        self._picture = picture
        self._news.set()

    def send(self, kind: str, message: str) -> None:
        self._messages[kind] = message
        self._news.set()

    async def serve(self) -> None:
        """Serve the socket until the browser disconnects."""
        if not self._hub.add(self):
            await self.hang_up(1001)
            return
        both = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.remove(self)
            for task in both:
                task.cancel()
            ended = await asyncio.gather(*both, return_exceptions=True)
        for code in ended:
            if isinstance(code, int):
                await self.hang_up(code)

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            messages, self._messages = self._messages, {}
            for message in messages.values():
                await self._socket.send_text(message)
            picture, self._picture = self._picture, None
            if picture is not None:
                await self._socket.send_bytes(picture)

    async def _receive(self) -> int | None:
        """Handle messages until the browser disconnects, or return the code to close with."""
        while True:
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    message = await self._socket.receive()
            except TimeoutError:
                return 1011
            if message["type"] == "websocket.disconnect":
                return None
            try:
                self._act(json.loads(message.get("text") or ""))
            except INVALID_MESSAGE:
                return 1003

    async def hang_up(self, code: int, reason: str = "") -> None:
        """Close the socket, waiting at most a second for a browser that reads nothing."""
        with suppress(Exception):  # it may be gone already, which raises many kinds of errors
            async with asyncio.timeout(1):
                await self._socket.close(code, reason)

    def _act(self, message: Any) -> None:
        """Handle a message.

        Raises:
            ValueError: The message is malformed; so do the other errors of ``INVALID_MESSAGE``.
        """
        hub = self._hub
        match message["type"]:
            case "here":
                pass
            case "shown":
                hub.on_shown(self)
            case "view":
                hub.set_view(self, self._view(message))
            case "keys":
                keys = message["down"]
                if len(keys) > MAX_KEYS or not all(isinstance(key, str) for key in keys):
                    raise ValueError("keys")
                self.keys = frozenset(keys)
                hub.on_keys_changed()
            case "pause" | "resume" as kind:
                hub.set_pause(kind == "pause", by_viewer=True)
            case "step":
                hub.throttle.step_once()
            case "speed":
                speed = message["value"]
                hub.set_speed(None if speed is None else check_positive("speed", speed, 1e6))
            case "fps":
                hub.camera.fps = check_positive("fps", message["value"], MAX_FPS)
            case kind:
                raise ValueError(kind)

    def _view(self, message: dict[str, Any]) -> View:
        env, page = message["env"], message["page"]
        if env is not None:
            check_count("env", env, 0)
        check_count("page", page, 0)
        if (env or 0) >= self._num_envs or page >= pages(self._num_envs):
            raise UsageError("there is no such environment")
        return View(env, page)


def check_positive(name: str, value: Any, most: float) -> float:
    """Return a checked number.

    Raises:
        UsageError: It is not a number, or too small or large.
    """
    if not is_number(value) or not 1e-3 <= value <= most:
        raise UsageError(f"{name}={value!r} must be a number, at most {most:g}")
    return float(value)
