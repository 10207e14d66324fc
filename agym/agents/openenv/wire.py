"""The messages of OpenEnv's sessions, as text for its clients and as binary frames between agyms.

A session is a WebSocket at ``/ws``. The client asks, and each question has one answer::

    {"type": "reset", "data": {"seed": 1, "options": {}}}   {"type": "observation", "data": RESULT}
    {"type": "step",  "data": ACTION}                       {"type": "observation", "data": RESULT}
    {"type": "state"}                                       {"type": "state", "data": {...}}
    {"type": "close"}                                       the connection is closed
    anything else                                           {"type": "error", "data": ERROR}

    RESULT = {"observation": ..., "reward": ..., "done": ..., "metadata": ...}
    ERROR  = {"message": ..., "code": ..., ...}

In text, an action and an observation are objects. Values that are not one, such as those of a
``Box``, are its only field, ``"value"``: see :func:`as_fields`. A client that asks for the
subprotocol :data:`BINARY` gets and sends the same messages as binary frames, in which actions and
observations are themselves, and arrays are bytes: see :mod:`agym.agents.openenv.frames`.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from agym.agents.openenv.frames import MAX_DEPTH, pack, unpack
from agym.agents.openenv.space_json import to_json

# The WebSocket subprotocol of binary frames.
BINARY = "agym.binary.v1"
# The path of sessions, and the only field of a value that is not an object.
PATH, VALUE = "/ws", "value"
# A number of seconds after which to come again, in ERROR of a server that is full.
RETRY_AFTER = "retry_after"


class Code(StrEnum):
    """What went wrong, in an error message.

    All but the last are the protocol's. A session outlives an error, except for
    ``CAPACITY_REACHED``, ``FACTORY_ERROR`` and ``SESSION_ERROR``, after which it is closed.
    """

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"


# Made once, because making an encoder takes longer than encoding a short message.
_JSON = json.JSONEncoder(separators=(",", ":"), default=to_json, allow_nan=False)


def encode(message: dict[str, Any], *, binary: bool) -> str | bytes:
    """Return a message as the text or the binary frame to send.

    Example:
        >>> encode({"type": "state"}, binary=False)
        '{"type":"state"}'

    Raises:
        UsageTypeError: A value has no such form.
    """
    if binary:
        return pack(message)
    try:
        return _JSON.encode(message)
    except ValueError:  # most often NaN or infinity, which few messages have
        return _JSON.encode(to_json(message))


def decode(frame: str | bytes) -> dict[str, Any]:
    """Return the message in a text or a binary frame.

    Example:
        >>> decode('{"type": "state"}')
        {'type': 'state'}

    Raises:
        ValueError: It is no such message.
    """
    try:
        message = unpack(frame) if isinstance(frame, bytes) else json.loads(frame)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("a message must be an object")
    return message


def check_depth(value: Any) -> None:
    """Check that a message is nested no deeper than a binary frame may be.

    A deeper one can be read, but not always copied, pickled and shown.

    Raises:
        ValueError: It is.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for part in level
            if isinstance(part, dict | list)
            for item in (part.values() if isinstance(part, dict) else part)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_DEPTH} times")


def as_fields(value: Any) -> dict[str, Any]:
    """Return an action or observation as the object that is sent as text.

    Example:
        >>> as_fields(3), as_fields({"text": "hello"})
        ({'value': 3}, {'text': 'hello'})
    """
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return {VALUE: to_json(value)}
