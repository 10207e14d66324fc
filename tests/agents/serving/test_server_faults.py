"""What goes wrong: environments that raise, die, hang; clients that are broken, slow or hostile."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from gymnasium import spaces
from websockets.exceptions import ConnectionClosed

import agym
from agym.agents.openenv.frames import MAGIC
from agym.agents.serving.serve import Server
from tests.agents.serving.clients import (
    COUNT,
    DIE,
    HANG,
    RAISE,
    Parrot,
    Told,
    code_of,
    playing,
    request,
    session,
    still_serves,
    until_a_place_is_free,
)
from tests.support.patience import deadline, patience


@pytest.mark.parametrize("fault", [RAISE, DIE, pytest.param(HANG, marks=pytest.mark.full)])
async def test_a_fault_ends_one_episode_and_no_other(fault: int) -> None:
    """The other environment of the same worker continues where it was."""
    timeout = deadline(3) if fault == HANG else None
    options: dict[str, Any] = {"backend": "process", "workers": 1, "timeout": timeout}
    async with playing(Told, 2, **options) as (server, bad), session(server) as good:
        await good.reset(seed=5)
        for _ in range(3):
            await good.step(COUNT)
        assert await bad.code("step", {"value": fault}) == "EXECUTION_ERROR"
        assert (await good.step(COUNT))["observation"]["value"][0] == 4
        assert await bad.code("step", {"value": COUNT}) == "EXECUTION_ERROR"  # needs a reset
        await bad.reset()
        assert (await bad.step(COUNT))["reward"] == 1


RAISED = "RuntimeError: as it was told"
DIED = "the environment's worker died: exit code 7"


@pytest.mark.parametrize(
    ("on_fault", "fault", "wanted"),
    [
        ("restart", RAISE, RAISED), ("restart", DIE, DIED),
        ("raise", RAISE, RAISED), pytest.param("raise", DIE, DIED, marks=pytest.mark.full),
        pytest.param("restart", HANG, "missed the", marks=pytest.mark.full),
        pytest.param("raise", HANG, "step took too long", marks=pytest.mark.full),
    ],
)  # fmt: skip
async def test_a_client_gets_a_line_of_a_fault_and_the_log_all_of_it(
    on_fault: Any, fault: int, wanted: str, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"timeout": deadline(3) if fault == HANG else None, "workers": 1}
    async with playing(backend="process", on_fault=on_fault, **options) as (server, client):
        said = (await client.ask("step", {"value": fault}))["data"]["message"]
        assert said == wanted if fault != HANG else said.startswith(wanted)
        (logged,) = [each.getMessage() for each in caplog.records if each.name == "agym.serve"]
        assert logged.startswith("environment 0 failed: ")
        details = {RAISE: 'raise RuntimeError("as it was told")', DIE: "pid", HANG: "deadline"}
        assert details[fault] in logged
        if on_fault == "raise" and fault == DIE:  # nothing replaces the worker during the session
            with pytest.raises(ConnectionClosed):
                await client.socket.recv()
            await until_a_place_is_free(server)


async def test_an_http_client_gets_a_line_of_a_fault() -> None:
    async with agym.serve(Told, 1, backend="thread") as server:
        status, _, data = await request(server, "POST", "/step", {"action": {"value": RAISE}})
    assert (status, data) == (500, {"detail": RAISED, "code": "EXECUTION_ERROR"})


async def test_a_client_does_not_control_the_terminal_that_shows_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Repeats(Parrot):
        async def step(self, action: Any) -> Any:
            raise ValueError(action["say"])

    async with playing(Repeats) as (_, client):
        await client.code("step", {"say": "\x1b[2J gone"})
    recovered, failed = caplog.messages
    for message in (recovered, failed):  # by the loggers "agym" and "agym.serve"
        assert r"\x1b[2J gone" in message
        assert "\x1b" not in message


async def test_a_fault_is_not_told_to_the_next_session_of_its_worker() -> None:
    """All environments of the worker are made again, but only one session has lost its episode."""
    options: dict[str, Any] = {"backend": "process", "workers": 1}
    async with playing(Told, 2, **options) as (server, bad), session(server) as good:
        assert await bad.code("step", {"value": DIE}) == "EXECUTION_ERROR"
        await good.reset()
        assert (await good.step(COUNT))["reward"] == 1


TEXTS = [
    "", "{", "null", "3", '"step"', "[]", "[" * 100_000, '{"a":' * 50_000, "{}", '{"type": 3}',
    '{"type": {"a": 1}}', '{"type": "step", "data": {"value": 1}, "more": 1}',
    '{"type": "step", "data": {"value": ' + "9" * 5000 + "}}",
    '{"type": "reset", "data": {"seed": 1e999}}', '{"type": "step", "data": {"value": NaN}}',
    '{"type": "reset", "data": {"options": ' + '{"a":' * 500 + "1" + "}" * 500 + "}}",
    '{"type": "reset", "data": {"options": ' + '{"a":' * 900 + "1" + "}" * 900 + "}}",
    '{"type": "mcp", "data": 3}', "\x00", "\ud7ff" * 100,
]  # fmt: skip


async def test_hostile_texts() -> None:
    async with playing() as (_, client):
        for text in TEXTS:
            await client.socket.send(text)
            answer = await client.receive()
            assert answer["type"] in ("error", "mcp", "observation"), text[:20]
            await client.reset()  # the session goes on
        await client.step(COUNT)


async def test_hostile_frames() -> None:
    draw = random.Random(0)
    header = b'{"type":"step","data":{"$a":["<f8",[1000000000,1000000000],0]}}'
    frames = [
        b"", b"\0" * 8, MAGIC, MAGIC + struct.pack("<I", 2**32 - 1),
        MAGIC + struct.pack("<I", len(header)) + header,
        *(MAGIC + struct.pack("<I", 40) + draw.randbytes(60) for _ in range(20)),
    ]  # fmt: skip
    headers = [
        b'{"type":"step","data":{"$a":["O",[1],0]}}', b'{"type":"step","data":{"$a":3}}',
        b'{"type":"step","data":{"$s":["<i8",1e400]}}', b'{"type":"step","data":{"$b":[-5,9]}}',
        b'{"type":"step","data":{"$d":[[[1],2]]}}', b'{"type":"step","data":{"$g":[1]}}',
        b'{"type":"step","data":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"type":"step","data":{"$a":["|a5",[1],0]}}', b'{"type":{"$a":["<f8",[2],0]},"data":1}',
        b'{"type":"step","data":{"$s":["<f2",1e10]}}',
        b'{"type":"step","data":{"$a":["<f8",[-1],0]}}', b'{"type":{"$t":[1]},"data":1}',
    ]  # fmt: skip
    frames += [
        MAGIC + struct.pack("<I", len(said)) + said + bytes(-(8 + len(said)) % 8 + 16)
        for said in headers
    ]
    async with playing(binary=True) as (_, client):
        for frame in frames:
            await client.socket.send(frame)
            assert (await client.receive())["type"] == "error", frame
        await client.socket.send("text")
        assert code_of(await client.receive()) == "INVALID_JSON"
        await client.reset()


SPACES = [
    spaces.Box(-1, 1, (2,), np.float32), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3),
    spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (1,))),
    spaces.Tuple((spaces.Discrete(2), spaces.Text(3))),
    spaces.Sequence(spaces.Box(-1, 1, (2,)), stack=True),
    spaces.OneOf((spaces.Discrete(2), spaces.Box(-1, 1, (1,)))),
    spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3)),
]  # fmt: skip
GraphInstance: Any = spaces.GraphInstance  # also of what is no array
ODD: list[Any] = [
    None, 1e308, "\ud800", [[1, 2], [3]], [2**70, 0], {}, {"a": 1, "b": [0.5]}, (1, "ab"), (5, 1),
    np.array("x"), np.zeros((0, 5)), np.array([1 + 2j, 0]), GraphInstance(1, 2, 3),
    GraphInstance(np.zeros(3), "x", None),
]  # fmt: skip


@pytest.mark.parametrize("space", SPACES, ids=str)
async def test_hostile_actions(space: spaces.Space[Any]) -> None:
    """Whatever the space, none ends the session, and no warning is given of any."""

    class Spaced(Told):
        action_space: Any = space

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return super().step(COUNT)

    async with playing(Spaced, binary=True) as (_, client):
        for odd in ODD:
            answer = await client.ask("step", odd)
            assert answer["type"] == "observation" or code_of(answer) == "VALIDATION_ERROR"
        await client.step(space.sample())


async def test_who_only_sends_errors_is_sent_away() -> None:
    async with playing() as (server, client):
        for _ in range(99):
            await client.ask("nonsense")
        await client.reset()
        for _ in range(100):
            await client.ask("nonsense")
        with pytest.raises(ConnectionClosed):
            await client.ask("nonsense")
        await still_serves(server)


async def open_socket(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(server.url)
    return await asyncio.open_connection(address.hostname, address.port)


async def until_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(patience(5)):
        with suppress(ConnectionError):
            return await reader.read()
    return b""


async def test_who_is_slow_to_ask_is_sent_away() -> None:
    limits = agym.ServerLimits(request_timeout=deadline(0.3))
    async with agym.serve(Told, 1, backend="thread", limits=limits) as server:
        silent = [await open_socket(server) for _ in range(20)]
        for k, (_, writer) in enumerate(silent):
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n"[: 2 * k])
        for reader, writer in silent:
            assert b" 408 " in await until_end(reader)
            writer.close()
        reader, writer = await open_socket(server)
        head = f"POST /reset HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert b" 408 " in await until_end(reader)
        writer.close()
        await still_serves(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\r\n\r\n",
        b"GET " + b"a" * 100_000, b"A: b\r\n" * 10_000,
        b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://[\r\n\r\n",
        b"POST /reset HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{}",
        b"POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000,
    ],
    ids=range(15),
)  # fmt: skip
@pytest.mark.parametrize("token", ["secret", False])
async def test_what_is_no_http(
    data: bytes, token: str | bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused, and nothing is printed of it; so is a body that is too long."""
    limits = agym.ServerLimits(request_timeout=deadline(0.3), message_bytes=2048)
    async with agym.serve(Told, 1, backend="thread", limits=limits, token=token) as server:
        reader, writer = await open_socket(server)
        with suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        answer = await until_end(reader)
        assert answer == b"" or answer.split()[1][:1] == b"4"
        writer.close()
        await still_serves(server)
    # A logger that prints nothing.
    assert {record.name for record in caplog.records} <= {"agym.serve.http"}


@pytest.mark.once
async def test_thousands_of_connections() -> None:
    """As many as may be are kept, others are turned away; a session that is open goes on."""
    limits = agym.ServerLimits(connections=20)
    async with playing(limits=limits, token=False) as (server, client):
        refused = 0
        for _ in range(40):
            opened = await asyncio.gather(*[open_socket(server) for _ in range(50)])
            await client.step(COUNT)
            for reader, writer in opened[20:]:
                answer = await until_end(reader) if reader.at_eof() or refused < 5 else b""
                refused += b" 503 " in answer
                writer.close()
            for _, writer in opened[:20]:
                writer.close()
        assert refused
        assert (await client.step(COUNT))["reward"] == 41
