"""How an HTTP request becomes a WebSocket (RFC 6455, section 4).

aiohttp's own ``WebSocketResponse`` brings a reader and a queue along, keeps what a client sends too
early, and logs a warning of each client that asks for another subprotocol.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

# What the server's half of the handshake is computed with.
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
VERSION = "13"


class HandshakeError(Exception):
    """The request is no handshake."""


class Early:
    """Keeps what the client sent behind its request; it stands in for aiohttp's parser."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """Do nothing: the connection is lost, and its new owner is told so."""


def answer_handshake(method: str, headers: Mapping[str, str], protocol: str) -> dict[str, str]:
    """Return the headers of the answer; with ``protocol`` if the client knows this subprotocol.

    Example:
        >>> asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        >>> asked["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        >>> answer_handshake("GET", asked, "mine")["Sec-WebSocket-Accept"]
        's3pPLMBiTxaQ9kYGzzhZRbK+xOo='

    Raises:
        HandshakeError: The request is no handshake.
    """
    if method != "GET":
        raise HandshakeError("a WebSocket is opened by GET")
    if "upgrade" not in _listed(headers.get("Connection", "").lower()):
        raise HandshakeError("the header `Connection: Upgrade` is missing")
    if headers.get("Sec-WebSocket-Version") != VERSION:
        raise HandshakeError(f"Sec-WebSocket-Version must be {VERSION}")
    key = headers.get("Sec-WebSocket-Key", "").strip()
    try:
        random = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):  # the latter if it is not ASCII
        random = b""
    if len(random) != 16:
        raise HandshakeError("Sec-WebSocket-Key must be 16 bytes in base64")
    digest = hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()
    accept = base64.b64encode(digest).decode()
    answer = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
    if protocol in _listed(headers.get("Sec-WebSocket-Protocol", "")):
        answer["Sec-WebSocket-Protocol"] = protocol
    return answer


def _listed(field: str) -> list[str]:
    return [part.strip() for part in field.split(",")]
