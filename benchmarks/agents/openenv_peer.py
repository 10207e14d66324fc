"""OpenEnv's released server and client in the drill, run by a Python that has its package.

``python -m benchmarks.agents.openenv_peer serve SESSIONS`` prints its address,
``... drill URL SESSIONS GIVE_UP SEED`` what became of the questions, and ``... pace URL SESSIONS
STEPS`` what a step costs the client.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import logging
import os
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvicorn
from openenv.core import GenericEnvClient
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from benchmarks.agents.openenv_drill import PATIENCE, drill, pace, write_json, write_line

Result = TypeVar("Result")


class EchoAction(Action):  # type: ignore[misc]
    """What to say, and after how many seconds."""

    value: int
    delay: float = 0.0


class EchoObservation(Observation):  # type: ignore[misc]
    """What was said."""

    value: int


class Echo(Environment):  # type: ignore[misc]
    """Says what it is told, after a delay."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, **_: Any) -> EchoObservation:
        return EchoObservation(value=seed or 0)

    def step(self, action: EchoAction, **_: Any) -> EchoObservation:
        time.sleep(action.delay)
        return EchoObservation(value=action.value)

    @property
    def state(self) -> State:
        return State()


class Client:
    """The released client of one session."""

    def __init__(self, url: str, timeout: float = PATIENCE) -> None:
        self._client = GenericEnvClient(base_url=url, message_timeout_s=timeout)

    async def reset(self, value: int) -> int:
        return _value(await self._client.reset(seed=value))

    async def step(self, value: int, delay: float) -> int:
        return _value(await self._client.step({"value": value, "delay": delay}))

    async def close(self) -> None:
        await self._client.close()


def _value(result: Any) -> int:
    return int(result.observation["value"])


def serve(sessions: str) -> None:
    """Serve echoes until this process is ended."""
    app = create_fastapi_app(Echo, EchoAction, EchoObservation, max_concurrent_envs=int(sessions))
    listening = socket.create_server(("127.0.0.1", 0))
    write_line(f"http://127.0.0.1:{listening.getsockname()[1]}")
    config = uvicorn.Config(app, log_level="critical", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


def play(url: str, sessions: str, give_up: str, seed: str) -> None:
    """Run the drill."""
    write_json(_run(drill(lambda: Client(url), int(sessions), int(give_up), int(seed))))


def measure(url: str, sessions: str, steps: str) -> None:
    """Measure what a step costs."""
    write_json(_run(pace(lambda: Client(url, 60.0), int(sessions), int(steps))))


def _run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run on uvloop, as agym's client does, where it is installed."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    result: Result = uvloop.run(main)
    return result


def version() -> None:
    """Print the release."""
    for name in ("openenv", "openenv-core"):
        try:
            write_line(importlib.metadata.version(name))
            return
        except importlib.metadata.PackageNotFoundError:
            continue
    write_line("unknown")


if __name__ == "__main__":
    # What a server logs of clients that leave is no part of the drill.
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    what, *arguments = sys.argv[1:]
    if what == "version":
        version()
    elif what == "serve":
        serve(*arguments)
    elif what == "pace":
        measure(*arguments)
    else:
        play(*arguments)
