"""The protocol of a server: its messages, endpoints, places, token; the command."""

from __future__ import annotations

import asyncio
import io
import logging
import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rich.console import Console
from websockets.exceptions import ConnectionClosed, InvalidStatus

import agym
from agym.agents.serving.serve import Server, ServerStats
from agym.cli.console import console
from agym.cli.serve import draw, faults_printed
from agym.errors import UsageError
from tests.agents.serving.clients import (
    COUNT,
    END,
    Parrot,
    Told,
    code_of,
    playing,
    request,
    session,
    still_serves,
)
from tests.support.patience import deadline, patience
from tests.support.viewers import started


async def test_a_session_plays_episodes() -> None:
    async with playing(num_envs=2) as (_, client):
        data = await client.reset(seed=3, episode_id="mine", options={"level": 2}, split="test")
        assert data["observation"] == {"value": [0.0, 0.5]}
        assert (data["reward"], data["done"]) == (None, False)
        info = data["metadata"]["info"]
        assert (info["seed"], info["options"]) == (3, {"level": 2, "split": "test"})
        data = await client.step(COUNT)
        assert data["observation"] == {"value": [1.0, 0.5]}
        assert (data["reward"], data["done"]) == (1.0, False)
        assert await client.ask("state") == {
            "type": "state", "data": {"episode_id": "mine", "step_count": 1},
        }  # fmt: skip
        data = await client.step(END)
        assert data["done"]
        assert data["metadata"]["terminated"]
        assert await client.code("step", {"value": COUNT}) == "EXECUTION_ERROR"
        await client.reset()
        assert (await client.ask("state"))["data"]["step_count"] == 0


async def test_coroutine_environments_take_and_give_objects() -> None:
    """What has no form in JSON is sent as its text, or as the name of its type."""
    async with playing(Parrot, 2) as (server, client):
        over_websocket = (await client.ask("step", {"say": "hello"}))["data"]
        _, _, over_http = await request(server, "POST", "/step", {"action": {"say": "hello"}})
        for data in (over_websocket, over_http):
            assert data["observation"] == {"said": "hello"}
            assert data["metadata"]["info"] == {"mute": "<Mute>", "pair": "[1.+0.j 1.+0.j]"}


async def test_sessions_step_at_the_same_time_and_apart() -> None:
    async with agym.serve(Parrot, 32) as server:

        async def play(number: int) -> None:
            async with session(server, binary=number % 2 == 0) as client:
                await client.reset()
                for step in range(20):
                    said = f"{number}-{step}"
                    answer = await client.ask("step", {"say": said, "wait": step % 3 / 1000})
                    assert answer["data"]["observation"] == {"said": said}

        await asyncio.gather(*[play(number) for number in range(32)])
        assert server.stats().steps == 32 * 20


@pytest.mark.parametrize(
    ("kind", "data", "code"),
    [
        ("step", {"value": COUNT}, "EXECUTION_ERROR"),  # no reset yet
        ("step", {"value": 9}, "VALIDATION_ERROR"),
        ("step", {"value": "left"}, "VALIDATION_ERROR"),
        ("step", {"value": True}, "VALIDATION_ERROR"),
        ("step", {"valu": 1}, "VALIDATION_ERROR"),
        ("step", [1], "VALIDATION_ERROR"),
        ("step", None, "VALIDATION_ERROR"),
        ("reset", {"seed": -1}, "VALIDATION_ERROR"),
        ("reset", {"seed": 2**63}, "VALIDATION_ERROR"),
        ("reset", {"seed": "one"}, "VALIDATION_ERROR"),
        ("reset", {"episode_id": "x" * 256}, "VALIDATION_ERROR"),
        ("reset", {"options": 3}, "VALIDATION_ERROR"),
        ("reset", [3], "VALIDATION_ERROR"),
        ("state", {}, "VALIDATION_ERROR"),
        ("dance", {}, "UNKNOWN_TYPE"),
    ],
)
async def test_wrong_messages_get_an_error_and_the_session_goes_on(
    kind: str, data: Any, code: str
) -> None:
    async with agym.serve(Told, 1, backend="thread") as server, session(server) as client:
        assert await client.code(kind, data) == code
        await client.reset()
        await client.step(COUNT)


