"""A client of many sessions, in a process of its own, which costs as little as a client can.

It speaks the WebSocket protocol by itself, sends the same bytes at each step, and looks at no more
of an answer than its length and its kind. So what is measured is the server::

    python -m benchmarks.agents.serving_load URL SESSIONS echo rounds 10
    python -m benchmarks.agents.serving_load URL SESSIONS echo seconds 2 PROCESS

It prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import psutil

from agym.api.run import run
from agym.core._system.platform import allow_open_files

RESET = b'{"type":"reset","data":{}}'
# Steps of an environment that echoes, and of one with a tool that echoes.
STEPS = {
    "echo": b'{"type":"step","data":{"message":"hello, world"}}',
    "tool": b'{"type":"step","data":{"type":"call_tool","tool_name":"echo",'
    b'"arguments":{"message":"hello, world"}}}',
}
# What an answer to a reset or step has in it.
GOOD = b'"observation"'
# Sessions that are opened at the same time: more would overflow the system's queue.
AT_ONCE = 64
# The sizes of frames: up to 125 bytes, up to 65,535 bytes.
SHORT, MEDIUM = 125, 126


def frame(content: bytes) -> bytes:
    """Return a client's text frame, masked by zeros."""
    return bytes((0x81, 0x80 | len(content))) + b"\0\0\0\0" + content


class Client(asyncio.Protocol):
    """One session.

    Attributes:
        answers: Answers so far.
        failed: Answers that were errors, and connections that ended.
        stream: Whether each answer is followed by the next step at once.
    """

    def __init__(self, host: str, step: bytes) -> None:
        self.answers = 0
        self.failed = 0
        self.stream = False
        self.answered = asyncio.Event()
        self._host = host
        self._received = b""
        self._open = False
        self._transport: Any = None
        self._step = frame(step)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        lines = (
            "GET /ws HTTP/1.1", f"Host: {self._host}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "", "",
        )  # fmt: skip
        self._transport.write("\r\n".join(lines).encode())

    def reset(self) -> None:
        self.answered.clear()
        self._transport.write(frame(RESET))

    def step(self) -> None:
        self.answered.clear()
        self._transport.write(self._step)

    def close(self) -> None:
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.failed += 1
        self.answered.set()

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        if not self._open:
            head, end, received = received.partition(b"\r\n\r\n")
            if not end:
                self._received = head
                return
            self._open = True
            if b" 101 " not in head:
                self.failed += 1
            self.answered.set()
        while len(received) >= 4:
            size, begin = received[1], 2
            if size == MEDIUM:
                size, begin = int.from_bytes(received[2:4], "big"), 4
            if size > MEDIUM and begin == 2:
                raise ValueError("an answer is longer than 65,535 bytes")
            if len(received) < begin + size:
                break
            answer, received = received[begin : begin + size], received[begin + size :]
            self.answers += 1
            if GOOD not in answer:
                self.failed += 1
            if self.stream:
                self._transport.write(self._step)
            else:
                self.answered.set()
        self._received = received


async def connect(url: str, sessions: int, step: bytes) -> list[Client]:
    """Open sessions and reset their environments."""
    address = urlsplit(url)
    where = address.hostname or "", address.port or 80
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    while len(clients) < sessions:
        opening = [
            loop.create_connection(lambda: Client(address.netloc, step), *where)
            for _ in range(min(AT_ONCE, sessions - len(clients)))
        ]
        opened = [client for _, client in await asyncio.gather(*opening)]
        await answers(opened)
        clients += opened
    for client in clients:
        client.reset()
    await answers(clients)
    return clients


async def answers(clients: Sequence[Client]) -> None:
    """Wait until all have been answered."""
    for client in clients:
        await client.answered.wait()


async def rounds(clients: Sequence[Client], count: int) -> list[float]:
    """Let all sessions step at the same time; return the seconds of each round."""
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        for client in clients:
            client.step()
        await answers(clients)
        took.append(time.perf_counter() - begun)
    return took


async def stream(
    clients: Sequence[Client], seconds: float, server: psutil.Process
) -> tuple[float, float]:
    """Let each session step as soon as it is answered.

    Returns:
        The steps per second of all, and microseconds of the server's processor time for a step.
    """
    for client in clients:
        client.stream = True
        client.step()
    await asyncio.sleep(seconds / 4)
    before, begun, used = count(clients), time.perf_counter(), processor_time(server)
    await asyncio.sleep(seconds)
    steps = max(1, count(clients) - before)
    cost = (processor_time(server) - used) / steps * 1e6
    return steps / (time.perf_counter() - begun), cost


def count(clients: Sequence[Client]) -> int:
    """Return the answers so far."""
    return sum(client.answers for client in clients)


def processor_time(process: psutil.Process) -> float:
    """Return the seconds that a process used."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def main(
    url: str, sessions: str, step: str, kind: str, amount: str, server: str = ""
) -> None:
    """Load a server, and print what came of it."""
    if hasattr(os, "sched_setaffinity"):  # the first core is the server's
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[1:] or cores)
    allow_open_files(int(sessions) + 100)
    clients = await connect(url, int(sessions), STEPS[step])
    result: dict[str, Any] = {}
    if kind == "rounds":
        result["rounds"] = await rounds(clients, int(amount))
    else:
        process = psutil.Process(int(server))
        result["rate"], result["cost"] = await stream(clients, float(amount), process)
    result["failed"] = sum(client.failed for client in clients)
    for client in clients:
        client.close()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
