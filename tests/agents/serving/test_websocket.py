"""The server's end of a WebSocket: frames as websockets writes them, and what clients do wrong."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

import agym
from agym.agents.openenv.wire import decode
from agym.agents.serving.serve import Server
from tests.agents.serving.clients import (
    COUNT,
    Parrot,
    Told,
    code_of,
    headers_of,
    playing,
    session,
    sessions_of,
    settled,
    still_serves,
    until_a_place_is_free,
)
from tests.support.patience import patience


def written(opcode: Opcode, content: bytes) -> bytes:
    return Frame(opcode, content, True).serialize(mask=True, extensions=[])


# The message is too long by itself, or by the sum of its parts.
LONG = b"\x02\xfe\x04\x00mask" + b"x" * 1024 + b"\x80\xfe\x04\x01mask"
WRONG = {
    "reserved bit": (b"\xc1\x80mask", 1002),
    "too long": (b"\x81\xff" + struct.pack(">Q", 2**62) + b"mask", 1009),
    "too long in parts": (LONG, 1009),
    "no text": (b"\x81\x81\0\0\0\0\xff", 1007),
}


@asynccontextmanager
async def raw(
    server: Server, early: bytes = b"", headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a session byte by byte; ``early`` is sent right behind the request."""
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    request = ClientProtocol(parse_uri(sessions_of(server))).connect()
    for name, value in {**headers_of(server), **(headers or {})}.items():
        request.headers.pop(name, None)
        request.headers[name] = value
    writer.write(request.serialize() + early)
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
        await still_serves(server)


async def test_pings_are_answered_during_a_step_and_a_leave_is_noticed() -> None:
    """The place is another's as soon as the step has ended."""
    may_end = asyncio.Event()

    class Held(Parrot):
        async def step(self, action: Any) -> Any:
            await may_end.wait()
            return await super().step(action)

    async with playing(Held) as (server, client):
        await client.socket.send('{"type": "step", "data": {"say": ""}}')
        async with asyncio.timeout(patience(10)):
            await (await client.socket.ping())
        client.socket.transport.abort()
        await settled(server)
        async with session(server) as early:
            assert code_of(await early.receive()) == "CAPACITY_REACHED"
        may_end.set()
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


async def test_a_client_that_does_not_close_its_end_is_cut_off() -> None:
    async with agym.serve(Told, 1, backend="thread") as server, raw(server) as (reader, writer):
        writer.write(written(Opcode.TEXT, b'{"type": "close"}'))
        assert await receive(reader) == (8, struct.pack(">H", 1000))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        await settled(server)


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
        await settled(server)
    assert not caplog.records


@pytest.mark.parametrize("ending", [b"", b"\x81", b"\x81\xfe\xff", bytes(range(200))], ids=range(4))
async def test_a_half_closed_or_broken_connection_gives_its_place_back(ending: bytes) -> None:
    async with agym.serve(Told, 1, backend="thread") as server:
        async with raw(server) as (reader, writer):
            writer.write(ending)
            writer.write_eof()  # it may still read
            with suppress(ConnectionError):
                await reader.read()
        await still_serves(server)


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
