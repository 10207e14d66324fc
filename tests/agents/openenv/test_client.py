"""``agym.openenv``: environments of a server as those of agym, whatever they observe."""

from __future__ import annotations

import asyncio
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydantic
import pytest
from gymnasium import spaces

import agym
from agym.agents.openenv.client import openenv
from tests.agents.openenv.scripted_server import ScriptedServer


def actions(*values: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"value": value, **fields} for value in values]


BACKENDS: list[dict[str, Any]] = [
    {"backend": "asyncio"},
    {"backend": agym.backends.Process(workers=2, start_method="fork")},
]


@pytest.mark.parametrize("options", BACKENDS, ids=["asyncio", "process"])
async def test_each_environment_has_a_session(
    server: ScriptedServer, options: dict[str, Any]
) -> None:
    async with agym.make_async(openenv(server.url), 3, **options) as envs:
        observations, infos = await envs.reset(seed=5)
        assert [observation["value"] for observation in observations] == [5, 6, 7]
        assert [info["steps"] for info in infos] == [0, 0, 0]
        for round_ in range(1, 4):
            result = await envs.step(actions(round_, 20, 30))
            assert [each["text"] for each in result.observations] == [f"<{round_}>", "<20>", "<30>"]
            assert result.rewards.tolist() == [round_, 20.0, 30.0]
        assert await envs.call("state") == [{"step_count": 3}] * 3
        assert server.opened == server.open == 3
    assert server.questions[-1] == {"type": "close"}


def test_serves_scripts_without_a_loop(server: ScriptedServer) -> None:
    with agym.make(openenv(server.url), 2) as envs:
        envs.reset(seed=1)
        assert envs.step(actions(4, 5)).rewards == [4.0, 5.0]


async def test_options_of_a_reset_are_sent(server: ScriptedServer) -> None:
    async with agym.make_async(openenv(server.url), 1, backend="asyncio") as envs:
        await envs.reset(options={"episode_id": "e7"})
        assert server.questions == [{"type": "reset", "data": {"episode_id": "e7"}}]


async def test_the_end_of_an_episode(server: ScriptedServer) -> None:
    async with agym.make_async(
        openenv(server.url), 4, backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        result = await envs.step(
            [
                {"value": 1},
                {"value": 1, "done": True},
                {"value": 1, "done": True, "metadata": {"truncated": True}},
                {"value": 1, "metadata": {"TimeLimit.truncated": True}},
            ]
        )
        assert result.terminated.tolist() == [False, True, False, False]
        assert result.truncated.tolist() == [False, False, True, True]


class Seen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    value: int
    text: str
    pixels: list[list[int]]
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] = {}


@dataclass
class Noted:
    value: int
    text: str
    pixels: list[list[int]]


