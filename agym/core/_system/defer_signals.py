"""Signal deferral: delays signal handlers until a critical section ends.

A handler may raise, as Ctrl-C's does. Python runs it in the main thread between any two
instructions, so also between receiving a completion and accounting for it. During a sync call, the
handlers of :data:`SIGNALS` are replaced by one that only records the signal. Where the call runs
environments or sleeps, handlers run at once::

    with Uninterrupted():      # record signals
        ...
        with Interruptible():  # call handlers at once
            ...
        ...
                               # on exit, call the handlers of recorded signals
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident, main_thread
from typing import Any

# The C module behind ``signal``: a call takes 0.5 us, and 8 us through ``signal``'s enums.
_plain_signal = importlib.import_module("_signal")
_getsignal, _setsignal = _plain_signal.getsignal, _plain_signal.signal

# Signals whose handlers raise: Ctrl-C, termination, and the limit of ``signal.alarm``. Windows does
# not have the last.
_NAMES = ("SIGINT", "SIGTERM", "SIGALRM")
SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))

# Longest sleep. Python misses a signal that arrives just before a thread blocks on a lock.
RECHECK_SECONDS = 1.0

Handler = Callable[[int, Any], Any]


class _MainThread:
    """State of the main thread, the only thread that receives signals.

    Attributes:
        ident: Its id.
        owner: The thread's id while an uninterrupted block runs.
        handlers: The caller's handlers of signals whose handler is replaced.
        held: Whether signals are deferred.
        pending: The signals that are deferred.
    """

    # An instance with slots, because each assignment to a class makes Python forget its look-ups.
    __slots__ = ("handlers", "held", "ident", "owner", "pending")

    def __init__(self) -> None:
        self.ident = main_thread().ident
        self.owner: int | None = None
        self.handlers: dict[int, Handler] = {}
        self.held = False
        self.pending: list[int] = []


_main = _MainThread()


def _remember(signum: int, frame: Any) -> None:
    if not _main.held:
        _main.handlers[signum](signum, frame)
    elif signum not in _main.pending:
        _main.pending.append(signum)


def _put_back() -> None:
    """Install the caller's handlers again."""
    for signum, handler in (*_main.handlers.items(),):  # a handler may call agym meanwhile
        if _getsignal(signum) is _remember:
            _setsignal(signum, handler)


def _forget() -> None:
    """Reset the state in a forked child, where neither the block nor the parent's signals exist."""
    _main.ident, _main.owner, _main.held = get_ident(), None, False
    _main.pending.clear()
    with suppress(ValueError):  # Python is embedded: the main thread is not Python's
        _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _deliver() -> None:
    """Call the handlers of all pending signals, even if one of them raises."""
    if _main.pending:
        signum = _main.pending.pop(0)
        try:
            _main.handlers[signum](signum, None)
        finally:
            _deliver()


class Uninterrupted:
    """A block that no signal interrupts. Outside of the main thread it does nothing.

    The caller's handlers run after the block. A handler that is not a Python function stays
    installed.
    """

    _replaces = False
    _nested = False
    _was_held = False

    def __enter__(self) -> None:
        thread = get_ident()
        if _main.owner == thread:
            self._nested, self._was_held = True, _main.held
            _main.held = True
        elif thread == _main.ident:
            self._replace()

    def _replace(self) -> None:
        """Record signals from here on. A handler that raises before the last line has no effect."""
        for signum in SIGNALS:
            handler = _getsignal(signum)
            if callable(handler) and handler is not _remember:
                _main.handlers[signum] = handler
                try:
                    _setsignal(signum, _remember)
                except ValueError:
                    return  # Python is embedded: the main thread is not Python's
        self._replaces = True
        _main.owner, _main.held = get_ident(), True

    def __exit__(self, *_: object) -> None:
        if self._nested:
            _main.held = self._was_held
        elif self._replaces:
            _main.owner, _main.held = None, False
            _put_back()
        else:
            return
        if _main.pending and not _main.held:
            _deliver()


class Interruptible:
    """A part of an :class:`Uninterrupted` block in which handlers run at once."""

    _was_held = False

    def __enter__(self) -> None:
        if _main.held and _main.owner == get_ident():
            self._was_held, _main.held = True, False
            try:
                _deliver()
            except BaseException:
                _main.held = True
                raise

    def __exit__(self, *_: object) -> None:
        if self._was_held:
            _main.held = True
