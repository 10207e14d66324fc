"""``agym.serve()``: environments behind OpenEnv's protocol, for other processes and machines."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from agym import AsyncEnvs, FaultPolicy, make_async
from agym import metrics as envs_metrics
from agym.agents.serving.limits import ServerLimits
from agym.agents.serving.slots import SessionSlots
from agym.api.options.environments import EnvLike
from agym.api.options.options import BackendLike, OnFault
from agym.core._system.extras import require
from agym.core._system.platform import allow_open_files
from agym.core.protocol.arguments import check_count
from agym.core.web.server import WebServer, bind, check_installed
from agym.core.web.settings import ServerSettings
from agym.errors import ClosedError, UsageError, UsageTypeError

if TYPE_CHECKING:
    from agym.agents.serving.http import Endpoints

# Receives warnings of malformed requests, apart from the log of environments.
HTTP_LOG = logging.getLogger("agym.serve.http")
# For "all addresses", one to which clients of this machine can connect.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# Open files that a program needs in addition to its connections.
OTHER_FILES = 512
# An environment of a server may be replaced this often in a minute: clients can crash it.
MAX_RESTARTS = 1000


def serve(
    env: EnvLike,
    num_envs: int = 1,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    token: str | bool = True,
    limits: ServerLimits | None = None,
    backend: BackendLike = "auto",
    workers: int | None = None,
    timeout: float | None = None,
    on_fault: OnFault | None = None,
    metrics: bool = False,
    **env_kwargs: Any,
) -> Server:
    """Serve environments to OpenEnv's clients and to :func:`agym.openenv`.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.serve("CartPole-v1", 8) as server:
        ...         return server.url.startswith("http://127.0.0.1:"), server.sessions
        >>> agym.run(main())
        (True, 0)

    A client's session has one environment for itself. When the session ends, the environment is
    free for the next one. While none is free, clients receive the time after which to try again.

    Args:
        env: Any ``env`` that :func:`agym.make` accepts, including coroutine environments.
        num_envs: Number of environments, and so the maximum number of open sessions.
        port: The port; 0 picks a free one.
        host: The address to listen on. The default accepts connections from this machine only;
            ``"0.0.0.0"`` accepts them from every machine.
        token: What clients must send, as ``Authorization: Bearer TOKEN`` or as ``?token=TOKEN``;
            ``True`` for a random one, ``False`` for none.
        limits: What clients may do, by default ``ServerLimits()``.
        backend: Where environments run, as in :func:`agym.make`. By default, plain environments run
            in worker processes, and coroutine environments on the server's event loop. Use
            ``"process"`` for coroutine environments that compute, hang or crash: in worker
            processes, they block no other session.
        workers: Number of worker processes or threads.
        timeout: Deadline of one operation, in seconds.
        on_fault: What follows if an environment raises, hangs or loses its worker. By default,
            agym replaces the environment. The server sends an error to its session, and the client
            must then reset; other sessions of its worker continue where they were (``"replay"``).
        metrics: Whether to answer Prometheus at ``/metrics``, with the metrics of
            :func:`agym.metrics` and those of the server. Prometheus sends the token as clients do.
        **env_kwargs: For the environment, as in ``gymnasium.make``.

    Returns:
        The server, which ``async with`` starts and ends.

    Raises:
        UsageError: An argument is invalid.
        MissingExtraError: Starlette, or with ``metrics`` prometheus_client, is not installed.
    """
    if not isinstance(host, str) or not host:
        raise UsageError(f"host={host!r} must be an address, such as '127.0.0.1'")
    if check_count("port", port, 0) > 65535:
        raise UsageError(f"port={port} must be at most 65535")
    if not isinstance(limits, ServerLimits | None):
        raise UsageTypeError(f"limits={limits!r} must be an agym.ServerLimits")
    secret = _token(token)
    if on_fault is None:
        # Coroutines share no worker that could die, so only the failed environment is replaced.
        alone = inspect.iscoroutinefunction(getattr(env, "step", None))
        on_fault = FaultPolicy("restart" if alone else "replay", max_restarts=MAX_RESTARTS)
    envs = make_async(
        env, check_count("num_envs", num_envs), autoreset="disabled", output="list",
        backend=backend, workers=workers, timeout=timeout, on_fault=on_fault, **env_kwargs,
    )  # fmt: skip
    check_installed("serve")
    if metrics:
        require("prometheus_client", "metrics")
    name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    return Server(envs, name, (host, port), secret, limits or ServerLimits(), metrics)


@dataclass(frozen=True)
class ServerStats:
    """What a server did so far.

    Attributes:
        sessions: Sessions that are open.
        num_envs: Environments, and so the most sessions at a time.
        served: Sessions that were opened.
        refused: Sessions and requests refused because all environments were in use.
        steps: Steps of all environments.
    """

    sessions: int
    num_envs: int
    served: int
    refused: int
    steps: int


class Server:
    """A server of environments, made by :func:`agym.serve`.

    Attributes:
        url: Its address, once it is started; this machine's own if it listens on all addresses.
        token: What clients must send, ``None`` for nothing.
    """

    url: str

    def __init__(
        self, envs: AsyncEnvs, name: str, address: tuple[str, int], token: str | None,
        limits: ServerLimits, metrics: bool,
    ) -> None:  # fmt: skip
        self.token = token
        self._envs = envs
        self._name = name
        self._address = address
        self._limits = limits
        self._with_metrics = metrics
        self._stack = AsyncExitStack()
        self._endpoints: Endpoints | None = None

    async def __aenter__(self) -> Self:
        """Make the environments and listen.

        Raises:
            UsageError: The port is taken or not permitted.
            EnvError: A constructor raised.
        """
        if self._endpoints is not None:
            raise ClosedError("a server starts once: agym.serve(...) makes another")
        async with AsyncExitStack() as stack:
            envs = await stack.enter_async_context(self._envs)
            slots = SessionSlots(envs)
            stack.push_async_callback(slots.aclose)
            host, port = self._address
            from agym.agents.serving.http import Endpoints

            registry = None
            if self._with_metrics:
                registry = require("prometheus_client", "metrics").CollectorRegistry()
                stack.enter_context(envs_metrics(envs, registry))

            listening = bind(host, port)
            stack.callback(listening.close)
            endpoints = Endpoints(
                slots,
                self._limits,
                token=self.token,
                host=host,
                metadata=self._metadata(),
                registry=registry,
            )
            connections = slots.total + self._limits.connections
            allow_open_files(connections + OTHER_FILES)
            settings = ServerSettings(
                connections=connections,
                request_timeout=self._limits.request_timeout,
                message_bytes=self._limits.message_bytes,
                retry_after=lambda: slots.retry_after,
            )
            where, number, *_ = listening.getsockname()
            where = LOOPBACK.get(where, where)
            self.url = f"http://{f'[{where}]' if ':' in where else where}:{number}"
            web = WebServer(endpoints, listening, settings, extra="serve", log=HTTP_LOG)
            stack.push_async_callback(web.aclose)
            stack.push_async_callback(endpoints.close_sessions)
            self._endpoints = endpoints
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all sessions, the environments and the workers. Idempotent."""
        await self._stack.aclose()

    async def forever(self) -> None:
        """Wait until the caller's task is cancelled, as by Ctrl-C."""
        await asyncio.get_running_loop().create_future()

    @property
    def sessions(self) -> int:
        """Number of open sessions."""
        return len(self._started.sessions)

    def stats(self) -> ServerStats:
        """Return counts of what the server has done."""
        endpoints, stats = self._started, self._envs.stats()
        steps = sum(env.steps for env in stats.envs)
        return ServerStats(
            self.sessions, self._envs.num_envs, endpoints.served, endpoints.refused, steps
        )

    @property
    def _started(self) -> Endpoints:
        if self._endpoints is None:
            raise ClosedError("the server is not started: `async with agym.serve(...) as server:`")
        return self._endpoints

    def _metadata(self) -> dict[str, Any]:
        spec = self._envs.spec
        name = self._name if spec is None else spec.id
        version = str(spec.version) if spec is not None and spec.version is not None else None
        unknown = dict.fromkeys(("readme_content", "author", "documentation_url"))
        description = f"{name}, served by agym"
        return {"name": name, "description": description, "version": version, **unknown}


def _token(token: str | bool) -> str | None:
    if token is True:
        return secrets.token_urlsafe(24)
    if token is False:
        return None
    if not isinstance(token, str):
        raise UsageTypeError(f"token={token!r} must be a text, True for a random one, or False")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("token= must be letters, digits and signs of ASCII, without spaces")
    return token
