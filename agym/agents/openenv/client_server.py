"""What the environments of one server have in common: its address, their limits and errors."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TypeVar
from urllib.parse import urlsplit

from agym.agents.openenv.wire import PATH, Code
from agym.errors import RemoteError, UsageError

T = TypeVar("T")

OK, NOT_FOUND = 200, 404
# HTTP statuses of a server that is full, of a gateway whose server is not up yet, and of a token
# that was refused.
FULL, NOT_YET, UNAUTHORIZED = (429, 503), (502, 504), (401, 403)
# Errors of a connection that no further attempt can change: a certificate, an unknown name.
NOT_RETRYABLE = (ssl.SSLError, socket.gaierror)
# What is shown of a message that is no answer.
SHOWN = 200
# The first and the longest pause between two attempts, in seconds.
FIRST_PAUSE, MAX_PAUSE = 0.05, 2.0
# No further attempt is made with less time than this, in seconds.
MIN_ATTEMPT = 0.02


class Refused(Exception):
    """The server answered with an HTTP status instead."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.headers = headers
        self.body = body


class WrongProtocol(Exception):
    """What the server sends is not HTTP, not the WebSocket protocol, or too large."""


class Attempts:
    """The remaining time for attempts to connect, and the pauses between them.

    Attributes:
        problem: Why the last attempt failed, as far as the server has told.
    """

    problem: RemoteError | None = None

    def __init__(self, limit: float) -> None:
        """Allow ``limit`` seconds from now on."""
        self._end = time.monotonic() + limit
        self._pause = FIRST_PAUSE

    @property
    def remaining(self) -> float:
        """The remaining seconds, at least 0."""
        return max(0.0, self._end - time.monotonic())

    async def pause(self, delay: float | None = None) -> bool:
        """Wait before the next attempt; return false, at once, if there is no time for one.

        The pauses double, and are drawn at random, so that clients which a server turned away at
        the same time do not return at the same time.

        Args:
            delay: The pause that the server asked for, in seconds.
        """
        remaining = self.remaining
        if delay is None:
            # Half of the remaining time is kept for the attempt.
            pause = min(self._pause * random.uniform(0.5, 1.0), remaining / 2)
            self._pause = min(2 * self._pause, MAX_PAUSE)
        else:
            pause = max(delay, FIRST_PAUSE) * random.uniform(1.0, 1.25)
        if pause >= remaining or remaining < MIN_ATTEMPT:
            return False
        await asyncio.sleep(pause)
        return True


