"""Signals are held back, let through, and handed to whoever was there before."""

# ruff: noqa: PT012 - the blocks are what is tested

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType

import pytest

from agym.core._system.defer_signals import SIGNALS, Interruptible, Uninterrupted


def interrupt(signum: int = signal.SIGINT) -> None:
    signal.raise_signal(signum)


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    """All raise ``KeyboardInterrupt``, as the one of Ctrl-C does."""
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    for signum in SIGNALS:
        signal.signal(signum, signal.default_int_handler)
    yield
    after = [signal.getsignal(signum) for signum in SIGNALS]
    for signum, handler in before.items():
        signal.signal(signum, handler)
    assert after == [signal.default_int_handler] * len(SIGNALS)


each_signal = pytest.mark.parametrize("signum", SIGNALS)


@each_signal
@pytest.mark.parametrize(
    ("program", "reached"),
    [
        ("{ signal a }", "a"),  # it comes after the block
        ("{ ( signal a ) }", ""),  # it comes at once where it may
        ("{ signal a ( b ) }", "a"),
        ("{ ( ) signal a }", "a"),
        ("{ ( { signal a } b ) }", "a"),  # blocks nest: an environment may use agym itself
    ],
)
def test_a_signal_comes_where_it_may(signum: int, program: str, reached: str) -> None:
    """Braces are uninterrupted, parentheses are interruptible."""
    seen, blocks = "", {"{": Uninterrupted, "(": Interruptible}
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        opened = [stack]
        for word in program.split():
            if word in blocks:
                opened.append(opened[-1].enter_context(ExitStack()))
                opened[-1].enter_context(blocks[word]())
            elif word in "})":
                opened.pop().close()
            elif word == "signal":
                interrupt(signum)
            else:
                seen += word
    assert seen == reached


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


def test_of_two_signals_none_is_lost() -> None:
    """A handler that raises does not keep the other one from being called."""
    with pytest.raises(KeyboardInterrupt) as caught, Uninterrupted():
        interrupt(signal.SIGTERM)
        interrupt(signal.SIGINT)
    assert isinstance(caught.value.__context__, KeyboardInterrupt)


def test_a_handler_that_is_set_within_a_block_stays() -> None:
    """An environment may set one, in its step."""
    with Uninterrupted(), Interruptible():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.signal(signal.SIGTERM, signal.default_int_handler) is signal.SIG_IGN


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


@each_signal
def test_a_forked_child_has_the_callers_handlers(signum: int) -> None:
    """And nothing of what the parent was sent: it may be a worker, which runs on for long."""
    code = 1
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        interrupt(signum)
        child = os.fork()
        if not child:
            try:
                with Uninterrupted():
                    pass  # what the parent got does not come here
                interrupt(signum)
            except KeyboardInterrupt:
                code = 42
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 42
