"""The client at a server of agym's own: environments behave as they would here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import httpx2
import numpy as np
import pytest
from gymnasium import spaces
from websockets.asyncio.client import connect

import agym
from agym.testing import assert_same
from tests.support.patience import deadline, patience


async def connected(server: Any, **options: Any) -> Callable[[], Any]:
    """The factory of a server's environments, asked for beside the loop on which it runs."""
    return await asyncio.to_thread(
        agym.openenv, server.url, token=server.token, timeout=patience(), **options
    )


class Pictures(gymnasium.Env[Any, Any]):
    """Pixels and a vector in a dict, from a seed."""

    observation_space = spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (24, 32, 3), np.uint8),
            "vector": spaces.Box(-np.inf, np.inf, (3,), np.float32),
        }
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {"seen": np.arange(3)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._look(), float(action.sum()), False, bool(self.np_random.random() < 0.1), {}

    def _look(self) -> Any:
        return {
            "pixels": self.np_random.integers(0, 256, (24, 32, 3), np.uint8),
            "vector": self.np_random.normal(size=3).astype(np.float32),
        }


@pytest.mark.once
@pytest.mark.parametrize("env", ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1", Pictures])
async def test_results_are_those_of_environments_here(env: Any) -> None:
    local = agym.make_async(env, 3, backend="serial")
    async with (
        agym.serve(env, 3) as server,
        local,
        agym.make_async(await connected(server), 3, backend="asyncio") as envs,
    ):
        assert envs.single_observation_space == local.single_observation_space
        assert envs.single_action_space == local.single_action_space
        assert_same(await envs.reset(seed=7), await local.reset(seed=7))
        local.action_space.seed(7)
        for _ in range(60):
            actions = local.action_space.sample()
            got, wanted = await envs.step(actions), await local.step(actions)
            assert_same(got[:4], wanted[:4])


class Talk:
    """Objects of all kinds, which have no space."""

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return "hello", {"options": options or {}}

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == "break":
            raise RuntimeError("the oven is cold")
        if action == "wait":
            await asyncio.sleep(3600)
        return action, 1.5, action == "end", False, {"cost": 2}

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "action", ["text", {"tool": "search", "query": ["a", 1, None, 2.5]}, ("a", b"bytes"), 7]
)
async def test_objects_come_back_as_they_are(action: Any) -> None:
    async with (
        agym.serve(Talk, 1) as server,
        agym.make_async(await connected(server), 1, backend="asyncio") as envs,
    ):
        observations, infos = await envs.reset(options={"level": 3})
        assert observations == ("hello",)
        assert infos[0]["options"] == {"level": 3}
        result = await envs.step([action])
        assert result.observations == (action,)
        assert result.infos[0]["cost"] == 2
        assert result.rewards.tolist() == [1.5]


async def test_the_callers_spaces_are_used_even_if_they_are_empty() -> None:
    empty = spaces.Dict()
    async with agym.serve(Talk, 1) as server:
        env = (await connected(server, observation_space=empty, action_space=empty))()
    assert (env.observation_space, env.action_space) == (empty, empty)


async def test_errors_and_ends_of_episodes() -> None:
    async with (
        agym.serve(Talk, 2) as server,
        agym.make_async(
            await connected(server), 2, backend="asyncio", autoreset="disabled"
        ) as envs,
    ):
        await envs.reset()
        with pytest.raises(agym.EnvError, match="the oven is cold") as caught:
            await envs.step(["break", "fine"])
        assert isinstance(caught.value.exception, agym.RemoteError)
        assert caught.value.exception.code == "EXECUTION_ERROR"
        await envs.reset()
        assert (await envs.step(["end", "go on"])).terminated.tolist() == [True, False]


async def test_a_timeout_is_a_new_session() -> None:
    async with agym.serve(Talk, 4) as server:
        factory = await asyncio.to_thread(
            agym.openenv, server.url, token=server.token, timeout=deadline(0.2)
        )
        async with agym.make_async(factory, 2, backend="asyncio", on_fault="restart") as envs:
            await envs.reset()
            result = await envs.step(["wait", "a"])
            assert result.truncated.tolist() == [True, False]
            assert result.observations[1] == "a"
            for word in ("b", "c"):
                result = await envs.step([word, word])
            assert list(result.observations) == ["c", "c"]


async def test_an_idle_session_is_opened_anew() -> None:
    limits = agym.ServerLimits(idle_timeout=deadline(0.1))
    async with (
        agym.serve(Talk, 1, limits=limits) as server,
        agym.make_async(await connected(server), 1, backend="asyncio") as envs,
    ):
        await envs.reset()
        async with asyncio.timeout(patience()):
            while server.sessions:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (await envs.reset())[0] == ("hello",)
        assert server.stats().served == 2


async def test_a_full_server_is_waited_for() -> None:
    async with agym.serve(Talk, 1) as server:
        first, second = [(await connected(server, connect_timeout=patience()))() for _ in "ab"]
        await first.reset()
        waiting = asyncio.ensure_future(second.reset())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await first.close()
        assert (await waiting)[0] == "hello"
        await second.close()
        assert server.stats().refused >= 1


class Infinite(gymnasium.Env[Any, Any]):
    """Has neither bounds nor, sometimes, a number."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([np.nan, np.inf, -np.inf], np.float32), {"limit": -np.inf}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
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


async def test_nan_and_infinity_are_sent_as_json() -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    read = partial(json.loads, parse_constant=refuse)
    async with (
        agym.serve(Infinite, 1, token=False) as server,
        httpx2.AsyncClient() as client,
    ):
        async with connect(server.url.replace("http:", "ws:") + "/ws") as socket:
            await socket.send(json.dumps({"type": "reset", "data": {}}))
            over_websocket = read(await socket.recv())["data"]
        over_http = read((await client.post(f"{server.url}/reset", json={})).text)
    assert over_http == over_websocket
    assert over_http["observation"] == {"value": ["NaN", "Infinity", "-Infinity"]}


@pytest.mark.parametrize("env", ["CartPole-v1", "Blackjack-v1", Pictures, Talk])
async def test_single_requests_over_http(env: Any) -> None:
    async with (
        agym.serve(env, 2) as server,
        agym.make_async(
            await connected(server, protocol="http"), 2, backend="asyncio", autoreset="disabled"
        ) as envs,
    ):
        observations, _ = await envs.reset(seed=3)
        if env is Talk:
            assert list(observations) == ["hello", "hello"]
            assert list((await envs.step(["a", "b"])).observations) == ["a", "b"]
        else:
            async with agym.make_async(env, 2, backend="serial") as local:
                assert_same(observations, (await local.reset(seed=3))[0])
                result = await envs.step(local.action_space.sample())
                for row in range(2):
                    one = envs.single_observation_space
                    assert one.contains(_row(result.observations, row))


def _row(batch: Any, row: int) -> Any:
    if isinstance(batch, dict):
        return {key: _row(part, row) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_row(part, row) for part in batch)
    return batch[row]


async def test_a_call_on_the_servers_own_loop_says_what_to_do() -> None:
    async with agym.serve(Talk, 1) as server:
        with pytest.raises(agym.RemoteError, match=r"asyncio\.to_thread"):
            agym.openenv(server.url, token=server.token, connect_timeout=0.1)