class SessionLimit:
    """The sessions that one process may have open at one server, dealt in order.

    The environments of a process may run on several event loops.
    """

    def __init__(self, most: int) -> None:
        """Allow ``most`` sessions at a time."""
        self.most = most
        self._open = 0
        self._lock = threading.Lock()
        self._waiting: deque[asyncio.Future[None]] = deque()
        # How each session between two episodes is given up, and the event loop that does it.
        self._idle: dict[Callable[[], None], asyncio.AbstractEventLoop] = {}

    def offer(self, give_up: Callable[[], None]) -> None:
        """Give a session up: now if an environment waits for one, else as soon as one does.

        An environment that waits is served even if the next episode starts at once.
        """
        with self._lock:
            wanted = bool(self._waiting)
            if not wanted:
                self._idle[give_up] = asyncio.get_running_loop()
        if wanted:
            give_up()

    def keep(self, give_up: Callable[[], None]) -> None:
        """Offer a session no longer: its next episode starts, or it is closed."""
        with self._lock:
            self._idle.pop(give_up, None)

    async def acquire(self, timeout: float) -> None:
        """Wait for the right to one session.

        Raises:
            TimeoutError: None became free in time.
        """
        with self._lock:
            if self._open < self.most and not self._waiting:
                self._open += 1
                return
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            while self._idle:
                give_up = next(iter(self._idle))  # the session that has been idle longest
                with suppress(RuntimeError):  # its event loop is closed
                    self._idle.pop(give_up).call_soon_threadsafe(give_up)
                    break
        try:
            async with asyncio.timeout(timeout):
                await place
        except BaseException:
            with self._lock:
                waits = place in self._waiting
                if waits:
                    self._waiting.remove(place)
            if not waits:
                self.release()  # it was handed over at the same moment
            raise

    def release(self) -> None:
        """Hand the right to a session to the environment that waits longest."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._open -= 1
                    return
                place = self._waiting.popleft()
            try:
                place.get_loop().call_soon_threadsafe(_hand_over, place)
            except RuntimeError:
                continue  # its event loop is closed
            return


def _hand_over(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)


# By process, since a forked one has sessions of its own, and by address.
_LIMITS: dict[tuple[int, str], SessionLimit] = {}


@dataclass(frozen=True)
class Server:
    """A server, and the settings of its environments; see :func:`agym.openenv`."""

    url: str
    headers: Mapping[str, str]
    timeout: float | None
    connect_timeout: float
    max_sessions: int | None
    max_size: int

    @property
    def limit(self) -> SessionLimit | None:
        """The limit that the environments of this process share, or ``None``."""
        if self.max_sessions is None:
            return None
        limit = _LIMITS.setdefault((os.getpid(), self.url), SessionLimit(self.max_sessions))
        limit.most = self.max_sessions
        return limit

    async def connect(
        self, once: Callable[[], Awaitable[T]], path: str, attempts: Attempts, silent: str
    ) -> T:
        """Connect, again and again while that can help.

        Args:
            once: Connects once; it may raise ``Refused``, ``WrongProtocol`` or an ``OSError``.
            path: The path at the server, for messages.
            attempts: The time for it.
            silent: What the server does if it does not answer, for the message.

        Raises:
            RemoteError: The server cannot be reached, is full, or is no OpenEnv server.
        """
        while True:
            delay = None
            try:
                async with asyncio.timeout(attempts.remaining):
                    return await once()
            except Refused as refused:
                problem = self.refusal(refused.status, refused.body, path)
                if refused.status in FULL:
                    delay, problem = retry_after(refused.headers), self.full(str(refused))
                elif refused.status not in NOT_YET:
                    raise problem from None
                attempts.problem = problem
            except WrongProtocol as error:
                raise self.not_openenv(error) from None
            except NOT_RETRYABLE as error:
                raise self.unreachable(error) from error
            except TimeoutError:
                attempts.problem = attempts.problem or self.unreachable(silent)
            except OSError as error:
                attempts.problem = self.unreachable(error)
            if not await attempts.pause(delay):
                assert attempts.problem is not None
                raise attempts.problem

    def error(
        self, operation: str, code: str, text: str, session: int | None = None
    ) -> RemoteError:
        """Make an error that names the server and the session."""
        where = self.url if session is None else f"session {session} of {self.url}"
        return RemoteError(
            f"{where}: {text}", url=self.url, operation=operation, code=code, session=session
        )

    def refusal(self, status: int, body: bytes, path: str) -> RemoteError:
        """Make the error of an HTTP status that no further attempt can change."""
        if status in UNAUTHORIZED:
            sent = "authorization" in {name.lower() for name in self.headers}
            token = "its token was refused" if sent else "no token was sent"
            text = (
                f"it refuses {path} with HTTP status {status}, and {token}: pass the server's"
                " token, agym.openenv(url, token=...), and check the path of the address"
            )
            return self.error("connect", "REFUSED", text)
        excerpt = body[:SHOWN].decode(errors="replace")
        text = (
            f"it answers {path} with HTTP status {status} {excerpt!r}, as no OpenEnv server does:"
            " check the address, and pass protocol='http' for a server without WebSocket"
        )
        return self.error("connect", "BAD_ANSWER", text)

    def not_openenv(self, reason: object) -> RemoteError:
        """Make the error of a server that speaks another protocol."""
        text = f"it is no OpenEnv server: {reason}; check the address and the port"
        return self.error("connect", "BAD_ANSWER", text)

    def unreachable(self, reason: object) -> RemoteError:
        """Make the error of a server that cannot be reached."""
        text = (
            f"no connection within connect_timeout={self.connect_timeout:g} s: {reason}; start the"
            " server, or check the address and the port"
        )
        return self.error("connect", "UNREACHABLE", text)

    def full(self, reason: str) -> RemoteError:
        """Make the error of a server that had no session for us in time."""
        text = (
            f"the server is full ({reason}), and had no session within"
            f" connect_timeout={self.connect_timeout:g} s: make fewer environments, pass"
            " max_sessions= so that they take turns, or allow the server more sessions"
        )
        return self.error("connect", Code.CAPACITY_REACHED, text)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the settings of all encrypted connections; loading the certificates takes long."""
    return ssl.create_default_context()


def base_url(url: str) -> str:
    """Return the address of a server, without the path of its sessions.

    Raises:
        UsageError: It is no address.
    """
    example = "as 'http://127.0.0.1:8000'"
    if not isinstance(url, str):
        raise UsageError(f"url={url!r} must be the address of an OpenEnv server, {example}")
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    try:
        port = parts.port
    except ValueError as error:
        raise UsageError(f"url={url!r} has no valid port: {error}") from error
    if scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"url={url!r} must be the address of an OpenEnv server, {example}")
    if parts.query or parts.fragment or parts.username is not None:
        raise UsageError(f"url={url!r} must have no '?', '#' or user name: pass token= or headers=")
    path = parts.path.rstrip("/").removesuffix(PATH)
    return f"{scheme}://{parts.netloc}{path}"


def retry_after(headers: Mapping[str, str], key: str = "retry-after") -> float | None:
    """Return the seconds after which a full server wants to be asked again."""
    try:
        return max(0.0, float(headers[key]))
    except (KeyError, ValueError):
        return None  # a date, which no such server sends
