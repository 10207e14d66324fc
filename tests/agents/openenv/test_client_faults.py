"""What goes wrong between a client and a server: one clear error, and never another's answer."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import socketserver
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest

import agym
from agym.agents.openenv.client import openenv
from tests.agents.openenv.scripted_server import (
    ANSWERS,
    GARBAGE,
    MISDEEDS,
    ScriptedServer,
    in_thread,
)
from tests.support.patience import deadline, patience


def remote(error: BaseException) -> agym.RemoteError:
    """The server's part of an error."""
    assert isinstance(error, agym.EnvError)
    assert isinstance(error.exception, agym.RemoteError)
    return error.exception


async def failing(envs: agym.AsyncEnvs, *actions: dict[str, Any]) -> agym.RemoteError:
    with pytest.raises(agym.EnvError) as caught:
        await envs.step(actions)
    return remote(caught.value)


async def echoes(envs: agym.AsyncEnvs) -> None:
    """Reset, and check that each answer is that of its own question."""
    observations, _ = await envs.reset(seed=40)
    n = len(observations)
    assert [each["value"] for each in observations] == [40 + i for i in range(n)]
    for step in range(3):
        values = [100 * i + step for i in range(n)]
        result = await envs.step([{"value": value} for value in values])
        assert [each["value"] for each in result.observations] == values


async def test_a_timeout_closes_the_session(server: ScriptedServer) -> None:
    factory = openenv(server.url, timeout=deadline(0.3))
    async with agym.make_async(factory, 2, backend="asyncio") as envs:
        await envs.reset()
        error = await failing(envs, {"value": 1, "do": "wait"}, {"value": 2})
        assert (error.code, error.operation, error.url) == ("TIMEOUT", "step", server.url)
        assert error.session is not None
        assert "the session is closed" in str(error).lower()
        server.let_go()  # the late answer
        await echoes(envs)
        assert server.opened == 3


FORK = agym.backends.Process(workers=1, start_method="fork")


@pytest.mark.parametrize("backend", ["asyncio", FORK], ids=["asyncio", "process"])
@pytest.mark.parametrize("do", ["wait", "drop"])
async def test_on_fault_restart_opens_another_session(
    server: ScriptedServer, backend: Any, do: str
) -> None:
    timeout = deadline(0.3) if do == "wait" else None
    async with agym.make_async(
        openenv(server.url), 2, backend=backend, timeout=timeout, on_fault="restart"
    ) as envs:
        await envs.reset()
        result = await envs.step([{"value": 1, "do": do}, {"value": 2}])
        assert result.truncated[0]
        assert result.infos[0]["fault"].kind == ("timeout" if do == "wait" else "raised")
        server.let_go()
        await echoes(envs)


async def test_a_cancelled_operation_ends_its_session(server: ScriptedServer) -> None:
    env = openenv(server.url)()
    await env.reset()
    step = asyncio.ensure_future(env.step({"value": 1, "do": "wait"}))
    await asyncio.to_thread(server.asked, 2)
    step.cancel()
    with suppress(asyncio.CancelledError):
        await step
    server.let_go()
    with pytest.raises(agym.RemoteError, match="given up: CancelledError") as caught:
        await env.step({"value": 2})
    assert caught.value.code == "CONNECTION_LOST"
    assert (await env.reset(seed=3))[0]["value"] == 3
    await env.close()


async def test_many_cancellations_at_random_moments(server: ScriptedServer) -> None:
    """At the socket's own pace: an answer may have arrived, or be on its way."""
    rng = random.Random(0)
    server.let_go()

    async def play(number: int) -> int:
        env, given_up = openenv(server.url)(), 0
        await env.reset()
        for k in range(40):
            value = number * 1000 + k
            step = asyncio.ensure_future(env.step({"value": value, "do": "wait"}))
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
            if rng.random() < 0.5:
                step.cancel()
            try:
                assert (await step)[0]["value"] == value
            except asyncio.CancelledError:
                given_up += 1
                assert (await env.reset(seed=value))[0]["value"] == value
        await env.close()
        return given_up

    async with asyncio.timeout(patience(10)):
        assert sum(await asyncio.gather(*(play(i) for i in range(8)))) > 20


async def test_a_second_answer_ends_the_session(server: ScriptedServer) -> None:
    env = openenv(server.url)()
    await env.reset()
    await env.step({"value": 1, "do": "twice"})
    await asyncio.to_thread(server.no_session)
    await asyncio.sleep(0.01)
    with pytest.raises(agym.RemoteError, match="without being asked"):
        await env.step({"value": 2})
    assert (await env.reset(seed=3))[0]["value"] == 3
    await env.close()


