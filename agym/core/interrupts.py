"""Signals wait for the end of what must not be broken off half-way.

The handler of a signal may raise, as that of Ctrl-C does, and Python runs it in the main thread
between any two instructions, so also between taking an outcome and accounting for it. While a sync
call runs, the handlers of :data:`SIGNALS` are replaced by one that only remembers; where the call
runs environments or sleeps, it lets go::

    with Uninterrupted():      # remembers
        ...
        with Interruptible():  # calls the handler at once
            ...
        ...
                               # calls now what it remembered
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident, main_thread
from typing import Any, ClassVar

# What ``signal`` wraps: its detour over enums takes 8 us where this takes 0.5.
_plain_signal = importlib.import_module("_signal")

# Those whose handlers raise: Ctrl-C, a program that leaves when it is told to end, and a time limit
# of ``signal.alarm``.
SIGNALS = (int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIGALRM))

# A sleeper looks again after this long, whatever happens. Python does not notice a signal that
# comes just before a thread goes to sleep on a lock.
RECHECK_SECONDS = 1.0

Handler = Callable[[int, Any], Any]


class _State:
    """Of the main thread, which is the only one to get signals.

    Attributes:
        owner: The thread, while an uninterrupted block runs.
        handlers: The caller's, of signals whose handler is replaced.
        held: Whether signals have to wait.
        pending: Those that do.
    """

    owner: int | None = None
    handlers: ClassVar[dict[int, Handler]] = {}
    held = False
    pending: ClassVar[list[int]] = []


def _remember(signum: int, frame: Any) -> None:
    if not _State.held:
        _State.handlers[signum](signum, frame)
    elif signum not in _State.pending:
        _State.pending.append(signum)


def _put_back() -> None:
    """Install the caller's handlers again."""
    for signum, handler in tuple(_State.handlers.items()):  # a handler may run, and call agym
        if _plain_signal.getsignal(signum) is _remember:
            _plain_signal.signal(signum, handler)


def _forget() -> None:
    """In a forked child, which runs nothing of the block and is not sent what the parent was."""
    _State.owner, _State.held = None, False
    _State.pending.clear()
    with suppress(ValueError):  # Python runs inside a program whose main thread is another one
        _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _deliver() -> None:
    """Call the handlers of what has waited, all of them, also when one raises."""
    if _State.pending:
        signum = _State.pending.pop(0)
        try:
            _State.handlers[signum](signum, None)
        finally:
            _deliver()


class Uninterrupted:
    """A block that no signal breaks off. In other threads than the main one it does nothing.

    The caller's handlers are called afterwards; one that is no Python function stays in place.
    """

    _replaces = False
    _nested = False
    _was_held = False

    def __enter__(self) -> None:
        """Hold signals back."""
        thread = get_ident()
        if _State.owner == thread:
            self._nested, self._was_held = True, _State.held
            _State.held = True
        elif thread == main_thread().ident:
            self._replace()

    def _replace(self) -> None:
        """Remember signals from here on. One that raises before the last line changes nothing."""
        for signum in SIGNALS:
            handler = _plain_signal.getsignal(signum)
            if callable(handler) and handler is not _remember:
                _State.handlers[signum] = handler
                try:
                    _plain_signal.signal(signum, _remember)
                except ValueError:
                    return  # Python runs inside a program whose main thread is another one
        self._replaces = True
        _State.owner, _State.held = get_ident(), True

    def __exit__(self, *_: object) -> None:
        """Let them through, also those that came meanwhile."""
        if self._nested:
            _State.held = self._was_held
        elif self._replaces:
            _State.owner, _State.held = None, False
            _put_back()
        else:
            return
        if not _State.held:
            _deliver()


class Interruptible:
    """A part of such a block that signals do break off."""

    _was_held = False

    def __enter__(self) -> None:
        """Let signals through, also those that came before."""
        if _State.held and _State.owner == get_ident():
            self._was_held, _State.held = True, False
            try:
                _deliver()
            except BaseException:
                _State.held = True
                raise

    def __exit__(self, *_: object) -> None:
        """Hold them back as before."""
        if self._was_held:
            _State.held = True
