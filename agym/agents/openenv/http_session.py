"""Requests over HTTP, for servers without WebSocket, and for the schema of a server.

Whether such a server keeps an environment between two requests depends on the server: OpenEnv's
makes one for each request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from agym.agents.openenv.client_server import (
    FULL,
    NOT_FOUND,
    NOT_YET,
    OK,
    SHOWN,
    UNAUTHORIZED,
    Attempts,
    Refused,
    Server,
    WrongProtocol,
    retry_after,
    tls_context,
)
from agym.agents.openenv.wire import Code, as_fields, decode, encode
from agym.api.run import LoopThread
from agym.core._system.extras import require


class Response(NamedTuple):
    """The answer of a server; names of headers are compared without case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def request(server: Server, path: str, body: bytes | None = None) -> Response:
    """GET a page, or POST a ``body`` of JSON; the caller limits the time.

    Each exchange has a separate connection, so that no answer can belong to another exchange.

    Raises:
        OSError: No connection to the server, or it was lost.
        WrongProtocol: The answer is not HTTP/1.1, or has more than ``max_size`` bytes.
    """
    httpx2 = require("httpx2", "openenv")
    verify = tls_context() if server.url.startswith("https:") else False
    fields = {"accept": "application/json", "accept-encoding": "identity", "connection": "close"}
    method = "GET"
    if body is not None:
        method, fields["content-type"] = "POST", "application/json"
    fields |= server.headers
    try:
        async with (
            httpx2.AsyncClient(verify=verify, timeout=None, trust_env=False) as client,
            client.stream(method, server.url + path, headers=fields, content=body) as response,
        ):
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > server.max_size:
                    raise WrongProtocol(f"the answer has more than {server.max_size} bytes")
            return Response(response.status_code, response.headers, bytes(content))
    except httpx2.RemoteProtocolError as error:
        if "disconnected" in str(error):  # before it had answered
            raise ConnectionResetError("the server ended the connection") from error
        raise WrongProtocol(str(error)) from error
    except httpx2.TransportError as error:
        raise (_os_error(error) or ConnectionError(str(error))) from error


def _os_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error behind an error of httpx2, or ``None``."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


class HTTPSession:
    """The interface of :class:`WebSocketSession`, by single requests."""

    def __init__(self, server: Server) -> None:
        """Store the server."""
        self._server = server

    async def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode.

        Raises:
            RemoteError: The server cannot be reached, is full, or failed.
        """
        return await self._exchange("reset", data)

    async def step(self, action: Any) -> dict[str, Any]:
        """Take a step.

        Raises:
            RemoteError: The server cannot be reached, is full, or failed.
        """
        return await self._exchange("step", {"action": as_fields(action)})

    async def state(self) -> dict[str, Any]:
        """Return the state of the environment, as the server tells it."""
        return await self._exchange("state", None)

    binary = False

    def end_episode(self) -> None:
        """Do nothing: there is no session to give up."""

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def _exchange(self, operation: str, data: dict[str, Any] | None) -> dict[str, Any]:
        server = self._server
        body = None if data is None else str(encode(data, binary=False)).encode()
        attempts = Attempts(server.connect_timeout)
        while True:
            delay = None
            try:
                async with asyncio.timeout(server.timeout):
                    response = await request(server, f"/{operation}", body)
            except ConnectionRefusedError as error:  # so nothing was sent
                problem = server.unreachable(error)
            except TimeoutError:
                limit = f"timeout={server.timeout:g} s: pass a longer timeout="
                text = f"no answer to {operation} within {limit}"
                raise server.error(operation, "TIMEOUT", text) from None
            except OSError as error:
                text = f"the connection ended before {operation} was answered: {error}"
                raise server.error(operation, "CONNECTION_LOST", text) from error
            except WrongProtocol as error:
                raise server.not_openenv(error) from error
            else:
                # A gateway that gave up may have passed the request on: no step is sent twice.
                again = FULL if operation == "step" else FULL + NOT_YET
                if response.status not in again:
                    return self._data(operation, response)
                problem = server.full(f"HTTP status {response.status}")
                delay = retry_after(response.headers)
            if not await attempts.pause(delay):
                raise problem

    def _data(self, operation: str, response: Response) -> dict[str, Any]:
        server, status = self._server, response.status
        if status in UNAUTHORIZED or status in (404, 405):
            raise server.refusal(status, response.body, f"/{operation}")
        try:
            data = decode(response.body.decode())
        except ValueError as error:
            if status != OK:
                data = {"detail": response.body[:SHOWN].decode(errors="replace")}
            else:
                raise server.not_openenv(error) from None
        if status != OK:
            code = Code.VALIDATION_ERROR if status in (400, 422) else Code.EXECUTION_ERROR
            detail = data.get("detail", data)
            detail = detail if isinstance(detail, str) else json.dumps(detail)
            raise server.error(operation, code, f"{operation} failed at the server: {detail}")
        return data


def ask_for_schema(server: Server) -> dict[str, Any]:
    """Return the schemas of the server's environments, ``{}`` if it has no such page.

    The request runs on an event loop in a thread, because the caller may be within an event loop.
    """
    thread = LoopThread("agym-openenv-schema")
    try:
        return thread.submit(_schema(server)).result()
    finally:
        thread.close()


async def _schema(server: Server) -> dict[str, Any]:
    async def once() -> dict[str, Any]:
        response = await request(server, "/schema")
        if response.status == NOT_FOUND:
            return {}
        if response.status != OK:
            raise Refused(*response)
        try:
            return decode(response.body.decode())
        except ValueError as error:
            raise WrongProtocol(f"GET /schema gives no JSON object ({error})") from None

    silent = (
        "no answer to GET /schema (a server on the event loop that calls agym.openenv cannot"
        " answer: call it by `await asyncio.to_thread(agym.openenv, url)`)"
    )
    return await server.connect(once, "/schema", Attempts(server.connect_timeout), silent)
