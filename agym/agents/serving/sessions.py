"""A session: one WebSocket and one environment. Each message is answered before the next.

::

    client --> receive --> _answer --> send --> client
                            |  ^
                            v  |
                         episodes: reset, step

While a message is answered, the server reads the next one and no more. So pings are answered, and
the server cancels the session of a client that leaves.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from agym.agents.openenv.frames import MAX_DEPTH
from agym.agents.openenv.space_json import shown, to_json
from agym.agents.openenv.wire import Code, as_fields, check_depth, decode, encode
from agym.agents.serving.episodes import METADATA, Episodes, ProtocolError, invalid
from agym.agents.serving.limits import ServerLimits
from agym.agents.serving.slots import SessionSlot
from agym.errors import UsageTypeError

Message = str | bytes

# The type of an ASGI event with a message.
RECEIVED = "websocket.receive"
# Why a WebSocket is closed.
NORMAL, GOING_AWAY, INTERNAL_ERROR = 1000, 1001, 1011
# How long the last messages of a session may take.
FAREWELL_SECONDS = 1.0
# As many wrong messages in a row end a session.
MAX_ERRORS = 100
# A client may send this many seconds' worth of messages at once.
BURST = 1.0
# The fields of messages.
WITH_DATA, WITHOUT = frozenset({"type", "data"}), frozenset({"type"})
# The exceptions of encoding a value that has no form in a message.
NOT_SENDABLE = (TypeError, ValueError, RecursionError)
# The code by which JSON-RPC says that a server has no tools.
NO_METHOD = -32601


class Socket:
    """The sending half of an open WebSocket.

    Attributes:
        binary: Whether messages are binary frames.
        closed: Whether the WebSocket is closed, by either side.
    """

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], *, binary: bool) -> None:
        """Store the ASGI function, and whether messages are binary frames."""
        self.binary = binary
        self._send = send
        self.closed = False

    async def send(self, message: Message) -> None:
        """Send a message; without effect once the socket is closed.

        Raises:
            OSError: The client has left.
        """
        if not self.closed:
            kind = "text" if isinstance(message, str) else "bytes"
            await self._send({"type": "websocket.send", kind: message})

    async def send_error(self, error: ProtocolError) -> None:
        """Send an error message."""
        data = {"message": str(error), "code": str(error.code), **error.details}
        await self.send(encode({"type": "error", "data": data}, binary=self.binary))

    async def close(self, code: int = NORMAL) -> None:
        """Close the WebSocket. Idempotent."""
        if not self.closed:
            self.closed = True
            await self._send({"type": "websocket.close", "code": code})


class Session:
    """One client's session."""

    def __init__(
        self,
        receive: Callable[[], Awaitable[dict[str, Any]]],
        socket: Socket,
        slot: SessionSlot,
        limits: ServerLimits,
    ) -> None:
        """Serve a WebSocket by the environment of a slot.

        Args:
            receive: The ASGI function; the WebSocket is open.
            socket: The sending half.
            slot: The environment.
            limits: The limits of the client.
        """
        self.socket = socket
        self._receive = receive
        self._episodes = Episodes(slot)
        self._limits = limits
        self._binary = socket.binary
        self._loop = asyncio.get_running_loop()
        # When the messages so far were due, at the permitted rate, and the seconds between two.
        self._due = 0.0
        self._interval = 1 / limits.messages_per_second
        # Since when the session waits for a message; ``None`` while it answers one.
        self._idle_since: float | None = self._loop.time()

    async def run(self) -> None:
        """Answer until the client closes the session, is idle for too long, or breaks the rules."""
        socket = self.socket
        try:
            async with asyncio.timeout(None) as self._timeout:
                await self._answer_messages()
        except TimeoutError:
            if not self._timeout.expired():  # another's error
                raise
            idle = f"the session was idle for {self._limits.idle_timeout:g} seconds: connect again"
            # A client that reads nothing is cut off.
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await socket.send_error(ProtocolError(Code.SESSION_ERROR, idle))
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await socket.close()

    def tick(self, now: float) -> None:
        """End an idle session. Called periodically, since a timer per message costs more."""
        limit, since = self._limits.idle_timeout or math.inf, self._idle_since
        if since is not None and now - since > limit:
            self._idle_since = None
            self._timeout.reschedule(now)

    async def _answer_messages(self) -> None:
        socket, errors = self.socket, 0
        while errors < MAX_ERRORS:
            event = await self._receive()
            if event["type"] != RECEIVED:
                socket.closed = True
                return
            await self._slow_down()
            try:
                text = event.get("text")
                answer = await self._answer(event["bytes"] if text is None else text)
                if answer is None:
                    return
                errors = 0
                self._idle_since = self._loop.time()  # until the client reads the answer
                await socket.send(answer)
            except ProtocolError as error:
                await socket.send_error(error)
                if error.code is Code.SESSION_ERROR:
                    return
                errors = 0 if error.code is Code.EXECUTION_ERROR else errors + 1
            self._idle_since = self._loop.time()

    async def _slow_down(self) -> None:
        """Wait if the client sends faster than it may."""
        self._idle_since, now = None, self._loop.time()
        self._due = max(self._due, now) + self._interval
        if self._due - now > BURST:
            await asyncio.sleep(self._due - now - BURST)

    async def _answer(self, frame: Message) -> Message | None:
        """Return the answer to a message; ``None`` if the client closes the session.

        Raises:
            ProtocolError: The message breaks a rule, or the environment failed.
        """
        binary = self._binary
        try:
            if binary != isinstance(frame, bytes):
                raise ValueError("this session accepts " + ("binary frames" if binary else "text"))
            message = decode(frame)
            if isinstance(frame, str) and frame.count("{") + frame.count("[") > MAX_DEPTH:
                check_depth(message)
        except ValueError as error:
            raise ProtocolError(Code.INVALID_JSON, f"Invalid JSON: {error}") from None
        kind = message.get("type", "")
        if not isinstance(kind, str):  # such as an array, which has no truth value
            raise ProtocolError(Code.UNKNOWN_TYPE, f"Unknown message type: {shown(kind)}")
        if kind == "step":
            check_fields(message, WITH_DATA)
            if "data" not in message:
                raise invalid("a step has data, the action", "data")
            return result_message(
                await self._episodes.step(message["data"], native=binary), binary=binary
            )
        if kind == "reset":
            check_fields(message, WITH_DATA)
            data = message.get("data", {})
            if not isinstance(data, dict):
                raise invalid("data must be an object", "data")
            return result_message(await self._episodes.reset(data), binary=binary)
        if kind == "state":
            check_fields(message, WITHOUT)
            return encode({"type": "state", "data": self._episodes.state()}, binary=binary)
        if kind == "close":
            check_fields(message, WITHOUT)
            return None
        if kind == "mcp":
            return encode({"type": "mcp", "data": no_tools(message)}, binary=binary)
        raise ProtocolError(Code.UNKNOWN_TYPE, f"Unknown message type: {shown(kind)}")