class Asked(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    value: int


@dataclass
class Wanted:
    value: int


@pytest.mark.parametrize("given", [{"value": 3}, "typed"])
@pytest.mark.parametrize("kind", [Asked, Wanted])
async def test_typed_observations_and_actions(
    server: ScriptedServer, kind: Any, given: Any
) -> None:
    action = kind(value=3) if given == "typed" else given
    seen: dict[Any, Any] = {
        Seen: Seen(value=3, text="<3>", pixels=[[3, 1], [2, 3]], reward=3, metadata={"steps": 1}),
        Noted: Noted(3, "<3>", [[3, 1], [2, 3]]),
    }
    for observation, wanted in seen.items():
        factory = openenv(server.url, observation=observation, action=kind)
        async with agym.make_async(factory, 1, backend="asyncio") as envs:
            await envs.reset()
            assert (await envs.step([action])).observations == (wanted,)


async def test_one_field_as_observation_and_action(server: ScriptedServer) -> None:
    factory = openenv(server.url, observation="text", action="value")
    async with agym.make_async(factory, 2, backend="asyncio") as envs:
        observations, _ = await envs.reset(seed=1)
        assert list(observations) == ["<1>", "<2>"]
        assert list((await envs.step([np.int64(8), 9])).observations) == ["<8>", "<9>"]


@pytest.mark.parametrize("options", BACKENDS, ids=["asyncio", "process"])
async def test_pixels_are_arrays_of_the_space(
    server: ScriptedServer, options: dict[str, Any]
) -> None:
    space = spaces.Box(0, 255, (2, 2), np.uint8)
    factory = openenv(server.url, observation="pixels", action="value", observation_space=space)
    async with agym.make_async(factory, 2, **options) as envs:
        assert envs.single_observation_space == space
        await envs.reset()
        observations = (await envs.step([7, 8])).observations
        assert observations.dtype == np.uint8
        assert observations.tolist() == [[[7, 1], [2, 3]], [[8, 1], [2, 3]]]


async def test_dicts_with_arrays(server: ScriptedServer) -> None:
    space = spaces.Dict(
        {"value": spaces.Discrete(100), "pixels": spaces.Box(0, 255, (2, 2), np.uint8)}
    )
    factory = openenv(server.url, observation_space=space)
    async with agym.make_async(factory, 2, backend="asyncio") as envs:
        await envs.reset()
        observations = (await envs.step(actions(7, 8))).observations
        assert observations["value"].tolist() == [7, 8]
        assert observations["pixels"].dtype == np.uint8


async def test_functions_as_observation_and_action(server: ScriptedServer) -> None:
    factory = openenv(
        server.url,
        observation=lambda fields: np.asarray(fields["pixels"], np.float32).sum(),
        action=lambda number: {"value": number * 10},
    )
    async with agym.make_async(factory, 1, backend="asyncio") as envs:
        await envs.reset()
        assert (await envs.step([4])).observations == (np.float32(46.0),)


async def test_one_coroutine_per_environment(server: ScriptedServer) -> None:
    async def play(env: Any, number: int) -> list[float]:
        await env.reset()
        return [(await env.step({"value": number * 100 + k}))[1] for k in range(20)]

    async with agym.make_async(openenv(server.url), 16, backend="asyncio") as envs:
        played = await asyncio.gather(*(play(envs[i], i) for i in range(16)))
    assert played == [[i * 100.0 + k for k in range(20)] for i in range(16)]


@pytest.mark.parametrize("what", ["fragments", "ping"])
async def test_what_the_websocket_protocol_allows(server: ScriptedServer, what: str) -> None:
    async with agym.make_async(openenv(server.url), 1, backend="asyncio") as envs:
        await envs.reset()
        for value in (1, 2):
            assert (await envs.step(actions(value, do=what))).rewards.tolist() == [value]


def test_token_and_headers_are_sent() -> None:
    with ScriptedServer(token="secret") as server:
        factory = openenv(server.url, token="secret", headers={"X-Team": "blue"})
        with agym.make(factory, 1) as envs:
            envs.reset()
        assert server.headers["authorization"] == "Bearer secret"
        assert server.headers["x-team"] == "blue"


def test_a_factory_can_be_pickled(server: ScriptedServer) -> None:
    factory = pickle.loads(pickle.dumps(openenv(server.url, observation=Seen, action="value")))
    with agym.make(factory, 1) as envs:
        assert envs.reset(seed=2)[0][0].value == 2


def test_a_server_without_a_schema_is_taken() -> None:
    with ScriptedServer(schema=None) as server, agym.make(openenv(server.url), 1) as envs:
        assert envs.reset(seed=2)[0][0]["value"] == 2


@pytest.mark.parametrize("wrong", ["ws", "path/ws", ""])
def test_addresses_that_are_the_same(server: ScriptedServer, wrong: str) -> None:
    urls = {
        "ws": f"ws://127.0.0.1:{server.port}",
        "path/ws": f"{server.url}/ws",
        "": server.url + "/",
    }
    with agym.make(openenv(urls[wrong]), 1) as envs:
        envs.reset()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"url": "127.0.0.1:8000"}, "url='127.0.0.1:8000' must be the address"),
        ({"url": "ftp://somewhere"}, "must be the address"),
        ({"url": 8000}, "url=8000 must be the address"),
        ({"url": "http://host:99999"}, "no valid port"),
        ({"url": "http://host?token=3"}, "pass token="),
        ({"protocol": "smoke"}, "protocol='smoke' must be 'websocket' or 'http'"),
        ({"timeout": 0}, "timeout=0 must be a positive number"),
        ({"timeout": "soon"}, "timeout='soon' must be seconds"),
        ({"connect_timeout": float("inf")}, "connect_timeout=inf must be"),
        ({"max_sessions": 0}, "max_sessions=0 must be at least 1"),
        ({"max_size": 0}, "max_size=0 must be"),
        ({"observation": 3}, "observation=3 must be a pydantic model"),
        ({"action": [1]}, r"action=\[1\] must be a pydantic model"),
        ({"observation_space": 3}, "observation_space=3 must be a space"),
        ({"token": "two\nlines"}, "token must be printable"),
        ({"headers": {"X": "é"}}, r"headers\['X'\] must be printable"),
    ],
)
def test_arguments_that_cannot_work(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(agym.UsageError, match=says):
        openenv(**{"url": "http://127.0.0.1:1", **arguments})


@pytest.mark.parametrize("package", ["websockets", "httpx2"])
def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(agym.MissingExtraError, match=r"pip install .*\[openenv\]"):
        openenv("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("typed", "action", "says"),
    [
        ({}, 3, "an action must be a dict, a dataclass or a pydantic model, not int"),
        ({}, {"value": object()}, "object has no form in JSON"),
        ({"action": Asked}, {"valeu": 3}, "is no Asked"),
        ({"action": Wanted}, {"valeu": 3}, "is no Wanted"),
        ({"action": Asked}, 3, "must be a Asked"),
        ({"observation": "txt"}, {"value": 3}, "names no field of the server's observations"),
        ({"observation": Asked}, {"value": 3}, "observation=Asked cannot be made"),
    ],
)
async def test_what_does_not_fit_the_types(
    server: ScriptedServer, typed: dict[str, Any], action: Any, says: str
) -> None:
    async with agym.make_async(openenv(server.url, **typed), 1, backend="asyncio") as envs:
        with pytest.raises(agym.EnvError, match=says):  # noqa: PT012
            await envs.reset()
            await envs.step([action])


async def test_closing_ends_what_is_in_flight(server: ScriptedServer) -> None:
    async with agym.make_async(openenv(server.url), 2, backend="asyncio") as envs:
        await envs.reset()
        envs.send(actions(1, 2, do="wait"))
    assert server.no_session()