async def test_a_full_house_says_when_to_come_again() -> None:
    async with playing() as (server, client):
        async with session(server) as late:
            answer = await late.receive()
            assert code_of(answer) == "CAPACITY_REACHED"
            assert answer["data"]["retry_after"] >= 1
            assert answer["data"]["active_sessions"] == answer["data"]["max_sessions"] == 1
            with pytest.raises(ConnectionClosed):
                await late.socket.recv()
        status, headers, _ = await request(server, "POST", "/reset", {})
        assert status == 503
        assert int(headers["Retry-After"]) >= 1
        assert server.stats().refused == 2
        await client.step(COUNT)


async def test_sessions_are_dealt_evenly_to_workers() -> None:
    async with playing(num_envs=8, backend="process", workers=2) as (server, one):
        async with session(server) as two:
            pids = {(await each.reset())["metadata"]["info"]["pid"] for each in (one, two)}
        assert len(pids) == 2


async def test_an_idle_session_ends_and_gives_its_place_back() -> None:
    limits = agym.ServerLimits(idle_timeout=deadline(0.2))
    async with playing(limits=limits) as (server, client):
        assert code_of(await client.receive()) == "SESSION_ERROR"
        await still_serves(server)


async def test_a_long_step_is_not_idle() -> None:
    idle = deadline(0.2)
    async with playing(Parrot, limits=agym.ServerLimits(idle_timeout=idle)) as (_, client):
        answer = await client.ask("step", {"say": "late", "wait": 3 * idle})
        assert answer["data"]["observation"] == {"said": "late"}


async def test_a_fast_client_is_slowed_down() -> None:
    loop = asyncio.get_running_loop()
    async with playing(limits=agym.ServerLimits(messages_per_second=20)) as (_, client):
        begun = loop.time()
        for _ in range(30):
            await client.ask("state")
        assert loop.time() - begun >= 0.4  # 20 at once, 10 at 20 per second


async def test_endpoints() -> None:
    async with agym.serve(Told, 1, backend="thread") as server:
        assert (await request(server, "GET", "/health"))[2] == {"status": "healthy"}
        schema = (await request(server, "GET", "/schema"))[2]
        assert schema["action"]["properties"]["value"]["maximum"] == 4
        assert schema["observation"]["properties"]["value"]["minItems"] == 2
        assert (await request(server, "GET", "/metadata"))[2]["name"] == "Told"
        assert (await request(server, "GET", "/state"))[2]["step_count"] == 0
        status, _, data = await request(server, "POST", "/reset", {"seed": 1})
        assert (status, data["observation"]) == (200, {"value": [0.0, 0.5]})
        status, _, data = await request(server, "POST", "/step", {"action": {"value": COUNT}})
        assert (status, data["reward"]) == (200, 1.0)


NO_TOKEN = {"Authorization": ""}


@pytest.mark.parametrize(
    ("token", "call", "content", "headers", "status"),
    [
        ("secret", "POST /step", {"action": {"value": 9}}, {}, 422),
        ("secret", "POST /step", {}, {}, 422), ("secret", "POST /reset", [1], {}, 422),
        ("secret", "GET /reset", None, {}, 405), ("secret", "GET /elsewhere", None, {}, 404),
        ("secret", "GET /ws", None, {}, 426), ("secret", "GET /schema", None, {}, 200),
        # Who has no token has no access.
        ("secret", "GET /schema", None, {"Authorization": "Bearer wrong"}, 401),
        ("secret", "GET /schema?token=secret", None, NO_TOKEN, 200),
        ("secret", "GET /schema?token=wrong", None, NO_TOKEN, 401),
        ("secret", "GET /health", None, NO_TOKEN, 200),
        # Pages of other sites have no access.
        (False, "GET /schema", None, {}, 200),
        (False, "GET /schema", None, {"Origin": "http://evil.example"}, 403),
        (False, "GET /schema", None, {"Host": "evil.example"}, 403),
        (False, "GET /schema", None, {"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}, 200),
    ],
)  # fmt: skip
async def test_who_may_ask_for_what(
    token: Any, call: str, content: Any, headers: dict[str, str], status: int
) -> None:
    async with agym.serve(Told, 1, backend="thread", token=token) as server:
        assert (await request(server, *call.split(), content, **headers))[0] == status


async def test_a_session_needs_the_token() -> None:
    async with agym.serve(Told, 1, backend="thread", token="secret") as server:
        server.token = None  # so the client sends none
        with pytest.raises(InvalidStatus, match="401"):
            async with session(server):
                pass


async def test_closing_tells_the_clients() -> None:
    async with playing() as (server, client):
        await server.aclose()
        with pytest.raises(ConnectionClosed) as closed:
            await client.socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"port": -1}, "port"), ({"port": 70000}, "port"), ({"host": ""}, "host"),
        ({"token": ""}, "token"), ({"token": "two words"}, "token"), ({"token": 3}, "token"),
        ({"limits": 3}, "limits"), ({"num_envs": 0}, "num_envs"),
    ],
)  # fmt: skip
async def test_wrong_arguments(options: dict[str, Any], names: str) -> None:
    with pytest.raises(UsageError, match=names):
        agym.serve(Told, **{"num_envs": 1, **options})
    with pytest.raises(UsageError, match="message_bytes"):
        agym.ServerLimits(message_bytes=3)


