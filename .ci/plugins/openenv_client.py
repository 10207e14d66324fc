"""A pytest plugin: OpenEnv's own tests of its clients, with agym's; see .ci/openenv_suite.

agym's environments stand behind the names and calls of the released clients. The tests of several
sessions at once, which OpenEnv skips, are run.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pytest
from envs.connect4_env import client as connect4_client
from envs.connect4_env.models import Connect4Action, Connect4Observation
from envs.echo_env import client as echo_client
from openenv.core.client_types import StepResult
from openenv.core.env_server.types import State

import agym


class Client:
    """One environment of agym's, called as the released clients are without an event loop."""

    types: ClassVar[dict[str, Any]] = {}

    def __init__(self, base_url: str) -> None:
        factory = agym.openenv(base_url, timeout=30, **self.types)
        self._envs = agym.make(factory, 1, autoreset="disabled")

    def sync(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._envs.close()

    def reset(self, seed: int | None = None, **options: Any) -> StepResult[Any]:
        observations, infos = self._envs.reset(seed=seed, options=options or None)
        return StepResult(observation=observations[0], metadata=infos[0])

    def step(self, action: Any) -> StepResult[Any]:
        observations, rewards, terminated, truncated, infos = self._envs.step([action])
        done = terminated[0] or truncated[0]
        return StepResult(observations[0], rewards[0], done, infos[0])

    def state(self) -> State:
        return State(**self._envs.call("state")[0])


class EchoEnv(Client):
    """The client of tools that echo."""

    def call_tool(self, name: str, **arguments: Any) -> Any:
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        observation = self.step(action).observation
        assert observation["error"] is None, observation
        return observation["result"]["data"]


class Connect4Env(Client):
    """The client of a game with typed observations and actions."""

    types: ClassVar[dict[str, Any]] = {"observation": Connect4Observation, "action": Connect4Action}


def pytest_configure() -> None:
    echo_client.EchoEnv = EchoEnv
    connect4_client.Connect4Env = Connect4Env


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]
