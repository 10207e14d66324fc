"""OpenEnv's released server of an echo environment, run by a Python that has it.

``python serving_peer.py KIND COUNT``, where an ``async`` environment is stepped on the event loop,
a ``sync`` one in a thread for each session, and a ``tool`` one calls a tool of MCP, as OpenEnv's
own echo environment does. It prints its address.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):  # type: ignore[misc]
    """What to say."""

    message: str


class EchoObservation(Observation):  # type: ignore[misc]
    """What was said."""

    message: str


class SyncEcho(Environment):  # type: ignore[misc]
    """Says what it is told."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, **_: Any) -> EchoObservation:
        self._state = State()
        return EchoObservation(message="", done=False, reward=None)

    def step(self, action: EchoAction, **_: Any) -> EchoObservation:
        self._state.step_count += 1
        return EchoObservation(message=action.message, done=False, reward=1.0)

    @property
    def state(self) -> State:
        return self._state


class AsyncEcho(SyncEcho):
    """The same, without threads."""

    async def reset_async(self, seed: int | None = None, **_: Any) -> EchoObservation:
        return self.reset(seed)

    async def step_async(self, action: EchoAction, **_: Any) -> EchoObservation:
        return self.step(action)


class ToolEcho(MCPEnvironment):  # type: ignore[misc]
    """Has a tool that says what it is told."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("echo")

        @tools.tool  # type: ignore[untyped-decorator]
        def echo(message: str) -> str:
            """Say the same."""
            return message

        super().__init__(tools)
        self._state = State()

    def reset(self, seed: int | None = None, **_: Any) -> Observation:
        self._state = State()
        return Observation(done=False, reward=0.0)

    def _step_impl(self, action: Action, **_: Any) -> Observation:
        raise ValueError(f"{action} calls no tool")

    @property
    def state(self) -> State:
        return self._state


ENVS = {
    "async": (AsyncEcho, EchoAction, EchoObservation),
    "sync": (SyncEcho, EchoAction, EchoObservation),
    "tool": (ToolEcho, CallToolAction, CallToolObservation),
}


def main(kind: str, count: str) -> None:
    """Serve until the process is ended."""
    if hasattr(os, "sched_setaffinity"):  # one core is the server's
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    app = create_fastapi_app(*ENVS[kind], max_concurrent_envs=int(count))
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
