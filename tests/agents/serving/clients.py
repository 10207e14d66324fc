"""A client for tests of the server, and environments that do as they are told."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import gymnasium
import httpx2
import numpy as np
from gymnasium import spaces
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

import agym
from agym.agents.openenv.wire import BINARY, decode, encode
from agym.agents.serving.serve import Server
from agym.testing.scripted import Mute
from tests.support.patience import patience

COUNT, RAISE, DIE, HANG, END = range(5)


class Told(gymnasium.Env[Any, Any]):
    """Counts its steps; an action may be to raise, die, hang or end."""

    observation_space = spaces.Box(0, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(5)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {"pid": os.getpid(), "options": options, "seed": seed}

    def observe(self) -> Any:
        return np.array([self.steps, 0.5], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if action == RAISE:
            raise RuntimeError("as it was told")
        if action == DIE:
            os._exit(7)
        if action == HANG:
            time.sleep(3600)
        return self.observe(), float(self.steps), action == END, False, {"pid": os.getpid()}


class Parrot:
    """A coroutine environment of texts; it waits when it is told to."""

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"said": ""}, {}

    async def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(action.get("wait", 0))
        # Objects without a form in JSON; the text of one raises.
        info = {"mute": Mute(), "pair": np.ones(2, complex)}
        return {"said": action["say"]}, 1.0, False, False, info

    async def close(self) -> None:
        pass


class Client:
    """One session over websockets' client."""

    def __init__(self, socket: ClientConnection, *, binary: bool) -> None:
        self.socket = socket
        self.binary = binary

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(patience(10)):
            return decode(await self.socket.recv())

    async def ask(self, kind: str, data: Any = None) -> dict[str, Any]:
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        await self.socket.send(encode(message, binary=self.binary))
        return await self.receive()

    async def reset(self, **data: Any) -> dict[str, Any]:
        return result_of(await self.ask("reset", data))

    async def step(self, action: Any) -> dict[str, Any]:
        return result_of(await self.ask("step", action if self.binary else {"value": action}))

    async def code(self, kind: str, data: Any = None) -> str:
        """Ask what is answered by an error; return its code."""
        return code_of(await self.ask(kind, data))


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["type"] == "observation", answer
    data: dict[str, Any] = answer["data"]
    return data


def code_of(answer: dict[str, Any]) -> str:
    assert answer["type"] == "error", answer
    return str(answer["data"]["code"])


def sessions_of(server: Server) -> str:
    return f"{server.url.replace('http', 'ws', 1)}/ws"


def headers_of(server: Server) -> dict[str, str]:
    return {} if server.token is None else {"Authorization": f"Bearer {server.token}"}


@asynccontextmanager
async def session(server: Server, *, binary: bool = False) -> AsyncIterator[Client]:
    async with connect(
        sessions_of(server), additional_headers=headers_of(server),
        subprotocols=[BINARY] if binary else None, proxy=None,  # type: ignore[list-item]
        open_timeout=patience(10), close_timeout=patience(1),
    ) as socket:  # fmt: skip
        yield Client(socket, binary=binary)


@asynccontextmanager
async def playing(
    env: Any = Told, num_envs: int = 1, *, binary: bool = False, **options: Any
) -> AsyncIterator[tuple[Server, Client]]:
    """Serve environments, and open a session whose first episode has started."""
    backend = "asyncio" if inspect.iscoroutinefunction(env.step) else "thread"
    async with (
        agym.serve(env, num_envs, **{"backend": backend, **options}) as server,
        session(server, binary=binary) as client,
    ):
        await client.reset()
        yield server, client


async def until_a_place_is_free(server: Server) -> None:
    """Come again as long as the server is full."""
    async with asyncio.timeout(patience(20)):
        while True:
            with suppress(ConnectionClosed):
                async with session(server) as again:
                    if (await again.ask("reset", {}))["type"] == "observation":
                        return
            await asyncio.sleep(0.02)


async def settled(server: Server) -> None:
    """Wait until no session is open."""
    async with asyncio.timeout(patience(5)):
        while server.sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def still_serves(server: Server) -> None:
    """Check that a server whose sessions have ended serves others."""
    await settled(server)
    async with session(server) as client:
        await client.reset()
        await client.step(COUNT)


async def request(
    server: Any, method: str, path: str, content: Any = None, **headers: str
) -> tuple[int, Any, Any]:
    async with httpx2.AsyncClient(trust_env=False, timeout=patience(10)) as client:
        response = await client.request(
            method, server.url + path, json=content, headers={**headers_of(server), **headers}
        )
    return response.status_code, response.headers, response.json()
