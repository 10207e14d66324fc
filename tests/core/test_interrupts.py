"""Ctrl-C is held back, let through, and handed to whoever was there before."""

# ruff: noqa: PT012 - the blocks are what is tested

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from agym.core.interrupts import Interruptible, Uninterrupted


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def handler_is_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_it_comes_after_the_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        interrupt()
        reached.append("end")
    assert reached == ["end"]


def test_it_comes_at_once_where_it_may() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted(), Interruptible():
        interrupt()
        reached.append("end")
    assert not reached


def test_what_came_before_comes_where_it_may() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        interrupt()
        reached.append("held")
        with Interruptible():
            reached.append("never")
    assert reached == ["held"]


def test_after_an_interruptible_part_it_is_held_again() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        with Interruptible():
            pass
        interrupt()
        reached.append("end")
    assert reached == ["end"]


def test_blocks_nest() -> None:
    """An environment may use agym itself."""
    reached = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted(), Interruptible():
        with Uninterrupted():
            interrupt()
            reached.append("inner")
        reached.append("outer")
    assert reached == ["inner"]


def test_an_error_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, Uninterrupted():
        interrupt()
        raise ValueError("first")
    assert isinstance(caught.value.__context__, ValueError)


def test_the_callers_handler_is_called() -> None:
    came: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with Uninterrupted():
            interrupt()
            assert not came
        assert came == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Uninterrupted():
            interrupt()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_not_concerned() -> None:
    done = []

    def work() -> None:
        with Uninterrupted(), Interruptible():
            done.append(True)

    thread = threading.Thread(target=work)
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        thread.start()
        thread.join()
        interrupt()  # the thread has not let it through
        done.append(False)
    assert done == [True, False]
