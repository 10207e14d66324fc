"""A server's HTTP endpoints: its schema, and environments for servers without WebSocket.

Whether a server keeps an environment between two requests is its own affair: OpenEnv's makes one
for each.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agym.agents.openenv.client_server import (
    FULL,
    NOT_RETRYABLE,
    NOT_YET,
    OK,
    SHOWN,
    UNAUTHORIZED,
    Attempts,
    Server,
    retry_after,
    tls_context,
)
from agym.agents.openenv.wire import Code, as_fields, decode, encode
from agym.api.run import LoopThread
from agym.core._system.extras import require
from agym.errors import RemoteError

NOT_FOUND = 404


@dataclass(frozen=True)
class Response:
    """The answer of a server.

    Attributes:
        status: The HTTP status.
        headers: The headers; names are compared without case.
        body: The content.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotHTTP(Exception):
    """The server's answer is not HTTP/1.1, or too large."""


async def request(
    url: str, *, headers: Mapping[str, str], max_size: int, body: bytes | None = None
) -> Response:
    """GET a page, or POST a ``body`` of JSON; the caller limits the time.

    Each exchange has a separate connection, so that no answer can belong to another exchange.

    Raises:
        OSError: No connection to the server, or it was lost.
        NotHTTP: The answer is not HTTP/1.1, or has more than ``max_size`` bytes.
    """
    httpx2 = require("httpx2", "openenv")
    verify = tls_context() if url.startswith("https:") else False
    fields = {"accept": "application/json", "accept-encoding": "identity", "connection": "close"}
    if body is not None:
        fields["content-type"] = "application/json"
    method = "GET" if body is None else "POST"
    try:
        async with (
            httpx2.AsyncClient(verify=verify, timeout=None, trust_env=False) as client,
            client.stream(method, url, headers={**fields, **headers}, content=body) as response,
        ):
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > max_size:
                    raise NotHTTP(f"the answer has more than {max_size} bytes")
            return Response(response.status_code, response.headers, bytes(content))
    except httpx2.RemoteProtocolError as error:
        if "disconnected" in str(error):  # before it had answered
            raise ConnectionResetError("the server ended the connection") from error
        raise NotHTTP(str(error)) from error
    except httpx2.TransportError as error:
        raise (_os_error(error) or ConnectionError(str(error))) from error


def _os_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error behind an error of httpx2, or ``None``."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


class HTTPSession:
    """What :class:`~agym.agents.openenv.client_session.WebSocketSession` is, without a session."""

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
            response = await self._request(operation, body, attempts)
            if response.status not in FULL + NOT_YET:
                return self._data(operation, response)
            if not await attempts.pause(retry_after(response.headers)):
                raise server.full(f"HTTP status {response.status}")

    async def _request(self, operation: str, body: bytes | None, attempts: Attempts) -> Response:
        server = self._server
        while True:
            try:
                async with asyncio.timeout(server.timeout):
                    return await request(
                        f"{server.url}/{operation}",
                        headers=server.headers,
                        max_size=server.max_size,
                        body=body,
                    )
            except ConnectionRefusedError as error:  # so nothing was sent
                if not await attempts.pause():
                    raise server.unreachable(error) from error
            except TimeoutError:
                text = f"no answer to {operation} within timeout={server.timeout:g} s: pass a"
                raise server.error(operation, "TIMEOUT", f"{text} longer timeout=") from None
            except OSError as error:
                text = f"the connection ended before {operation} was answered: {error}"
                raise server.error(operation, "CONNECTION_LOST", text) from error
            except NotHTTP as error:
                raise server.not_openenv(error) from error

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
    attempts = Attempts(server.connect_timeout)
    problem: RemoteError | None = None
    while True:
        delay = None
        try:
            async with asyncio.timeout(attempts.remaining):
                response = await _get_schema(server)
        except NotHTTP as error:
            raise server.not_openenv(error) from None
        except TimeoutError:
            problem = problem or server.unreachable(
                "no answer to GET /schema (a server on the event loop that calls agym.openenv"
                " cannot answer: call it by `await asyncio.to_thread(agym.openenv, url)`)"
            )
        except NOT_RETRYABLE as error:
            raise server.unreachable(error) from error
        except OSError as error:
            problem = server.unreachable(error)
        else:
            if response.status in FULL:
                delay = retry_after(response.headers)
                problem = server.full(f"HTTP status {response.status}")
            elif response.status in NOT_YET:
                problem = server.refusal(response.status, response.body, "/schema")
            else:
                return _read_schema(server, response)
        if not await attempts.pause(delay):
            raise problem


async def _get_schema(server: Server) -> Response:
    url = f"{server.url}/schema"
    return await request(url, headers=server.headers, max_size=server.max_size)


def _read_schema(server: Server, response: Response) -> dict[str, Any]:
    if response.status == NOT_FOUND:
        return {}
    if response.status != OK:
        raise server.refusal(response.status, response.body, "/schema")
    try:
        return decode(response.body.decode())
    except ValueError as error:
        raise server.not_openenv(f"GET /schema gives no JSON object ({error})") from None
