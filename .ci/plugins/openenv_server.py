"""A pytest plugin: OpenEnv's own tests of its servers, with agym's; see .ci/openenv_suite.

Where a test starts uvicorn with one of OpenEnv's applications, agym's server starts with the same
environment, as a coroutine environment. The clients are the released ones, but that of tools, which
speaks MCP by HTTP and has no other mode: the released generic client takes its place, and calls
tools by steps. The tests of several sessions at once, which OpenEnv skips, are run::

    python -m openenv_server MODULE PORT    serves an environment, as the tests' uvicorn does
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest
from envs.echo_env import client as echo_client
from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.env_server.serialization import deserialize_action, serialize_observation
from openenv.core.env_server.types import State
from openenv.core.generic_client import GenericEnvClient

SESSIONS = 10


class Adapted:
    """An environment of OpenEnv's as a coroutine environment."""

    def __init__(self, env: Any, action: type[Any]) -> None:
        self._env = env
        self._action = action

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        given = {**(options or {}), **({} if seed is None else {"seed": seed})}
        data = serialize_observation(self._env.reset(**given))  # not all take a seed
        return data["observation"], {}

    async def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        observation = await self._env.step_async(deserialize_action(action, self._action))
        data = serialize_observation(observation)
        return data["observation"], float(data["reward"] or 0), bool(data["done"]), False, {}

    async def close(self) -> None:
        self._env.close()


def echo() -> Adapted:
    from envs.echo_env.server.echo_environment import EchoEnvironment

    return Adapted(EchoEnvironment(), CallToolAction)


def connect4() -> Adapted:
    from envs.connect4_env.models import Connect4Action
    from envs.connect4_env.server.connect4_environment import Connect4Environment

    return Adapted(Connect4Environment(), Connect4Action)


FACTORIES = {"envs.echo_env.server.app": echo, "envs.connect4_env.server.app": connect4}


async def main(module: str, port: str) -> None:
    import agym

    async with agym.serve(FACTORIES[module], SESSIONS, port=int(port), token=False) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await server.forever()


class EchoEnv:
    """The released generic client, with a call for tools."""

    def __init__(self, base_url: str) -> None:
        self._client = GenericEnvClient(base_url=base_url).sync()

    def sync(self) -> Self:
        return self

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.__exit__(*error)

    def reset(self) -> Any:
        return self._client.reset()

    def state(self) -> State:
        return State(**self._client.state())

    def call_tool(self, name: str, **arguments: Any) -> Any:
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        observation = self._client.step(action).observation
        assert observation["error"] is None, observation
        return observation["result"]["data"]


@contextmanager
def run_server(module_path: str, port: int = 8000, **_: Any) -> Iterator[subprocess.Popen[str]]:
    """What takes the place of the tests' own function."""
    command = [sys.executable, "-m", "openenv_server", module_path, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the server did not start"
            yield process
        finally:
            process.kill()


def pytest_configure() -> None:
    echo_client.EchoEnv = EchoEnv


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]
        module: Any = item.getparent(pytest.Module)
        module.obj.run_server = run_server


if __name__ == "__main__":
    import agym

    agym.run(main(*sys.argv[1:]))
