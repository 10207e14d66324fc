"""The client at a server of agym's own: environments behave as local ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing import assert_same
from tests.support.envs.coroutine_envs import Parrot
from tests.support.envs.plain_envs import Nested, Tally
from tests.support.patience import patience


async def connected(server: Any, **options: Any) -> Callable[[], Any]:
    """Return the factory of a server's environments; the server's loop runs in this thread."""
    return await asyncio.to_thread(
        agym.openenv, server.url, token=server.token, timeout=patience(), **options
    )


@pytest.mark.once
@pytest.mark.parametrize("env", ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1", Nested, Tally])
async def test_results_are_those_of_local_environments(env: Any) -> None:
    local = agym.make_async(env, 3, backend="serial")
    async with (
        agym.serve(env, 3) as server,
        local,
        agym.make_async(await connected(server), 3, backend="asyncio") as envs,
    ):
        assert envs.single_observation_space == local.single_observation_space
        assert envs.single_action_space == local.single_action_space
        start: Any = {"seed": 7, "options": {"length": 9}}
        assert_same(await envs.reset(**start), await local.reset(**start))
        local.action_space.seed(7)
        for _ in range(60):
            actions = local.action_space.sample()
            got, wanted = await envs.step(actions), await local.step(actions)
            assert_same(got[:4], wanted[:4])


@pytest.mark.parametrize(
    "action", ["text", {"tool": "search", "query": ["a", 1, None, 2.5]}, ("a", b"bytes"), "bye"]
)
async def test_objects_come_back_as_they_are(action: Any) -> None:
    async with (
        agym.serve(Parrot, 1) as server,
        agym.make_async(await connected(server), 1, backend="asyncio") as envs,
    ):
        observations, infos = await envs.reset(options={"words": ["hello"]})
        assert observations == ("",)
        assert infos[0]["options"] == {"words": ["hello"]}
        result = await envs.step([action])
        assert (result.observations, result.infos[0]["heard"]) == ((action,), action)
        assert (result.rewards.tolist(), result.terminated.tolist()) == ([0.5], [action == "bye"])


async def test_the_callers_spaces_are_used_even_if_they_are_empty() -> None:
    empty = spaces.Dict()
    async with agym.serve(Parrot, 1) as server:
        env = (await connected(server, observation_space=empty, action_space=empty))()
    assert (env.observation_space, env.action_space) == (empty, empty)


class Infinite(gymnasium.Env[Any, Any]):
    """Has neither bounds nor, sometimes, a number."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.array([np.nan, np.inf, -np.inf], np.float32), {"limit": -np.inf}

    def step(self, action: Any) -> Any:
        return np.array([action[0], 1, np.nan], np.float32), -np.inf, False, False, {"x": np.nan}


@pytest.mark.parametrize("protocol", ["http", "websocket"])
async def test_nan_and_infinity_are_numbers_in_observations_and_rewards(protocol: str) -> None:
    """Over HTTP, which is JSON, infos have them as text."""
    async with (
        agym.serve(Infinite, 1) as server,
        agym.make_async(await connected(server, protocol=protocol), 1, backend="asyncio") as envs,
    ):
        observations, infos = await envs.reset()
        np.testing.assert_equal(observations, np.array([[np.nan, np.inf, -np.inf]], np.float32))
        assert infos[0]["limit"] == ("-Infinity" if protocol == "http" else -np.inf)
        result = await envs.step([np.array([np.inf])])
        np.testing.assert_equal(result.observations, np.array([[np.inf, 1, np.nan]], np.float32))
        assert result.rewards[0] == -np.inf


@pytest.mark.parametrize("env", ["CartPole-v1", "Blackjack-v1", Nested, Parrot])
async def test_single_requests_over_http(env: Any) -> None:
    """Each request has an environment for itself, so a step is that of an unseeded episode."""
    options: Any = {"autoreset": "disabled", "output": "list"}
    async with (
        agym.serve(env, 2) as server,
        agym.make_async(await connected(server, protocol="http"), 2, **options) as envs,
        agym.make_async(env, 2, **options) as local,
    ):
        assert_same((await envs.reset(seed=3))[0], (await local.reset(seed=3))[0])
        actions = ["a", "b"] if env is Parrot else list(local.action_space.sample())
        for action, observation in zip(actions, (await envs.step(actions))[0], strict=True):
            assert envs.single_observation_space.contains(observation)
            assert env is not Parrot or observation == action


async def test_a_call_on_the_servers_own_loop_says_what_to_do() -> None:
    async with agym.serve(Parrot, 1) as server:
        with pytest.raises(agym.RemoteError, match=r"asyncio\.to_thread"):
            agym.openenv(server.url, token=server.token, connect_timeout=0.1)
