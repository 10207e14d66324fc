"""``agym serve``: serve environments to OpenEnv clients and ``agym.openenv``.

Examples:
agym serve CartPole-v1 -n 256

agym serve ALE/Pong-v5 -n 64 --backend process --timeout 30

agym serve CartPole-v1 -n 256 --metrics

agym serve my_envs:Browser-v0 -n 32 --host 0.0.0.0 --port 8000 --token SECRET
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from agym.agents.serving.limits import ServerLimits
from agym.agents.serving.serve import LOOPBACK, Server, serve
from agym.agents.serving.slots import LOG
from agym.api.options.environments import find_spec
from agym.api.run import run
from agym.cli.console import console
from agym.cli.options import Backend, EnvId, NumEnvs, Port, Workers, flag, number
from agym.errors import UsageError

# The client that has these arguments; openenv-core 0.3 has no `headers=`.
OPENENV = 'pip install "openenv>=0.10"'
# How often the live line is drawn, per second.
REFRESHES = 2


def command(
    env: EnvId,
    num_envs: NumEnvs = 16,
    port: Port = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="AGYM_SERVE_TOKEN", help="Token that clients must send.", show_default="random"
        ),
    ] = None,
    no_token: Annotated[bool, flag("--no-token", "Accept clients without a token.")] = False,
    backend: Backend = "auto",
    workers: Workers = None,
    timeout: Annotated[
        float | None, number("Seconds that a reset or step may take.", "no limit")
    ] = None,
    idle: Annotated[
        float, number("Seconds after which an idle session ends; 0 for never.", min=0)
    ] = 300,
    metrics: Annotated[
        bool, flag("--metrics", "Answer Prometheus at /metrics (extra: metrics).")
    ] = False,
) -> None:
    """Serve environments by OpenEnv's protocol, one per session.

    Ctrl-C stops the server.
    """
    if token is not None and no_token:
        raise UsageError("--token and --no-token can't be used together")
    find_spec(env)
    server = serve(
        env, num_envs, port=port, host=host, token=not no_token if token is None else token,
        limits=ServerLimits(idle_timeout=idle or None), backend=backend, workers=workers,
        timeout=timeout, metrics=metrics,
    )  # fmt: skip
    run(show(server, host))


async def show(server: Server, host: str) -> None:
    """Serve until Ctrl-C, or SIGTERM, which stops a container."""
    ended = asyncio.Event()
    with suppress(NotImplementedError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    screen = console()
    async with server:
        screen.print(welcome(server, host), soft_wrap=True, highlight=False)
        with faults_printed(screen):
            if screen.is_terminal:
                await draw(server, screen, ended)
            else:
                await ended.wait()


class Printer(logging.Handler):
    """Prints records on a console, above its live line."""

    def __init__(self, screen: Console) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.print(self.format(record), soft_wrap=True, highlight=False)


@contextmanager
def faults_printed(screen: Console) -> Iterator[None]:
    """Print what the server logs of its environments, without the warnings of malformed requests.

    A thread prints it, so that a blocked terminal (Ctrl-S) does not block sessions.
    """
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(records)
    handler.addFilter(lambda record: record.name == LOG.name)
    listener = QueueListener(records, Printer(screen))
    LOG.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        listener.stop()


async def draw(server: Server, screen: Console, ended: asyncio.Event) -> None:
    """Show the live line.

    The statistics are read on the event loop, where the environments run. Rich's thread draws, so
    that a blocked terminal (Ctrl-S) does not block sessions.
    """
    text = line(server)
    with Live(get_renderable=lambda: text, console=screen, transient=True,
              refresh_per_second=REFRESHES):  # fmt: skip
        while not ended.is_set():
            text = line(server)
            with suppress(TimeoutError):
                async with asyncio.timeout(1 / REFRESHES):
                    await ended.wait()


def welcome(server: Server, host: str) -> str:
    """Return how to connect to a server that listens on ``host``."""
    token = server.token
    lines = [
        f"serving {server.url}   sessions at {server.url.replace('http', 'ws', 1)}/ws",
        f"token   {token}" if token else "no token: anyone who can reach this address can connect",
        "",
        f"agym    agym.openenv({server.url!r}{f', token={token!r}' if token else ''})",
    ]
    if host in LOOPBACK:
        lines.insert(1, "on all addresses; on other machines, replace the host by this one's name")
    headers = f', headers={{"Authorization": "Bearer {token}"}}' if token else ""
    lines += [
        f'OpenEnv GenericEnvClient(base_url="{server.url}"{headers})  # {OPENENV}',
        "",
        "Press Ctrl-C to stop.",
    ]
    return "\n".join(lines)


def line(server: Server) -> Text:
    """Return the server's statistics in one line."""
    stats = server.stats()
    return Text(
        f"{stats.sessions:,} of {stats.num_envs:,} sessions, {stats.served:,} so far,"
        f" {stats.refused:,} refused, {stats.steps:,} steps"
    )
