"""Frames, bells and descriptors over a socket pair; nobody ever blocks while sending."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.core.backends.process.channel import LARGE_BYTES, Channel
from tests.support.patience import patience

SIZES = (1, 7, 8, 100, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 10 * LARGE_BYTES)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = map(Channel, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def receive(channel: Channel, count: int) -> list[bytes]:
    """Wait for so many payloads."""
    payloads: list[bytes] = []
    while len(payloads) < count:
        channel.wait(patience())
        payloads += map(bytes, channel.drain())
        assert not channel.ended
    return payloads


@given(
    sizes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=30),
    bells=st.booleans(),
    from_left=st.booleans(),
)
def test_payloads_keep_their_order(sizes: list[int], bells: bool, from_left: bool) -> None:
    """Bells are not payloads."""
    left, right = map(Channel, socket.socketpair())
    ours, theirs = (left, right) if from_left else (right, left)
    assert theirs.drain() == []
    payloads = [bytes([k % 256]) * size for k, size in enumerate(sizes)]
    for payload in payloads:
        ours.send([payload[: len(payload) // 2], payload[len(payload) // 2 :]])
        if bells:
            ours.ring()
    received: list[bytes] = []
    while len(received) < len(payloads):
        received += map(bytes, theirs.drain())
        ours.flush()
    assert received == payloads
    assert theirs.drain() == ours.drain() == []
    assert not theirs.ended
    ours.close()
    theirs.close()


def test_what_the_socket_does_not_take_waits(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    payloads = [bytes([k]) * LARGE_BYTES for k in range(100)]
    for payload in payloads:
        ours.send([payload])  # nobody reads, and yet this returns
    assert ours.backlog
    received: list[bytes] = []
    while len(received) < 100:
        received += map(bytes, theirs.drain())
        ours.flush()
    assert received == payloads
    assert not ours.backlog


def test_flush_all_waits_for_the_reader(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.extend(receive(theirs, 100)))
    reader.start()
    for k in range(100):
        ours.send([bytes([k]) * LARGE_BYTES])
    ours.flush_all()
    assert not ours.backlog
    reader.join()
    assert [payload[0] for payload in received] == list(range(100))


def test_descriptors_and_large_payloads_do_not_mix_up(
    pair: tuple[Channel, Channel], tmp_path: Path
) -> None:
    ours, theirs = pair
    large = os.urandom(3 * LARGE_BYTES)
    for k in range(5):
        path = tmp_path / str(k)
        path.write_text(str(k))
        descriptor = os.open(path, os.O_RDONLY)
        ours.send([large, bytes([k])])
        ours.send([b"with descriptor"], descriptor)
        os.close(descriptor)
    payloads = receive(theirs, 10)
    assert payloads[::2] == [large + bytes([k]) for k in range(5)]
    for k in range(5):
        with os.fdopen(theirs.next_descriptor()) as file:
            assert file.read() == str(k)


def test_the_end_comes_after_what_was_sent(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    ours.send([b"last words"])
    ours.close()
    theirs.wait()
    payloads = theirs.drain()
    payloads += theirs.drain()
    assert [bytes(payload) for payload in payloads] == [b"last words"]
    assert theirs.ended
    with pytest.raises(EOFError):
        theirs.next_descriptor()
    theirs.send([b"to nobody"])
    theirs.send([b"x" * 10 * LARGE_BYTES])
    theirs.ring()
    theirs.flush_all()


def test_closing_gives_back_what_was_not_read(pair: tuple[Channel, Channel]) -> None:
    """Descriptors under way too; the fixture of all tests counts them."""
    ours, theirs = pair
    for _ in range(50):
        ours.send([b"x" * 2 * LARGE_BYTES])
    reader, writer = os.pipe()
    ours.send([b"pipe"], reader)
    os.close(reader)
    os.close(writer)
    theirs.drain()