async def test_the_address_of_a_server_of_all_addresses_can_be_connected_to() -> None:
    async with playing(host="0.0.0.0") as (server, _):
        assert server.url.startswith("http://127.0.0.1:")


def test_the_live_line_reads_statistics_on_the_event_loop_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They take in results of environments, which no other thread may do at the same time."""
    ended, threads = asyncio.Event(), set()
    stats = Server.stats

    def read(server: Server) -> ServerStats:
        threads.add(threading.current_thread())
        return stats(server)

    monkeypatch.setattr(Server, "stats", read)

    async def show() -> None:
        loop = asyncio.get_running_loop()

        class Terminal(io.StringIO):
            def write(self, text: str) -> int:  # in Rich's thread, too
                written = super().write(text)
                if self.getvalue().count("0 of 1 sessions") > 1:
                    loop.call_soon_threadsafe(ended.set)
                return written

        async with agym.serve(Told, 1, backend="thread") as server, asyncio.timeout(patience()):
            await draw(server, Console(file=Terminal(), force_terminal=True), ended)

    asyncio.run(show())
    assert threads == {threading.current_thread()}


def test_the_command_prints_faults_and_no_malformed_requests() -> None:
    printed = io.StringIO()
    with faults_printed(console(file=printed)):
        logging.getLogger("agym.serve").error("environment 3 failed: %s", "[red]ValueError")
        logging.getLogger("agym.serve.http").error("malformed")
    logging.getLogger("agym.serve").error("after the server's end")
    assert printed.getvalue()[9:] == "environment 3 failed: [red]ValueError\n"


@pytest.mark.once
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_command_serves_until_it_is_told_to_end(number: int, code: int, tmp_path: Path) -> None:
    words = ["serve", "CartPole-v1", "-n", "2", "--port", "0", "--backend", "process"]
    words += ["--token", "secret"]
    with started(*words, folder=tmp_path) as (first, process):
        response = httpx2.post(
            f"{first.split()[1]}/step", json={"action": {"value": 1}}, trust_env=False,
            headers={"Authorization": "Bearer secret"}, timeout=patience(),
        )  # fmt: skip
        assert response.status_code == 200
        process.send_signal(number)
        assert process.stdout is not None
        rest = process.stdout.read()
        assert "agym.openenv(" in rest
        assert 'pip install "openenv>=0.10"' in rest
        assert process.wait(patience(10)) == code


async def test_metrics_are_those_of_the_environments_and_of_the_sessions() -> None:
    pytest.importorskip("prometheus_client", reason="the extra metrics brings it")
    async with agym.serve("CartPole-v1", 2, metrics=True) as server:
        async with session(server) as client:
            await client.reset()
            await client.step(1)
            async with httpx2.AsyncClient(trust_env=False) as http:
                refused = await http.get(f"{server.url}/metrics")
                assert refused.status_code == 401
                headers = {"Authorization": f"Bearer {server.token}"}
                answer = await http.get(f"{server.url}/metrics", headers=headers)
        assert answer.headers["content-type"].startswith("text/plain; version=")
        lines = answer.text.splitlines()
        for line in ("agym_environments 2.0", "agym_sessions 1.0", "agym_sessions_served 1.0"):
            assert line in lines
        (steps,) = (line for line in lines if line.startswith("agym_steps_total"))
        assert float(steps.split()[1]) >= 1
    async with agym.serve("CartPole-v1", 1) as server, httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{server.url}/metrics", params={"token": server.token})
        assert answer.status_code == 404
