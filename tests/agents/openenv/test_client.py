"""``agym.openenv``: environments of a server as those of agym, whatever they observe."""

from __future__ import annotations

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
from agym.testing import assert_same
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
        observations, infos = await envs.reset(seed=5, options={"episode_id": "e7"})
        assert [observation["value"] for observation in observations] == [5, 6, 7]
        assert [info["steps"] for info in infos] == [0, 0, 0]
        assert {"type": "reset", "data": {"seed": 5, "episode_id": "e7"}} in server.questions
        for round_ in range(1, 4):
            result = await envs.step(actions(round_, 20, 30))
            assert [each["text"] for each in result.observations] == [f"<{round_}>", "<20>", "<30>"]
            assert result.rewards.tolist() == [round_, 20.0, 30.0]
        assert await envs.call("state") == [{"step_count": 3}] * 3
        assert server.opened == server.open == 3
    server.no_session()
    assert server.questions[-1] == {"type": "close"}


async def test_the_end_of_an_episode(server: ScriptedServer) -> None:
    async with agym.make_async(
        openenv(server.url), 4, backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        cut = {"metadata": {"truncated": True}}
        cut_by_wrapper = {"metadata": {"TimeLimit.truncated": True}}
        ends: list[dict[str, Any]] = [{}, {"done": True}, {"done": True, **cut}, cut_by_wrapper]
        result = await envs.step([{"value": 1, **end} for end in ends])
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


@pytest.mark.parametrize(
    ("kind", "action"),
    [(Asked, Asked(value=3)), (Asked, {"value": 3}), (Wanted, Wanted(3)), (Wanted, {"value": 3})],
    ids=repr,
)
@pytest.mark.parametrize(
    "wanted",
    [
        Seen(value=3, text="<3>", pixels=[[3, 1], [2, 3]], reward=3, metadata={"steps": 1}),
        Noted(3, "<3>", [[3, 1], [2, 3]]),
    ],
    ids=["pydantic", "dataclass"],
)
async def test_typed_observations_and_actions(
    server: ScriptedServer, kind: Any, action: Any, wanted: Any
) -> None:
    factory = openenv(server.url, observation=type(wanted), action=kind)
    async with agym.make_async(pickle.loads(pickle.dumps(factory)), 1, backend="asyncio") as envs:
        await envs.reset()
        assert (await envs.step([action])).observations == (wanted,)


BOX = spaces.Box(0, 255, (2, 2), np.uint8)
DICT = spaces.Dict(value=spaces.Discrete(100), pixels=BOX)
PIXELS = np.array([[[7, 1], [2, 3]], [[8, 1], [2, 3]]], np.uint8)


@pytest.mark.parametrize("options", BACKENDS, ids=["asyncio", "process"])
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"observation": "text"}, ("<7>", "<8>")),
        (
            {"observation": lambda fields: fields["value"] * 10, "action": lambda n: {"value": n}},
            (70, 80),
        ),
        ({"observation": "pixels", "observation_space": BOX}, PIXELS),
        ({"observation_space": DICT}, {"pixels": PIXELS, "value": np.array([7, 8])}),
    ],
    ids=["field", "functions", "array", "dict"],
)
async def test_observations_and_actions_have_the_form_that_the_caller_names(
    server: ScriptedServer, options: dict[str, Any], typed: dict[str, Any], expected: Any
) -> None:
    async with agym.make_async(
        openenv(server.url, **{"action": "value", **typed}), 2, **options
    ) as envs:
        if "observation_space" in typed:
            assert envs.single_observation_space == typed["observation_space"]
        await envs.reset()
        assert_same((await envs.step([np.int64(7), 8])).observations, expected)


@pytest.mark.parametrize("what", ["fragments", "ping"])
async def test_fragments_and_pings_of_the_server_are_understood(
    server: ScriptedServer, what: str
) -> None:
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


def test_a_server_without_a_schema_is_taken() -> None:
    with ScriptedServer(schema=None) as server, agym.make(openenv(server.url), 1) as envs:
        assert envs.reset(seed=2)[0][0]["value"] == 2


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:{}", "http://127.0.0.1:{}/ws", "http://127.0.0.1:{}/"]
)
def test_addresses_that_are_the_same(server: ScriptedServer, url: str) -> None:
    with agym.make(openenv(url.format(server.port)), 1) as envs:
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
    server.no_session()
