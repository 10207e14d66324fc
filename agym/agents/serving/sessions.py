"""A session: one WebSocket and one environment. Each message is answered before the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agym.agents.openenv.frames import MAX_DEPTH
from agym.agents.openenv.space_json import to_json
from agym.agents.openenv.wire import Code, as_fields, check_depth, decode, encode
from agym.agents.serving.episodes import METADATA, Episodes, ProtocolError, invalid, shown
from agym.agents.serving.limits import ServerLimits
from agym.agents.serving.places import Place
from agym.agents.serving.stepping import Outcome
from agym.agents.serving.websocket import Message, WebSocket
from agym.agents.serving.websocket_frames import CloseCode
from agym.errors import UsageTypeError

# As many wrong messages in a row end a session.
MAX_ERRORS = 100
# A client may send this many seconds' worth of messages at once.
BURST = 1.0
# The fields of messages.
WITH_DATA, WITHOUT = frozenset({"type", "data"}), frozenset({"type"})
# What it raises to encode a value that has no form in a message.
NOT_SENDABLE = (TypeError, ValueError, RecursionError)
# What JSON-RPC answers where a server has no tools.
NO_METHOD = -32601


class Session:
    """One client's session."""

    def __init__(
        self, socket: WebSocket, place: Place, limits: ServerLimits, *, binary: bool
    ) -> None:
        """Serve ``socket`` by the environment of ``place``.

        Args:
            socket: The WebSocket, which is open.
            place: The environment.
            limits: What the client may do.
            binary: Whether messages are binary frames.
        """
        self.socket = socket
        self._episodes = Episodes(place)
        self._limits = limits
        self._binary = binary
        self._loop = asyncio.get_running_loop()
        # Wrong messages in a row.
        self._errors = 0
        # When the messages so far were due, at the permitted rate, and how far they are apart.
        self._due = 0.0
        self._apart = 1 / limits.messages_per_second
        # Since when it waits for a message, or is busy with one.
        self._busy = False
        self._since = self._loop.time()

    async def run(self) -> None:
        """Answer until the client leaves, is idle for too long, or breaks the rules."""
        self.socket.begin(self._receive)
        await self.socket.ended

    def tick(self, now: float) -> None:
        """End an idle session; is called now and then, since a timer per message costs more."""
        idle = self._limits.idle_timeout
        if idle is not None and not self._busy and now - self._since > idle:
            why = f"the session was idle for {idle:g} seconds: connect again"
            self.socket.send(error_message(Code.SESSION_ERROR, why, binary=self._binary))
            self.socket.close(CloseCode.POLICY, "see the last message")

    def _receive(self, frame: Message) -> None:
        self._since, self._busy = now, _ = self._loop.time(), True
        self._due = max(self._due, now) + self._apart
        if self._due - now > BURST:  # who is too fast has to wait
            self._loop.call_later(self._due - now - BURST, self._answer, self._begin, frame)
        else:
            self._answer(self._begin, frame)

    def _stepped(self, outcome: Outcome) -> None:
        self._answer(self._end_step, outcome)

    def _was_reset(self, outcome: Outcome) -> None:
        self._answer(self._end_reset, outcome)

    def _answer(self, make: Callable[[Any], Message | None], given: Any) -> None:
        """Send what ``make`` returns, if it is an answer, or the error that it raises."""
        if self.socket.ended.done():
            return  # the environment may be another's by now
        try:
            answer = make(given)
        except ProtocolError as error:
            self._refuse(error)
        except Exception:
            self.socket.close(CloseCode.INTERNAL_ERROR)
            raise
        else:
            if answer is not None:
                self._errors = 0
                self._since, self._busy = self._loop.time(), False
                self.socket.answer(answer)

    def _refuse(self, error: ProtocolError) -> None:
        executed = error.code in (Code.EXECUTION_ERROR, Code.SESSION_ERROR)
        self._errors = 0 if executed else self._errors + 1
        answer = error_message(error.code, str(error), binary=self._binary, **error.details)
        self._since, self._busy = self._loop.time(), False
        self.socket.answer(answer)
        if error.code is Code.SESSION_ERROR or self._errors >= MAX_ERRORS:
            self.socket.close(CloseCode.NORMAL)

    def _begin(self, frame: Message) -> Message | None:
        """Return the answer to a message; ``None`` if it comes later.

        Raises:
            ProtocolError: It breaks a rule.
        """
        binary = self._binary
        try:
            if binary != isinstance(frame, bytes):
                raise ValueError("this session takes " + ("binary frames" if binary else "text"))
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
            self._episodes.begin_step(message["data"], self._stepped, native=binary)
        elif kind == "reset":
            check_fields(message, WITH_DATA)
            data = message.get("data", {})
            if not isinstance(data, dict):
                raise invalid("data must be an object", "data")
            self._episodes.begin_reset(data, self._was_reset)
        elif kind == "state":
            check_fields(message, WITHOUT)
            return encode({"type": "state", "data": self._episodes.state()}, binary=binary)
        elif kind == "close":
            check_fields(message, WITHOUT)
            self.socket.close(CloseCode.NORMAL)
        elif kind == "mcp":
            return encode({"type": "mcp", "data": no_tools(message)}, binary=binary)
        else:
            raise ProtocolError(Code.UNKNOWN_TYPE, f"Unknown message type: {shown(kind)}")
        return None

    def _end_step(self, outcome: Outcome) -> Message:
        return result_message(self._episodes.end_step(outcome), binary=self._binary)

    def _end_reset(self, outcome: Outcome) -> Message:
        return result_message(self._episodes.end_reset(outcome), binary=self._binary)


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
