"""The limits of a server's clients: sizes, rates and times."""

from __future__ import annotations

from dataclasses import dataclass

from agym.core.protocol.arguments import check_count, check_seconds
from agym.errors import UsageError


@dataclass(frozen=True)
class ServerLimits:
    """What clients of :func:`agym.serve` may do.

    Example:
        >>> import agym
        >>> limits = agym.ServerLimits(idle_timeout=60, message_bytes=1 << 20)
        >>> server = agym.serve("CartPole-v1", 4, limits=limits)

    Attributes:
        idle_timeout: Seconds without a message after which the server ends the session and frees
            its environment; ``None`` for no limit.
        message_bytes: Size of a message, or of the content of an HTTP request. A longer one ends
            the session.
        messages_per_second: Messages of one session. A faster client is slowed down.
        request_timeout: Seconds that a client may take to send an HTTP request, or the opening of
            a session.
        connections: Connections in addition to those of sessions. More are refused with HTTP status
            503.

    Raises:
        UsageError: A value is invalid.
    """

    idle_timeout: float | None = 300.0
    message_bytes: int = 16 * 2**20
    messages_per_second: float = 10_000.0
    request_timeout: float = 10.0
    connections: int = 512

    def __post_init__(self) -> None:
        if self.idle_timeout is not None:
            check_seconds("idle_timeout", self.idle_timeout)
        check_seconds("messages_per_second", self.messages_per_second)
        check_seconds("request_timeout", self.request_timeout)
        for name, least in (("message_bytes", 1024), ("connections", 1)):
            value = check_count(name, getattr(self, name))
            if value < least:
                raise UsageError(f"{name}={value} must be at least {least}")
            object.__setattr__(self, name, value)
