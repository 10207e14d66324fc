"""A session: one WebSocket and one environment. Each message is answered before the next is read.

While an environment takes long over a step, the connection is read ahead by one message, so that
pings are answered and a client's leave is noticed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agym.errors import UsageTypeError
from agym.tools.openenv.space_json import to_json
from agym.tools.openenv.wire import Code, as_fields, decode, encode
from agym.tools.serving.episodes import METADATA, Episodes, ProtocolError, invalid, shown
from agym.tools.serving.limits import ServerLimits
from agym.tools.serving.places import Place

if TYPE_CHECKING:
    from aiohttp import WSMessage, web

# Kinds of WebSocket messages, by their number.
TEXT, BINARY = 1, 2
# Why a connection is closed: the server ends, a rule was broken.
GOING_AWAY, POLICY = 1001, 1008
# A step that takes more seconds than this is long.
LONG = 5.0
# As many wrong messages in a row end a session.
MOST_ERRORS = 100
# A client may send this many seconds' worth of messages at once.
BURST = 1.0
# The fields of messages.
WITH_DATA, WITHOUT = frozenset({"type", "data"}), frozenset({"type"})
# What JSON-RPC answers where a server has no tools.
NO_METHOD = -32601


class Session:
    """One client's session."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        place: Place,
        limits: ServerLimits,
        *,
        binary: bool,
        closing: asyncio.Event,
    ) -> None:
        """Serve ``socket`` by the environment of ``place``.

        Args:
            socket: The WebSocket, which is open.
            place: The environment.
            limits: What the client may do.
            binary: Whether messages are binary frames.
            closing: Set when the server closes.
        """
        self._socket = socket
        self._episodes = Episodes(place)
        self._limits = limits
        self._binary = binary
        self._closing = closing
        self._loop = asyncio.get_running_loop()
        self._ahead: asyncio.Task[WSMessage] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._errors = 0
        # When the messages so far were due, at the permitted rate, and how far they are apart.
        self._due = 0.0
        self._apart = 1 / limits.messages_per_second
        # Since when it waits for a message, or is busy with one.
        self._busy = False
        self._since = self._loop.time()

    async def run(self) -> None:
        """Answer until the client leaves, is idle for too long, or breaks the rules."""
        try:
            while True:
                message = await self._receive()
                if message.type not in (TEXT, BINARY):
                    return
                now = self._loop.time()
                self._due = max(self._due, now) + self._apart
                if self._due - now > BURST:
                    await self._slow_down(self._due - now - BURST)
                self._since, self._busy = now, True
                answer, ends = await self._answer(message.data)
                self._since, self._busy = self._loop.time(), False
                if answer is not None:
                    await self._send(answer)
                if ends:
                    await self._socket.close()
                    return
        except ConnectionError:
            pass  # the client is gone
        finally:
            for task in (self._ahead, self._ending):
                if task is not None:
                    task.cancel()

    def tick(self, now: float) -> None:
        """Look after the session, now and then: timers for each message would cost more."""
        since = now - self._since
        idle = self._limits.idle_timeout
        if self._busy:
            if since > LONG and self._ahead is None:
                self._ahead = self._loop.create_task(self._socket.receive())
        elif idle is not None and since > idle and self._ending is None:
            why = f"the session was idle for {idle:g} seconds: connect again"
            self._ending = self._loop.create_task(self._end(why))

    async def _receive(self) -> WSMessage:
        if self._ahead is None:
            return await self._socket.receive()
        message, self._ahead = await self._ahead, None
        return message

    async def _slow_down(self, seconds: float) -> None:
        """Let a client wait that is too fast."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _send(self, answer: str | bytes) -> None:
        if isinstance(answer, str):
            await self._socket.send_str(answer)
        else:
            await self._socket.send_bytes(answer)

    async def _end(self, why: str) -> None:
        with suppress(ConnectionError):
            await self._send(error_message(Code.SESSION_ERROR, why, binary=self._binary))
            await self._socket.close(code=POLICY, message=b"see the last message")

    async def _answer(self, frame: str | bytes) -> tuple[str | bytes | None, bool]:
        """Return the answer to a message, and whether the session ends with it."""
        binary = self._binary
        try:
            try:
                if binary != isinstance(frame, bytes):
                    raise ValueError(
                        "this session takes " + ("binary frames" if binary else "text")
                    )
                message = decode(frame)
            except ValueError as error:
                raise ProtocolError(Code.INVALID_JSON, f"Invalid JSON: {error}") from None
            kind = message.get("type", "")
            if kind == "step":
                check_fields(message, WITH_DATA)
                if "data" not in message:
                    raise invalid("a step has data, the action", "data")
                data = await self._episodes.step(message["data"], native=binary)
                answer = result_message(data, binary=binary)
            elif kind == "reset":
                check_fields(message, WITH_DATA)
                data = message.get("data", {})
                if not isinstance(data, dict):
                    raise invalid("data must be an object", "data")
                answer = result_message(await self._episodes.reset(data), binary=binary)
            elif kind == "state":
                check_fields(message, WITHOUT)
                answer = encode({"type": "state", "data": self._episodes.state()}, binary=binary)
            elif kind == "close":
                check_fields(message, WITHOUT)
                return None, True
            elif kind == "mcp":
                answer = encode({"type": "mcp", "data": no_tools(message)}, binary=binary)
            else:
                raise ProtocolError(Code.UNKNOWN_TYPE, f"Unknown message type: {shown(kind)}")
        except ProtocolError as error:
            executed = error.code in (Code.EXECUTION_ERROR, Code.SESSION_ERROR)
            self._errors = 0 if executed else self._errors + 1
            ends = error.code is Code.SESSION_ERROR or self._errors >= MOST_ERRORS
            details = error.details
            return error_message(error.code, str(error), binary=binary, **details), ends
        self._errors = 0
        return answer, False


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
        except (TypeError, ValueError):
            metadata = result[METADATA]
            info = {str(key): sendable(value) for key, value in metadata["info"].items()}
            result = {**result, METADATA: {**metadata, "info": info}}
            return encode({"type": "observation", "data": as_data(result, binary)}, binary=binary)
    except (TypeError, ValueError) as error:
        raise ProtocolError(
            Code.EXECUTION_ERROR, f"the observation cannot be sent: {error}"
        ) from None


def as_data(result: dict[str, Any], binary: bool) -> dict[str, Any]:
    """Return a result as it is sent: in text, an observation is an object."""
    return result if binary else {**result, "observation": as_fields(result["observation"])}


def sendable(value: Any) -> Any:
    """Return a value, or its text if it cannot be sent."""
    try:
        return to_json(value)
    except (UsageTypeError, RecursionError):
        return str(value)


def error_message(code: Code, message: str, *, binary: bool, **details: Any) -> str | bytes:
    """Return an error message."""
    data = {"message": message, "code": str(code), **details}
    return encode({"type": "error", "data": data}, binary=binary)


def no_tools(message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for tools: the environments have none."""
    data = message.get("data")
    number = data.get("id") if isinstance(data, dict) else None
    number = number if isinstance(number, int | str) else None
    error = {"code": NO_METHOD, "message": "the environment has no tools of MCP"}
    return {"jsonrpc": "2.0", "id": number, "error": error}
