"""Whatever bytes a worker sends, the caller does not crash: that worker is taken for dead."""

from __future__ import annotations

import array
import contextlib
import os
import pickle
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.core._system.platform import anonymous_file
from agym.core.backends.outbox import Outbox
from agym.core.backends.port import BackendOptions
from agym.core.backends.process.channel import LARGE_BYTES, UNREADABLE, Channel
from agym.core.backends.process.mailbox import UP, mailbox_fields
from agym.core.backends.process.process_port import ProcessPort
from agym.core.backends.process.serialization import pack, pack_by_value
from agym.core.protocol.memory import Arena
from agym.core.protocol.messages.operations import OPEN, Operation, Render
from tests.support.drivers import each_api, opened
from tests.support.envs.faulty_envs import Babbles
from tests.support.envs.plain_envs import Tally

Sends = Callable[[socket.socket], Any]


def frame(size: int, kind: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("<QQ", size, kind) + payload


def with_file(data: bytes, open_file: Callable[[], int]) -> Sends:
    """Send bytes and a file's descriptor with them."""

    def send(theirs: socket.socket) -> None:
        file = open_file()
        socket.send_fds(theirs, [data], [file])
        os.close(file)

    return send


@contextlib.contextmanager
def caller() -> Iterator[tuple[ProcessPort, socket.socket]]:
    """The caller's end for environments 4 to 7, and what a worker would have of it."""
    ours, theirs = socket.socketpair()
    memory = Arena(mailbox_fields(4)).arrays
    options = BackendOptions([Tally] * 4, AutoresetMode.NEXT_STEP, first=4)
    outbox = Outbox()
    mailbox = ProcessPort(0, range(4, 8), options, outbox)
    mailbox.connect(memory, Channel(ours))
    try:
        yield mailbox, theirs
    finally:
        mailbox.release()
        outbox.close()
        theirs.close()


def post(port: ProcessPort, operation: Operation) -> None:
    port.record(operation)
    port.post(operation, [b"packed"])


def pipe_end() -> int:
    reader, writer = os.pipe()
    os.close(writer)
    return reader


LARGE = 2 * LARGE_BYTES
FRAMES: dict[str, Sends] = {
    "unknown kind": lambda s: s.send(frame(8, 7, b"12345678")),
    "absurd size": lambda s: s.send(frame(2**63)),
    "too large for a plain frame": lambda s: s.send(frame(LARGE_BYTES + 1)),
    "too large beside a descriptor": with_file(frame(2**40, 1), partial(anonymous_file, 1)),
    "text": lambda s: s.send(b"Traceback (most recent call last):\n"),
    "a file frame without a file": lambda s: s.send(frame(LARGE, 2)),
    "a descriptor frame without one": lambda s: s.send(frame(0, 1)),
    "a file that is too small": with_file(frame(LARGE, 2), partial(anonymous_file, 100)),
    "a file that is too large": with_file(frame(LARGE, 2), partial(anonymous_file, 10 * LARGE)),
    "an empty file": with_file(frame(0, 2), partial(anonymous_file, 0)),
    "an absurd file": with_file(frame(2**63 + 1, 2), partial(anonymous_file, 100)),
    "no file but a pipe": with_file(frame(LARGE, 2), pipe_end),
    "no file but a folder": with_file(frame(LARGE, 2), partial(os.open, "/", os.O_RDONLY)),
    "a descriptor with nothing": with_file(frame(0), partial(anonymous_file, 1)),
}


def message(number: int, *spans: tuple[int, int], body: bytes = b"") -> bytes:
    flat = [bound for span in spans for bound in span]
    return UP.pack(number, len(spans)) + struct.pack(f"<{len(flat)}q", *flat) + body


MESSAGES = {
    "short": b"1234",
    "no spans": UP.pack(3, 0),
    "fewer than no spans": UP.pack(3, -1),
    "more spans than bytes": UP.pack(3, 9) + bytes(24),
    "very many spans": UP.pack(3, 2**60),
    "unknown number": message(77, (4, 8)),
    "part of another": message(3, (3, 5)),
    "too many environments": message(3, (4, 9)),
    "another worker's": message(3, (0, 4)),
    "backwards": message(3, (8, 4)),
    "none": message(3, (4, 4)),
    "twice at once": message(3, (4, 8), (4, 8)),
    "overlapping": message(3, (4, 6), (5, 8)),
    "no extras": message(3, (4, 8), body=b"".join(pack(["these", "are", "none"]))),
}


@pytest.mark.parametrize("name", [*FRAMES, *MESSAGES])
def test_an_invalid_frame_or_message_ends_the_channel(name: str) -> None:
    with caller() as (mailbox, theirs):
        post(mailbox, Operation(3, 4, 8, Render()))
        if name in FRAMES:
            FRAMES[name](theirs)
        else:
            theirs.send(frame(len(MESSAGES[name]), 0, MESSAGES[name]))
        mailbox.receive()
        assert mailbox.channel.ended
        assert (mailbox.channel.corrupt or "").startswith(UNREADABLE)
        assert name in MESSAGES or mailbox.collect() == ()


def test_what_came_before_counts() -> None:
    with caller() as (mailbox, theirs):
        post(mailbox, Operation(3, 4, 8, Render()))
        post(mailbox, Operation(4, 4, 8, Render()))
        for number in (3, 3, 4):
            good = message(number, (4, 8))
            theirs.send(frame(len(good), 0, good))
        mailbox.receive()
        assert mailbox.channel.corrupt
        assert [outcome[:3] for outcome in mailbox.collect()] == [(3, 4, 8)]


BODIES = {
    "garbage": b"\x00garbage",
    "many parts": struct.pack("<q", 2**60),
    "fewer than no parts": struct.pack("<q", -5),
    "cut": b"".join(pack(list(range(100))))[:-20],
    "unknown class": struct.pack("<qq", 1, 16) + b"cno_such_mod\nX\n.",
    "bad pickle": struct.pack("<qq", 1, 4) + pickle.dumps(0)[:4],
}


@pytest.mark.parametrize("name", BODIES)
def test_an_answer_that_cannot_be_unpickled_is_the_environments_failure(name: str) -> None:
    with caller() as (mailbox, theirs):
        post(mailbox, Operation(3, 4, 8, Render()))
        sent = message(3, (4, 8), body=BODIES[name])
        theirs.send(frame(len(sent), 0, sent))
        mailbox.receive()
        (outcome,) = mailbox.collect()
        assert outcome[:3] == (3, 4, 8)
        assert outcome.payload is not None
        assert outcome.payload.problems
        assert mailbox.channel.corrupt is None


@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans(), st.booleans())
def test_any_bytes(chunks: list[bytes], framed: bool, cut: bool) -> None:
    """Nothing raises, and nothing is made up."""
    with caller() as (mailbox, theirs):
        for chunk in chunks:
            theirs.send(frame(len(chunk), 0, chunk) if framed else chunk)
            mailbox.receive()
            mailbox.collect()
            if mailbox.channel.ended:
                break
        if cut:
            theirs.close()
            mailbox.receive()
        assert [outcome for outcome in mailbox.collect() if outcome.number != OPEN] == []


