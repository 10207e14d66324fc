"""The endpoints of a server: sessions at ``/ws``, and OpenEnv's requests over HTTP.

Imported only where Starlette is installed. Each HTTP request to ``/reset`` or ``/step`` uses a free
environment for itself alone, as in OpenEnv's own server. Only a session has episodes.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agym.agents.openenv.space_json import to_json
from agym.agents.openenv.space_schema import STATE, object_schema
from agym.agents.openenv.wire import BINARY, PATH, RETRY_AFTER, Code, check_depth
from agym.agents.serving.episodes import Episodes, ProtocolError, invalid
from agym.agents.serving.limits import ServerLimits
from agym.agents.serving.sessions import (
    GOING_AWAY,
    INTERNAL_ERROR,
    NOT_SENDABLE,
    Session,
    Socket,
    as_data,
    not_sendable,
    with_sendable_info,
)
from agym.agents.serving.slots import SessionSlot, SessionSlots
from agym.core._system.extras import require

# A path that needs no token.
HEALTH = "/health"
STATUS_OF = {
    Code.INVALID_JSON: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.VALIDATION_ERROR: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.CAPACITY_REACHED: HTTPStatus.SERVICE_UNAVAILABLE,
}
# Seconds until all sessions must have received that the server closes.
CLOSING_SECONDS = 1.0


class Endpoints:
    """The ASGI application of a server.

    Attributes:
        sessions: The open sessions.
        served: Number of sessions so far.
        refused: Number of sessions and requests that found no free environment.
    """

    def __init__(
        self,
        slots: SessionSlots,
        limits: ServerLimits,
        *,
        token: str | None,
        host: str,
        metadata: dict[str, Any],
        registry: Any = None,
    ) -> None:
        """Serve the environments of ``slots``.

        Args:
            slots: The environments.
            limits: The limits of clients.
            token: The token that clients must send, ``None`` for none.
            host: The address at which the server listens, as the caller passed it.
            metadata: The answer to ``/metadata``.
            registry: Prometheus' registry for ``/metrics``, ``None`` for no such endpoint.
        """
        self.sessions: set[Session] = set()
        self.served = 0
        self.refused = 0
        self._slots = slots
        self._limits = limits
        self._token = None if token is None else token.encode()
        self._host = host
        self._closing = False
        self._period = min(1.0, (limits.idle_timeout or 1.0) / 4)
        self._ticking = asyncio.get_running_loop().call_later(self._period, self._tick)
        env = slots.any_env
        action = object_schema(env.action_space, "Action")
        observation = object_schema(env.observation_space, "Observation")
        schema = {"action": action, "observation": observation, "state": STATE}
        schema["reset_observation"] = observation
        self._app = Starlette(
            routes=[
                constant(HEALTH, {"status": "healthy"}),
                constant("/metadata", metadata),
                constant("/schema", schema),
                constant("/state", {"episode_id": None, "step_count": 0}),
                Route("/reset", self._reset, methods=["POST"]),
                Route("/step", self._step, methods=["POST"]),
                Route(PATH, upgrade_required),
                *([] if registry is None else [Route("/metrics", self._metrics(registry))]),
            ],
            exception_handlers={
                ProtocolError: on_protocol_error,
                HTTPException: lambda _, it: refuse(it.detail, it.status_code, it.headers),
                TimeoutError: lambda _, __: refuse("too slow", HTTPStatus.REQUEST_TIMEOUT),
            },
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or serve a session."""
        socket = scope["type"] == "websocket"
        try:
            refusal = self._refusal(HTTPConnection(scope))
            if refusal is None and socket and scope["path"] != PATH:
                refusal = refuse("Not Found", HTTPStatus.NOT_FOUND)
            if refusal is not None:
                await refusal(scope, receive, send)
            elif socket:
                await self._serve_session(BINARY in scope["subprotocols"], receive, send)
            else:
                await self._app(scope, receive, send)
        except (ClientDisconnect, OSError):
            pass
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request failed", "exception": error}
            )
            if socket:
                await Socket(send, binary=False).close(INTERNAL_ERROR)

    async def close_sessions(self) -> None:
        """Tell all clients that the server closes."""
        self._closing = True
        self._ticking.cancel()
        closing = [asyncio.ensure_future(it.socket.close(GOING_AWAY)) for it in self.sessions]
        if closing:
            await asyncio.wait(closing, timeout=CLOSING_SECONDS)
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for session in self.sessions:
            session.tick(now)
        self._ticking = loop.call_later(self._period, self._tick)

    # ---------------------------------------------------------------- access

    def _refusal(self, connection: HTTPConnection) -> Response | None:
        """Return the answer to a client that has no access."""
        headers = connection.headers
        origin, host = headers.get("Origin"), headers.get("Host", "")
        if origin is not None and origin.lower().partition("://")[2] != host.lower():
            return refuse("pages of other sites have no access", HTTPStatus.FORBIDDEN)
        if self._token is None:
            own = self._is_own_name(host)
            return None if own else refuse(f"this is not {host}", HTTPStatus.FORBIDDEN)
        if connection.scope["path"] == HEALTH:
            return None
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = connection.query_params.get("token", "")
        if hmac.compare_digest(token.strip().encode(errors="backslashreplace"), self._token):
            return None
        return refuse(
            "wrong or no token: send the header `Authorization: Bearer TOKEN`",
            HTTPStatus.UNAUTHORIZED,
            {"WWW-Authenticate": "Bearer"},
        )

    def _is_own_name(self, host: str) -> bool:
        """Whether a Host header names this server, by a name that no other site can have."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in ("localhost", self._host.lower()):
                return True
            ip_address(name)
        except ValueError:
            return self._host in ("0.0.0.0", "::")  # the server may have any name
        return True

    # ---------------------------------------------------------------- sessions

    async def _serve_session(self, binary: bool, receive: Any, send: Send) -> None:
        await receive()  # that the client has connected
        await send({"type": "websocket.accept", "subprotocol": BINARY if binary else None})
        socket = Socket(send, binary=binary)
        try:
            with self._slot() as slot:
                self.served += 1
                session = Session(receive, socket, slot, self._limits)
                self.sessions.add(session)
                try:
                    await session.run()
                finally:
                    self.sessions.discard(session)
        except ProtocolError as full:
            await socket.send_error(full)
            await socket.close()

    @contextmanager
    def _slot(self) -> Iterator[SessionSlot]:
        """Use a free environment.

        Raises:
            ProtocolError: There is none.
        """
        slot = None if self._closing else self._slots.acquire()
        if slot is None:
            raise self._full()
        try:
            yield slot
        finally:
            self._slots.release(slot)

    def _full(self) -> ProtocolError:
        self.refused += 1
        slots, seconds = self._slots, self._slots.retry_after
        return ProtocolError(
            Code.CAPACITY_REACHED,
            f"Server at capacity: {slots.in_use}/{slots.total} sessions active. Cannot accept new"
            f" connections: come again in {seconds} s.",
            active_sessions=slots.in_use,
            max_sessions=slots.total,
            **{RETRY_AFTER: seconds},
        )

    # ---------------------------------------------------------------- single requests

    async def _reset(self, request: Request) -> Response:
        data = await self._body(request)
        return await self._use(lambda episodes: episodes.reset(data))

    async def _step(self, request: Request) -> Response:
        action = (await self._body(request)).get("action")
        if not isinstance(action, dict):
            raise invalid("action must be an object", "action")

        async def play(episodes: Episodes) -> dict[str, Any]:
            episodes.action(action, native=False)  # before the reset
            await episodes.reset({})
            return await episodes.step(action, native=False)

        return await self._use(play)

    def _metrics(self, registry: Any) -> Callable[[Request], Awaitable[Response]]:
        """Add the server's own metrics, and return the endpoint that answers with all."""
        client = require("prometheus_client", "metrics")
        gauges = {
            "agym_sessions": ("Open sessions.", lambda: len(self.sessions)),
            "agym_sessions_served": ("Sessions so far.", lambda: self.served),
            "agym_sessions_refused": ("Sessions and requests refused.", lambda: self.refused),
        }
        for name, (about, read) in gauges.items():
            client.Gauge(name, about, registry=registry).set_function(read)

        async def answer(_: Request) -> Response:
            text = client.generate_latest(registry)
            return Response(
                text, headers={"Connection": "close"}, media_type=client.CONTENT_TYPE_LATEST
            )

        return answer

    async def _body(self, request: Request) -> dict[str, Any]:
        body, limit = b"", self._limits.message_bytes
        async with asyncio.timeout(self._limits.request_timeout):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                    raise HTTPException(status, f"at most {limit} bytes")
        try:
            data = json.loads(body) if body else {}
            check_depth(data)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(Code.INVALID_JSON, f"Invalid JSON: {error}") from None
        if not isinstance(data, dict):
            raise invalid("the content must be an object", "body")
        return data

    async def _use(self, play: Callable[[Episodes], Awaitable[dict[str, Any]]]) -> Response:
        """Answer with the result of a use of a free environment."""
        with self._slot() as slot:
            result = await play(Episodes(slot))
            try:
                return respond(as_data(with_sendable_info(result), binary=False))
            except NOT_SENDABLE as error:
                raise not_sendable(error) from None


def constant(path: str, value: dict[str, Any]) -> Route:
    """Return an endpoint that always answers the same."""

    async def answer(_: Request) -> Response:
        return respond(value)

    return Route(path, answer)


async def upgrade_required(_: Request) -> Response:
    """Answer an HTTP request for a session."""
    headers = {"Upgrade": "websocket"}
    return refuse(f"{PATH} is a WebSocket", HTTPStatus.UPGRADE_REQUIRED, headers)


def on_protocol_error(_: Request, error: Any) -> Response:
    """Answer with a :class:`ProtocolError`."""
    status = STATUS_OF.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    seconds = error.details.get(RETRY_AFTER)
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    detail = error.details.get("errors", str(error))
    return respond({"detail": detail, "code": str(error.code)}, status, headers)


def refuse(detail: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response to a request that is refused."""
    return respond({"detail": detail}, status, headers)


def respond(
    value: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response; a connection serves one request."""
    fields = {**(headers or {}), "Connection": "close"}
    text = json.dumps(to_json(value), allow_nan=False)
    return Response(text, int(status), fields, "application/json")
