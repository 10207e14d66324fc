"""A session: one environment at the server, which lives as long as one connection.

A reset opens the connection if there is none: before the first episode, after a fault, or after
the server has ended an idle one. Within an episode nothing is ever sent twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from agym.agents.openenv.client_server import (
    SHOWN,
    Attempts,
    Server,
    retry_after,
)
from agym.agents.openenv.connection import Broken, Connection
from agym.agents.openenv.wire import BINARY, PATH, RETRY_AFTER, Code, as_fields, decode, encode
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
        # Whether the session is between two episodes.
        self._idle = False

    async def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode, in a new session if there is none.

        Raises:
            RemoteError: The server cannot be reached, is full, or failed.
        """
        question = {"type": "reset", "data": data}
        self._keep()
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
                    attempts.problem = self._server.full(str(full))
                    if not await attempts.pause(full.delay):
                        raise attempts.problem from None
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
        """Give the session up when another environment of this process waits for one."""
        limit = self._server.limit
        if limit is not None:
            self._idle = True
            limit.offer(self._give_up)

    async def close(self) -> None:
        """End the session."""
        self._keep()
        if self._connection is not None:
            try:
                self._say_goodbye()
                await self._connection.wait_closed()
            finally:
                self._drop("it was closed")

    @property
    def binary(self) -> bool:
        """Whether the messages are binary frames, as between two agyms."""
        return self._connection is not None and self._connection.subprotocol == BINARY

    # ---------------------------------------------------------------- parts

    def _say_goodbye(self) -> None:
        if self._connection is not None:
            self._connection.close(encode({"type": "close"}, binary=self.binary))

    def _give_up(self) -> None:
        if self._idle:  # the next episode may have started at the same moment
            self._say_goodbye()

    def _keep(self) -> None:
        if self._idle:
            self._idle = False
            limit = self._server.limit
            if limit is not None:
                limit.keep(self._give_up)

    def _drop(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.abort(reason)

    async def _wait_for_place(self, attempts: Attempts) -> Callable[[], None]:
        """Wait for the right to a session; return the function that gives it back."""
        limit = self._server.limit
        if limit is None:
            return lambda: None

        def release() -> None:
            self._keep()  # a connection that is closed cannot be given up
            limit.release()

        try:
            await limit.acquire(attempts.remaining)
            return release
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
            f"ws{server.url.removeprefix('http')}{PATH}",
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
