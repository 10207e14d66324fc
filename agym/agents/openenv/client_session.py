"""A session: one environment at the server, which lives as long as one connection.

A reset opens the connection if there is none: before the first episode, after a fault, or after
the server has ended an idle one. Within an episode nothing is ever sent twice.

For servers without WebSocket, there are requests over HTTP. Whether such a server keeps an
environment between two requests is its own affair: OpenEnv's makes one for each.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn

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
from agym.agents.openenv.connection import Broken, Connection
from agym.agents.openenv.wire import BINARY, PATH, RETRY_AFTER, Code, as_fields, decode, encode
from agym.api.run import LoopThread
from agym.core._system.extras import require
from agym.errors import RemoteError

_NUMBERS = itertools.count(1)


class Full(Exception):
    """The server has no session for us at present.

    Attributes:
        delay: Seconds until the server wants to be asked again, ``None`` if it does not say.
    """

    def __init__(self, reason: str, delay: float | None) -> None:
        super().__init__(reason)
        self.delay = delay


class WebSocketSession:
    """A session over a WebSocket."""

    def __init__(self, server: Server) -> None:
        """Store the server; the first reset connects."""
        self._server = server
        self._connection: Connection | None = None
        self._number: int | None = None

    async def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode, in a new session if there is none.

        Raises:
            RemoteError: The server cannot be reached, is full, or failed.
        """
        question = {"type": "reset", "data": data}
        if self._connection is not None and self._connection.usable:
            try:
                return await self._exchange("reset", "observation", question)
            except RemoteError as error:
                if error.code not in ("CONNECTION_LOST", Code.SESSION_ERROR):
                    raise
                # The server ended an idle session at the same moment.
            except Full:
                pass
        self._drop("another is opened")
        attempts = Attempts(self._server.connect_timeout)
        release = await self._wait_for_place(attempts)
        try:
            while True:
                try:
                    self._connection = await self._open(attempts)
                    answer = await self._exchange("reset", "observation", question)
                except Full as full:
                    self._drop("the server is full")
                    if not await attempts.pause(full.delay):
                        raise self._server.full(str(full)) from None
                else:
                    self._connection.when_closed(release)
                    return answer
        except BaseException:
            self._drop("its first reset failed")
            release()
            raise

    async def step(self, action: Any) -> dict[str, Any]:
        """Take a step.

        Raises:
            RemoteError: The session is lost, or the server failed.
        """
        action = action if self.binary else as_fields(action)
        return await self._exchange("step", "observation", {"type": "step", "data": action})

    async def state(self) -> dict[str, Any]:
        """Return the state of the environment, as the server tells it."""
        return await self._exchange("state", "state", {"type": "state"})

    def end_episode(self) -> None:
        """Give the session up, if another environment of this process waits for one."""
        limit = self._server.limit
        if limit is not None and limit.wanted and self._connection is not None:
            self._connection.close(encode({"type": "close"}, binary=self.binary))

    async def close(self) -> None:
        """End the session."""
        if self._connection is not None:
            try:
                self._connection.close(encode({"type": "close"}, binary=self.binary))
                await self._connection.wait_closed()
            finally:
                self._drop("it was closed")

    @property
    def binary(self) -> bool:
        """Whether the messages are binary frames, as between two agyms."""
        return self._connection is not None and self._connection.subprotocol == BINARY

    # ---------------------------------------------------------------- parts

    def _drop(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.abort(reason)

    async def _wait_for_place(self, attempts: Attempts) -> Callable[[], None]:
        """Wait for the right to a session; return the function that gives it back."""
        limit = self._server.limit
        if limit is None:
            return lambda: None
        try:
            await limit.acquire(attempts.remaining)
            return limit.release
        except TimeoutError:
            raise self._server.error(
                "connect",
                "MAX_SESSIONS",
                f"all max_sessions={limit.most} sessions of this process are in use, and none"
                f" became free within connect_timeout={self._server.connect_timeout:g} s: an"
                " episode's end or a closed environment frees one",
            ) from None

    async def _open(self, attempts: Attempts) -> Connection:
        server = self._server
        open_once = partial(
            Connection.open,
            server.websocket_url,
            headers=server.headers,
            subprotocols=(BINARY,),
            max_size=server.max_size,
        )
        connection = await server.connect(open_once, PATH, attempts, "it accepts no WebSocket")
        self._number = next(_NUMBERS)
        return connection

    async def _exchange(
        self, operation: str, expected: str, question: dict[str, Any]
    ) -> dict[str, Any]:
        """Ask one question, and return the data of its answer."""
        connection, timeout = self._connection, self._server.timeout
        if connection is None:
            raise self._error(operation, "CONNECTION_LOST", "no session is open: reset opens one")
        try:
            message = await connection.ask(encode(question, binary=self.binary), timeout)
        except TimeoutError:
            raise self._error(
                operation,
                "TIMEOUT",
                f"no answer to {operation} within timeout={timeout:g} s. The session is closed, so"
                " that a late answer is never taken for another's: reset opens a new one; pass a"
                " longer timeout=, or on_fault='restart'",
            ) from None
        except Broken as broken:
            if broken.message is not None:
                with suppress(ValueError):
                    last = decode(broken.message)
                    if last.get("type") == "error":
                        self._fail(operation, last.get("data"))
            raise self._error(
                operation,
                "CONNECTION_LOST",
                f"the connection ended before {operation} was answered: {broken}. Its episode is"
                " lost: reset opens a new session; on_fault='restart' does so by itself",
            ) from None
        try:
            answer = decode(message)
            kind, data = answer.get("type"), answer.get("data")
            if kind == "error":
                self._fail(operation, data)
            if kind != expected or not isinstance(data, dict):
                raise ValueError(f"{message[:SHOWN]!r} is no {expected}")
        except ValueError as error:
            self._drop("an answer was wrong")
            raise self._error(
                operation, "BAD_ANSWER", f"the answer to {operation} is wrong: {error}"
            ) from None
        return data

    def _fail(self, operation: str, data: Any) -> NoReturn:
        """Raise the error that a message of the server describes."""
        fields = data if isinstance(data, dict) else {}
        code, text = str(fields.get("code", "UNKNOWN")), str(fields.get("message", data))
        if code == Code.CAPACITY_REACHED and operation == "reset":
            raise Full(text, retry_after(fields, RETRY_AFTER))
        details = f" {fields['errors']}" if fields.get("errors") else ""
        raise self._error(operation, code, f"{operation} failed at the server: {text}{details}")

    def _error(self, operation: str, code: str, text: str) -> RemoteError:
        return self._server.error(operation, code, text, self._number)


# ---------------------------------------------------------------- HTTP


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
    """What :class:`WebSocketSession` is, without a session."""

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
                text = f"no answer to {operation} within timeout={server.timeout:g} s: pass a"
                raise server.error(operation, "TIMEOUT", f"{text} longer timeout=") from None
            except OSError as error:
                text = f"the connection ended before {operation} was answered: {error}"
                raise server.error(operation, "CONNECTION_LOST", text) from error
            except WrongProtocol as error:
                raise server.not_openenv(error) from error
            else:
                if response.status not in FULL + NOT_YET:
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
