"""No bell is lost, none is rung for somebody who is awake, and watching has a limit."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import agym
from agym.api.waiting import due
from agym.core.backends.process.channel import Channel
from agym.core.backends.process.doorbell import Doorbell
from agym.core.backends.spinning import (
    CALM_SECONDS,
    FIRST_PAUSE_SECONDS,
    LATE_SECONDS,
    MAX_PAUSE_SECONDS,
    SPIN_SECONDS,
    WATCH_SECONDS,
    SpinPolicy,
)
from tests.support.backends import FORK
from tests.support.drivers import opened
from tests.support.envs.plain_envs import Tally
from tests.support.insides import backend_of

COUNTER, OURS, THEIRS, ANSWER = range(4)


@dataclass
class Parties:
    """Two ends of one handshake over plain memory."""

    words: memoryview
    channels: tuple[Channel, Channel]
    ours: Doorbell
    theirs: Doorbell


@pytest.fixture
def parties() -> Iterator[Parties]:
    words = memoryview(bytearray(8 * 4)).cast("q")
    left, right = socket.socketpair()
    channels = Channel(left), Channel(right)
    yield Parties(
        words,
        channels,
        Doorbell(words, OURS, THEIRS, channels[0]),
        Doorbell(words, THEIRS, OURS, channels[1]),
    )
    for channel in channels:
        channel.close()


def bell_has_come(channel: Channel) -> bool:
    with socket.socket(fileno=socket.dup(channel.fileno())) as end:
        end.setblocking(False)
        try:
            return bool(end.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False


def test_a_bell_is_rung_only_for_a_sleeper(parties: Parties) -> None:
    ours, theirs = parties.ours, parties.theirs
    ours.publish(COUNTER, 1)
    assert theirs.read(COUNTER) == 1
    assert not bell_has_come(parties.channels[1])
    theirs.park()
    ours.publish(COUNTER, 2)
    assert bell_has_come(parties.channels[1])
    parties.channels[1].drain()
    theirs.unpark()
    ours.park()  # a word of its own
    ours.publish(COUNTER, 3)
    assert not bell_has_come(parties.channels[1])
    theirs.publish(ANSWER, 1)
    assert bell_has_come(parties.channels[0])


def test_no_bell_is_lost(parties: Parties) -> None:
    """Two parties take turns, and sleep without a limit: one lost bell would hang them both."""
    rounds = 2000

    def take_turns(bell: Doorbell, channel: Channel, mine: int, other: int) -> None:
        for turn in range(1, rounds + 1):
            if mine == COUNTER:
                bell.publish(mine, turn)
            while bell.read(other) < turn:
                bell.park()
                if bell.read(other) < turn:
                    channel.wait()
                    channel.drain()
                bell.unpark()
            if mine == ANSWER:
                bell.publish(mine, turn)

    answering = threading.Thread(
        target=take_turns, args=(parties.theirs, parties.channels[1], ANSWER, COUNTER)
    )
    answering.start()
    take_turns(parties.ours, parties.channels[0], COUNTER, ANSWER)
    answering.join()
    assert list(parties.words[:1]) == [rounds]


def test_spinning_sees_what_comes_and_has_a_limit() -> None:
    looks = iter([False, False, True])
    assert SpinPolicy().spin(lambda: next(looks), 10.0)  # however rarely this process runs
    assert not SpinPolicy().spin(lambda: False)


@pytest.mark.parametrize(("api", "limit"), [("sync", WATCH_SECONDS), ("async", SPIN_SECONDS)])
def test_only_callers_without_a_loop_watch_for_long(api: str, limit: float) -> None:
    with opened(api, Tally, 2, backend=FORK) as envs:
        assert backend_of(getattr(envs, "envs", envs)).spinning.limit == limit


def test_waits_longer_than_the_limit_are_not_watched_and_short_ones_are_again() -> None:
    policy, now = SpinPolicy(WATCH_SECONDS), time.perf_counter()
    for seconds, slept, limit, worth in (
        (2 * SPIN_SECONDS, False, WATCH_SECONDS, True),
        (2 * SPIN_SECONDS, False, SPIN_SECONDS, False),
        (1.0, True, WATCH_SECONDS, False),
        (SPIN_SECONDS / 10, False, SPIN_SECONDS, True),
    ):
        policy.limit = limit
        for _ in range(50):
            wait(policy, seconds, slept=slept)
        assert policy.worth_spinning(now) is worth
        assert policy.spin(lambda: True) is worth


def wait(
    policy: SpinPolicy,
    seconds: float,
    *,
    slept: bool = False,
    late: float = 0.0,
    until: float | None = None,
) -> None:
    """Learn from a wait."""
    ended = time.perf_counter() if until is None else until
    policy.note(ended - seconds, ended, slept=slept, due=ended - late)
    policy.learn()


@pytest.mark.parametrize(
    ("between", "well", "last"),
    [
        (10.0, 20, MAX_PAUSE_SECONDS),
        (0.3, round(2 * CALM_SECONDS / LATE_SECONDS), FIRST_PAUSE_SECONDS),
    ],
)
def test_pauses_grow_unless_many_waits_go_well_between_them(
    between: float, well: int, last: float
) -> None:
    policy, now, pauses = SpinPolicy(WATCH_SECONDS), 100.0, []
    for _ in range(20):
        now = max(now, policy.crowded_until) + between
        assert policy.worth_spinning(now)
        for _ in range(well):
            wait(policy, LATE_SECONDS, until=now)
        wait(policy, 3 * LATE_SECONDS, late=2 * LATE_SECONDS, until=now)
        pauses.append(policy.crowded_until - now)
        assert not policy.worth_spinning(now)
    assert pauses == pytest.approx(sorted(pauses))
    assert (pauses[0], pauses[-1]) == pytest.approx((FIRST_PAUSE_SECONDS, last))


@pytest.mark.parametrize(
    ("seconds", "late", "slept", "counts"),
    [
        (3, 2, False, True),
        (3, 0.4, False, False),  # it was hardly late
        (11, 10, True, False),  # a sleeper is woken late without others, too
        (3, 4, False, False),  # it was due before the wait
    ],
)
def test_late_ends_of_spinning_count_once(
    seconds: float, late: float, slept: bool, counts: bool
) -> None:
    policy = SpinPolicy(WATCH_SECONDS)
    wait(policy, seconds * LATE_SECONDS, late=late * LATE_SECONDS, slept=slept)
    crowded_until = policy.crowded_until
    assert (crowded_until > 0.0) is counts
    policy.learn()
    assert policy.crowded_until == crowded_until


def test_who_was_off_its_core_knows_how_late_it_is() -> None:
    """Lateness counts from the end of the steps, for waits that can have been late."""
    with agym.make(Tally, 2, backend=FORK) as envs:
        envs.reset()
        envs.step([1, 1])
        backend = backend_of(envs)
        finished = backend.finished_at()
        assert 0.0 < finished <= time.perf_counter()
        assert due(backend, finished - 1.0, finished + 0.25) == finished
        assert due(backend, finished, finished + LATE_SECONDS / 2) == 0.0
        envs.step([1, 1])
        assert backend.finished_at() > finished