def check_fields(message: dict[str, Any], known: frozenset[str]) -> None:
    """Check that a message has no unknown fields.

    Raises:
        ProtocolError: It has.
    """
    if not message.keys() <= known:
        unknown = ", ".join(sorted(map(shown, message.keys() - known)))
        raise invalid(f"a {message['type']} message has no field {unknown}", "message")


def result_message(result: dict[str, Any], *, binary: bool) -> str | bytes:
    """Return the message with the result of a reset or step.

    Infos may hold objects that cannot be sent, of which the text is sent.

    Raises:
        ProtocolError: The observation cannot be sent.
    """
    try:
        try:
            return encode({"type": "observation", "data": as_data(result, binary)}, binary=binary)
        except NOT_SENDABLE:
            data = as_data(with_sendable_info(result), binary)
            return encode({"type": "observation", "data": data}, binary=binary)
    except NOT_SENDABLE as error:
        raise not_sendable(error) from None


def with_sendable_info(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the text of infos that cannot be sent."""
    metadata = result[METADATA]
    info = {str(key): sendable(value) for key, value in metadata["info"].items()}
    return {**result, METADATA: {**metadata, "info": info}}


def as_data(result: dict[str, Any], binary: bool) -> dict[str, Any]:
    """Return a result as it is sent: in text, an observation is an object."""
    return result if binary else {**result, "observation": as_fields(result["observation"])}


def not_sendable(error: Exception) -> ProtocolError:
    """Return the error of an observation that cannot be sent."""
    return ProtocolError(Code.EXECUTION_ERROR, f"the observation cannot be sent: {error}")


def sendable(value: Any) -> Any:
    """Return a value, or its text if it cannot be sent."""
    try:
        return to_json(value)
    except (UsageTypeError, RecursionError):
        pass
    try:
        return str(value)
    except Exception:  # the text is another's code
        return f"<{type(value).__name__}>"


def no_tools(message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for tools: the environments have none."""
    data = message.get("data")
    number = data.get("id") if isinstance(data, dict) else None
    number = number if isinstance(number, int | str) else None
    error = {"code": NO_METHOD, "message": "the environment has no tools of MCP"}
    return {"jsonrpc": "2.0", "id": number, "error": error}