def test_a_worker_that_floods_with_descriptors_leaves_none_here() -> None:
    before = psutil.Process().num_fds()
    with caller() as (mailbox, theirs):
        files = array.array("i", [anonymous_file(1) for _ in range(8)])
        for _ in range(20):
            socket.send_fds(theirs, [frame(0)], list(files))
        for file in files:
            os.close(file)
        mailbox.receive()
        assert mailbox.channel.corrupt
    assert psutil.Process().num_fds() == before


def test_a_mapped_payload_cannot_be_cut_off() -> None:
    """Reading a mapping behind its file's end would end the process."""
    data = b"".join(pack_by_value(np.arange(LARGE)))
    file = anonymous_file(len(data))
    os.pwrite(file, data, 0)
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    socket.send_fds(theirs, [frame(len(data), 2)], [file])
    (payload,) = channel.drain()
    with pytest.raises(PermissionError):
        os.ftruncate(file, 0)
    assert bytes(payload) == data
    os.close(file)
    channel.close()
    theirs.close()


# ---------------------------------------------------------------- whole workers


GARBAGE = [
    b"Segmentation fault (core dumped), or something like it\n",
    frame(40, 0, message(12345, (0, 2), body=b"12345678")),
]


@pytest.mark.once
@pytest.mark.parametrize("garbage", GARBAGE)
@each_api
def test_a_worker_that_sends_garbage_is_dead(api: str, garbage: bytes) -> None:
    """The others are not."""

    def babble() -> None:
        envs.step([9, 0, 0, 0])  # comes back through shared memory, maybe before a look elsewhere
        envs.render()

    babbles = partial(Babbles, garbage)
    with opened(api, [babbles, Tally, Tally, Tally], backend="process", workers=2) as envs:
        envs.reset()
        with pytest.raises(agym.WorkerDied, match=UNREADABLE) as caught:
            babble()
        assert caught.value.env_ids == (0, 1)
        envs.reset(env_ids=[2, 3])
        assert len(envs.step([0, 0], env_ids=[2, 3]).infos) == 2
