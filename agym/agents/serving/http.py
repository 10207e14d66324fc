"""The endpoints of a server: sessions at ``/ws``, and OpenEnv's requests over HTTP.

Each HTTP request to ``/reset`` or ``/step`` uses a free environment for itself alone, as in
OpenEnv's own server: what has episodes is a session.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agym.agents.openenv.space_json import to_json
from agym.agents.openenv.wire import BINARY, PATH, RETRY_AFTER, Code, check_depth
from agym.agents.serving.episodes import Episodes, ProtocolError, invalid
from agym.agents.serving.handshake import Early, HandshakeError, answer_handshake
from agym.agents.serving.limits import ServerLimits
from agym.agents.serving.places import Place, Places
from agym.agents.serving.schemas import STATE, object_schema
from agym.agents.serving.sessions import (
    NOT_SENDABLE,
    Session,
    as_data,
    error_message,
    not_sendable,
    with_sendable_info,
)
from agym.agents.serving.stepping import Outcome
from agym.agents.serving.websocket import WebSocket
from agym.agents.serving.websocket_frames import CloseCode
from agym.core._system.extras import require

if TYPE_CHECKING:
    from aiohttp import web

# What is not secret.
OPEN_PATHS = ("/health",)
STATUS_OF = {
    Code.INVALID_JSON: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.VALIDATION_ERROR: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.CAPACITY_REACHED: HTTPStatus.SERVICE_UNAVAILABLE,
}


class Endpoints:
    """Answers requests.

    Attributes:
        sessions: The open sessions.
        served: How many sessions there were.
        refused: How many found all environments taken.
    """

    def __init__(
        self,
        places: Places,
        limits: ServerLimits,
        *,
        token: str | None,
        host: str,
        metadata: dict[str, Any],
    ) -> None:
        """Serve the environments of ``places``.

        Args:
            places: The environments.
            limits: What clients may do.
            token: What they must know, ``None`` for nothing.
            host: The address that the server was told to listen on.
            metadata: What ``/metadata`` says.
        """
        self.sessions: set[Session] = set()
        self.served = 0
        self.refused = 0
        self._places = places
        self._limits = limits
        self._token = None if token is None else token.encode()
        self._host = host
        self._metadata = metadata
        self._closing = asyncio.Event()
        self._period = min(1.0, (limits.idle_timeout or 1.0) / 4)
        self._ticking = asyncio.get_running_loop().call_later(self._period, self._tick)
        self._web: Any = require("aiohttp.web", "serve")
        env = places.any_env
        action = object_schema(env.action_space, "Action")
        observation = object_schema(env.observation_space, "Observation")
        self._schema = {"action": action, "observation": observation, "state": STATE}
        self._schema["reset_observation"] = observation
        self._routes: dict[str, tuple[str, Callable[[Any], Awaitable[Any]]]] = {
            "/health": ("GET", self._health),
            "/metadata": ("GET", self._describe),
            "/schema": ("GET", self._schemas),
            "/state": ("GET", self._state),
            "/reset": ("POST", self._reset),
            "/step": ("POST", self._step),
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; a connection serves one."""
        try:
            response: web.StreamResponse | None = self._refusal(request)
            if response is None:  # aiohttp's responses were mappings, and often false, before 3.12
                response = await self._admit(request)
        except (ConnectionError, self._web.RequestPayloadError):
            response = self._json({"detail": "no such content"}, HTTPStatus.BAD_REQUEST)
        except Exception as error:
            message = "a request failed"
            asyncio.get_running_loop().call_exception_handler(
                {"message": message, "exception": error}
            )
            response = self._json({"detail": message}, HTTPStatus.INTERNAL_SERVER_ERROR)
        if isinstance(response, self._web.Response):
            response.force_close()
        return response

    async def _admit(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer whoever may ask."""
        if request.path != PATH:
            return await self._answer(request)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._open_session(request)
        return self._json(
            {"detail": f"{PATH} is a WebSocket"}, HTTPStatus.UPGRADE_REQUIRED, Upgrade="websocket"
        )

    async def close_sessions(self) -> None:
        """Tell all clients that the server closes, and wait for them a moment."""
        self._closing.set()
        self._ticking.cancel()
        for session in self.sessions:
            session.socket.close(CloseCode.GOING_AWAY)
        if self.sessions:
            await asyncio.wait([session.socket.ended for session in self.sessions])

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for session in self.sessions:
            session.tick(now)
        self._ticking = loop.call_later(self._period, self._tick)

    @property
    def retry_after(self) -> int:
        """Seconds after which whoever is turned away may come again."""
        return self._places.retry_after

    # ---------------------------------------------------------------- who may ask

    def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer to whoever may not ask."""
        origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
        if origin is not None and origin.lower().partition("://")[2] != host.lower():
            return self._json({"detail": "pages of other sites may not ask"}, HTTPStatus.FORBIDDEN)
        if self._token is None:
            if not self._is_ours(host):
                return self._json({"detail": f"this is not {host}"}, HTTPStatus.FORBIDDEN)
            return None
        if request.path in OPEN_PATHS:
            return None
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = request.query.get("token", "")
        if hmac.compare_digest(given.strip().encode(errors="backslashreplace"), self._token):
            return None
        return self._json(
            {"detail": "wrong or no token: send the header `Authorization: Bearer TOKEN`"},
            HTTPStatus.UNAUTHORIZED,
            **{"WWW-Authenticate": "Bearer"},
        )

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names this server by what no other site's name can be."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in ("localhost", self._host.lower()):
                return True
            ip_address(name)
        except ValueError:
            return self._host in ("0.0.0.0", "::")  # it was meant to have any name
        return True

    # ---------------------------------------------------------------- sessions

    async def _open_session(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            headers = answer_handshake(request.method, request.headers, BINARY)
        except HandshakeError as error:
            return self._json({"detail": str(error)}, HTTPStatus.BAD_REQUEST)
        upgraded: web.StreamResponse = self._web.StreamResponse(
            status=HTTPStatus.SWITCHING_PROTOCOLS, headers=headers
        )
        await upgraded.prepare(request)
        binary, transport = "Sec-WebSocket-Protocol" in headers, request.transport
        if transport is None:
            return upgraded  # the client is gone
        early = Early()
        request.protocol.set_parser(early)  # type: ignore[arg-type]  # it need only be fed
        size = self._limits.message_bytes
        socket = WebSocket(transport, request.protocol, size, early.data)
        place = None if self._closing.is_set() else self._places.take()
        if place is None:
            full = self._full()
            socket.send(error_message(full.code, str(full), binary=binary, **full.details))
            socket.close(CloseCode.NORMAL)
            await socket.ended
            return upgraded
        self.served += 1
        session = Session(socket, place, self._limits, binary=binary)
        self.sessions.add(session)
        try:
            await session.run()
        finally:
            self.sessions.discard(session)
            self._places.give_back(place)
        return upgraded

    def _full(self) -> ProtocolError:
        self.refused += 1
        places, seconds = self._places, self._places.retry_after
        return ProtocolError(
            Code.CAPACITY_REACHED,
            f"Server at capacity: {places.taken}/{places.total} sessions active. Cannot accept new"
            f" connections: come again in {seconds} s.",
            active_sessions=places.taken,
            max_sessions=places.total,
            **{RETRY_AFTER: seconds},
        )

    # ---------------------------------------------------------------- single requests

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        method, answer = self._routes.get(request.path, ("", self._health))
        if not method:
            return self._json({"detail": "Not Found"}, HTTPStatus.NOT_FOUND)
        if request.method != method:
            return self._json(
                {"detail": "Method Not Allowed"}, HTTPStatus.METHOD_NOT_ALLOWED, Allow=method
            )
        try:
            return self._json(await answer(request))
        except ProtocolError as error:
            status = STATUS_OF.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            headers = {}
            if (seconds := error.details.get(RETRY_AFTER)) is not None:
                headers["Retry-After"] = str(seconds)
            detail = error.details.get("errors", str(error))
            return self._json({"detail": detail, "code": str(error.code)}, status, **headers)
        except self._web.HTTPRequestEntityTooLarge:
            return self._json(
                {"detail": f"at most {self._limits.message_bytes} bytes"},
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        except TimeoutError:
            return self._json({"detail": "too slow"}, HTTPStatus.REQUEST_TIMEOUT)

    async def _health(self, _: web.BaseRequest) -> dict[str, Any]:
        return {"status": "healthy"}

    async def _describe(self, _: web.BaseRequest) -> dict[str, Any]:
        return self._metadata

    async def _schemas(self, _: web.BaseRequest) -> dict[str, Any]:
        return self._schema

    async def _state(self, _: web.BaseRequest) -> dict[str, Any]:
        return {"episode_id": None, "step_count": 0}

    async def _reset(self, request: web.BaseRequest) -> dict[str, Any]:
        data = await self._body(request)
        return await self._use(lambda episodes: reset(episodes, data))

    async def _step(self, request: web.BaseRequest) -> dict[str, Any]:
        body = await self._body(request)
        if not isinstance(body.get("action"), dict):
            raise invalid("action must be an object", "action")

        async def play(episodes: Episodes) -> dict[str, Any]:
            episodes.action(body["action"], native=False)
            await reset(episodes, {})
            return episodes.end_step(
                await outcome_of(partial(episodes.begin_step, body["action"], native=False))
            )

        return await self._use(play)

    async def _body(self, request: web.BaseRequest) -> dict[str, Any]:
        async with asyncio.timeout(self._limits.request_timeout):
            body = await request.read()
        try:
            data = json.loads(body) if body else {}
            check_depth(data)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(Code.INVALID_JSON, f"Invalid JSON: {error}") from None
        if not isinstance(data, dict):
            raise invalid("the content must be an object", "body")
        return data

    async def _use(self, play: Callable[[Episodes], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Use a free environment."""
        place: Place | None = None if self._closing.is_set() else self._places.take()
        if place is None:
            raise self._full()
        try:
            result = await play(Episodes(place))
            try:
                return as_data(with_sendable_info(result), binary=False)
            except NOT_SENDABLE as error:
                raise not_sendable(error) from None
        finally:
            self._places.give_back(place)

    def _json(self, value: Any, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> web.Response:
        response: web.Response = self._web.Response(
            text=json.dumps(to_json(value), allow_nan=False),
            status=int(status),
            content_type="application/json",
            headers=headers,
        )
        return response


async def reset(episodes: Episodes, data: dict[str, Any]) -> dict[str, Any]:
    """Begin an episode; return the answer's data."""
    return episodes.end_reset(await outcome_of(partial(episodes.begin_reset, data)))


async def outcome_of(begin: Callable[[Callable[[Outcome], None]], None]) -> Outcome:
    """Await an operation that ``begin`` starts, which calls its argument as it ends."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    begin(done)
    return await future
