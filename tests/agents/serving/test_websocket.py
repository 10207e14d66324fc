"""The server's end of a WebSocket: frames as websockets writes them, and what clients do wrong."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast
from urllib.parse import urlsplit

import pytest
from websockets.frames import Frame, Opcode

import agym
from agym.agents.openenv.wire import decode
from agym.agents.serving.serve import Server
from tests.agents.serving.clients import (
    COUNT,
    Parrot,
    Told,
    code_of,
    session,
    settled,
    until_a_place_is_free,
)
from tests.support.patience import patience


def written(opcode: Opcode, content: bytes, *, last: bool = True) -> bytes:
    return Frame(opcode, content, last).serialize(mask=True, extensions=[])


WRONG = {
    "no mask": (b"\x81\x01a", 1002),
    "reserved bit": (b"\xc1\x80mask", 1002),
    "unknown kind": (b"\x83\x80mask", 1002),
    "a ping in parts": (b"\x09\x80mask", 1002),
    "a long ping": (b"\x89\xfe\x00\x80mask" + bytes(128), 1002),
    "nothing to continue": (b"\x80\x80mask", 1002),
    "two messages at once": (b"\x01\x80mask\x01\x80mask", 1002),
    "too long": (b"\x81\xff" + struct.pack(">Q", 2**62) + b"mask", 1009),
    "too long in parts": (b"\x02\xfe\x04\x00mask" + b"x" * 1024 + b"\x80\xfe\x04\x01mask", 1009),
    "no text": (b"\x81\x81\0\0\0\0\xff", 1007),
}


@asynccontextmanager
async def raw(
    server: Server, early: bytes = b"", headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a session byte by byte; ``early`` is sent right behind the request."""
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    fields = {
        "Host": "x", "Authorization": f"Bearer {server.token}", "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), **(headers or {}),
    }  # fmt: skip
    lines = ["GET /ws HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + early)
    try:
        async with asyncio.timeout(patience(10)):
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def receive(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the opcode and content of the server's next frame."""
    first, length = await reader.readexactly(2)
    if length == 126:
        (length,) = struct.unpack(">H", await reader.readexactly(2))
    return first & 15, await reader.readexactly(length)


@pytest.mark.parametrize(("frames", "code"), WRONG.values(), ids=WRONG)
async def test_a_wrong_frame_closes_the_connection(frames: bytes, code: int) -> None:
    limits = agym.ServerLimits(message_bytes=2048)
    async with agym.serve(Told, 1, backend="thread", limits=limits) as server:
        async with raw(server) as (reader, writer):
            writer.write(frames)
            opcode, content = await receive(reader)
            assert (opcode, int.from_bytes(content[:2], "big")) == (8, code)
            with suppress(ConnectionError):
                assert await reader.read() == b""
        await settled(server, 0)
        async with session(server) as client:
            await client.reset()


async def test_questions_sent_at_once_are_answered_in_order() -> None:
    async with agym.serve(Told, 1, backend="thread") as server, session(server) as client:
        await client.reset()
        for k in range(50):
            await client.socket.send('{"type": "step", "data": {"value": 0}}')
            await client.socket.send(f'{{"type": "unknown{k}"}}')
        for k in range(50):
            assert (await client.receive())["data"]["reward"] == k + 1
            assert f"unknown{k}" in (await client.receive())["data"]["message"]


async def test_pings_are_answered_during_a_step_and_a_leave_is_noticed() -> None:
    """The place is another's as soon as the step has ended."""
    async with agym.serve(Parrot, 1, backend="asyncio") as server:
        async with session(server) as client:
            await client.reset()
            await client.socket.send('{"type": "step", "data": {"say": "", "wait": 1}}')
            async with asyncio.timeout(patience(10)):
                await (await client.socket.ping())
            client.socket.transport.abort()
        await settled(server, 0)
        async with session(server) as early:
            assert code_of(await early.receive()) == "CAPACITY_REACHED"
        await until_a_place_is_free(server)


async def test_who_reads_no_answers_is_not_read_either() -> None:
    """Pings do not make the server keep more than a socket's worth of answers."""
    async with agym.serve(Told, 2, backend="thread") as server, raw(server) as (_, writer):
        cast(asyncio.Transport, writer.transport).pause_reading()
        pings = written(Opcode.PING, b"x" * 125) * 1000
        async with session(server) as other:
            await other.reset()
            sent = 0
            while writer.transport.get_write_buffer_size() < 1 << 20:
                writer.write(pings)
                sent += len(pings)
                await other.step(COUNT)
                assert sent < 1 << 28, "the server reads all"
        writer.transport.abort()


async def test_the_closing_handshake() -> None:
    async with agym.serve(Told, 1, backend="thread") as server, raw(server) as (reader, writer):
        writer.write(written(Opcode.CLOSE, struct.pack(">H", 1000)))
        assert await receive(reader) == (8, struct.pack(">H", 1000))
        assert await reader.read() == b""
        await settled(server, 0)


async def test_a_client_that_does_not_close_its_end_is_cut_off() -> None:
    async with agym.serve(Told, 1, backend="thread") as server, raw(server) as (reader, writer):
        writer.write(written(Opcode.TEXT, b'{"type": "close"}'))
        assert await receive(reader) == (8, struct.pack(">H", 1000))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        await settled(server, 0)


async def test_a_message_in_parts_is_one() -> None:
    async with agym.serve(Told, 1, backend="thread") as server, raw(server) as (reader, writer):
        for opcode, part, last in (
            (Opcode.TEXT, b'{"type": "res', False),
            (Opcode.CONT, b"", False),
            (Opcode.CONT, b'et", "data": {}}', True),
        ):
            writer.write(written(opcode, part, last=last))
            await asyncio.sleep(0)
        _, answer = await receive(reader)
        assert decode(answer.decode())["type"] == "observation"


@pytest.mark.parametrize("cut", [3, None])
async def test_what_is_sent_behind_the_request_is_not_lost(cut: int | None) -> None:
    question = written(Opcode.TEXT, b'{"type": "state"}')
    early, late = question[:cut], b"" if cut is None else question[cut:]
    async with (
        agym.serve(Told, 1, backend="thread") as server,
        raw(server, early) as (reader, writer),
    ):
        writer.write(late)
        _, answer = await receive(reader)
        assert decode(answer.decode())["type"] == "state"


async def test_a_client_that_knows_another_subprotocol_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    protocols = {"Sec-WebSocket-Protocol": "chat, superchat"}
    async with (
        agym.serve(Told, 1, backend="thread") as server,
        raw(server, headers=protocols) as (reader, writer),
    ):
        writer.write(written(Opcode.TEXT, b'{"type": "state"}'))
        _, answer = await receive(reader)
        assert decode(answer.decode())["type"] == "state"
    assert not caplog.records


@pytest.mark.parametrize(
    "frame",
    [written(Opcode.PING, b"x"), written(Opcode.TEXT, b'{"type": "state"}')],
    ids=["pings", "questions"],
)
async def test_a_client_that_asks_much_and_leaves(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop warns of each further answer that is written to a broken connection."""
    async with agym.serve(Told, 1, backend="thread") as server:
        async with raw(server) as (_, writer):
            writer.write(frame * 1000)
        await settled(server, 0)
    assert not caplog.records


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-WebSocket-Version": "99"}, {"Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Key": "\xff"}, {"Connection": "close"},
    ],
    ids=str,
)  # fmt: skip
async def test_wrong_handshakes(headers: dict[str, str]) -> None:
    async with agym.serve(Told, 1, backend="thread") as server:
        with pytest.raises(AssertionError):
            async with raw(server, headers=headers):
                pass
        assert server.stats().served == 0