async def test_two_questions_at_once_are_refused(server: ScriptedServer) -> None:
    env = openenv(server.url)()
    await env.reset()
    step = asyncio.ensure_future(env.step({"value": 1, "do": "wait"}))
    await asyncio.sleep(0)
    with pytest.raises(agym.BusyError, match="await that first"):
        await env.step({"value": 2})
    server.let_go()
    assert (await step)[0]["value"] == 1
    await env.close()


CODES = {"fail": "EXECUTION_ERROR", "end": "SESSION_ERROR"}


@pytest.mark.parametrize("do", [*MISDEEDS, *GARBAGE, *CODES])
async def test_an_error_of_the_server_is_one_error(server: ScriptedServer, do: str) -> None:
    """An error of the environment alone leaves the session open."""
    factory = openenv(server.url, timeout=patience(), max_size=100_000)
    async with agym.make_async(factory, 2, backend="asyncio") as envs:
        await envs.reset()
        error = await failing(envs, {"value": 1, "do": do}, {"value": 2})
        assert error.code in (CODES.get(do), "CONNECTION_LOST", "BAD_ANSWER")
        assert error.operation == "step"
        assert len(str(error)) < 1000
        assert do not in CODES or json.loads(ANSWERS[do])["data"]["message"] in str(error)
        await echoes(envs)
        assert do != "fail" or server.opened == 2


async def test_a_session_that_ends_is_a_fault_only_within_an_episode(
    server: ScriptedServer,
) -> None:
    async with agym.make_async(openenv(server.url), 1, backend="asyncio") as envs:
        await echoes(envs)
        await asyncio.to_thread(server.end_sessions)
        await echoes(envs)
        assert server.opened == 2
        await asyncio.to_thread(server.end_sessions)
        error = await failing(envs, {"value": 1})
        assert error.code == "CONNECTION_LOST"
        assert "idle" in str(error)


def listening(answer: bytes | None) -> AbstractContextManager[str]:
    """The address of something that is no OpenEnv server: it says ``answer``, or nothing."""

    class Says(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(patience())
            with suppress(OSError):
                self.request.recv(65536)
                if answer is None:
                    self.request.recv(1)
                else:
                    self.request.sendall(answer)

    return in_thread(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Says))


def http(status: str, body: str, *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", body)
    return "\r\n".join(lines).encode()


@pytest.mark.once
@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "UNREACHABLE", "check the address and the port"),
        (b"\0\1\2\3" * 100, "BAD_ANSWER", "it is no OpenEnv server"),
        (http("200 OK", "<html>hello"), "BAD_ANSWER", "gives no JSON object"),
        (http("200 OK", "[1]"), "BAD_ANSWER", "gives no JSON object"),
        (http("500 Oops", "at line 3"), "BAD_ANSWER", "HTTP status 500 'at line 3'"),
        (http("401 No", ""), "REFUSED", "pass the server's token"),
        (http("404 No", ""), "BAD_ANSWER", "answers /ws with HTTP status 404"),
        (http("404 No", "") + b"x" * 1000, "BAD_ANSWER", "answers /ws with HTTP status 404"),
        (b"", "UNREACHABLE", "no connection within connect_timeout="),
        (None, "UNREACHABLE", "no answer to GET /schema"),
    ],
)
def test_what_is_no_openenv_server(answer: bytes | None, code: str, says: str) -> None:
    def use(url: str) -> None:
        with agym.make(openenv(url, connect_timeout=deadline(0.3)), 1) as envs:
            envs.reset()

    with listening(answer) as url, pytest.raises(agym.AgymError, match=says) as caught:
        use(url)
    error = caught.value
    error = error if isinstance(error, agym.RemoteError) else remote(error)
    assert (error.code, error.url) == (code, url)


def test_a_closed_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(agym.RemoteError, match="start the server, or check the address") as caught:
        openenv(f"http://127.0.0.1:{port}", connect_timeout=deadline(0.2))
    assert caught.value.code == "UNREACHABLE"


async def test_a_server_that_ends_meanwhile() -> None:
    with ScriptedServer() as server:
        envs = agym.make_async(
            openenv(server.url, connect_timeout=deadline(0.2)), 1, backend="asyncio"
        )
        await envs
        await echoes(envs)
    with pytest.raises(agym.EnvError) as caught:
        await envs.reset()
    assert remote(caught.value).code == "UNREACHABLE"
    await envs.aclose()


async def test_a_server_that_comes_back_is_waited_for() -> None:
    with ScriptedServer() as server:
        factory = await asyncio.to_thread(openenv, server.url, connect_timeout=patience())
        envs = agym.make_async(factory, 3, backend="asyncio")
        await envs
        await echoes(envs)
    resetting = envs.reset(seed=1)
    await asyncio.sleep(0.1)
    with ScriptedServer(port=server.port):
        observations, _ = await resetting
        assert [each["value"] for each in observations] == [1, 2, 3]
        await echoes(envs)
        await envs.aclose()
