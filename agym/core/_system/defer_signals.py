"""Signal deferral: delays signal handlers until a critical section ends.

A handler may raise, as the handler of Ctrl-C does. Python runs it in the main thread between any
two instructions, for example between receiving a completion and accounting for it. During a sync
call, the handlers of :data:`SIGNALS` are replaced by a handler that only records the signal. While
the call runs environments or sleeps, handlers run at once::

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

# Signals whose handlers raise: Ctrl-C, termination, and the limit of ``signal.alarm``, which does
# not exist on Windows.
_NAMES = ("SIGINT", "SIGTERM", "SIGALRM")
SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))

# The longest sleep. Python misses a signal that arrives just before a thread blocks on a lock.
RECHECK_SECONDS = 1.0

Handler = Callable[[int, Any], Any]


class _MainThread:
    """State of the main thread, the only thread in which Python runs signal handlers.

    Attributes:
        ident: Its id.
        owner: The thread's id while an uninterrupted block runs.
        handlers: The caller's handlers of signals whose handlers are replaced.
        deferring: Whether signals are deferred.
        pending: The signals that are deferred.
    """

    # An instance with slots: an assignment to a class attribute clears Python's lookup caches.
    __slots__ = ("deferring", "handlers", "ident", "owner", "pending")

    def __init__(self) -> None:
        self.ident = main_thread().ident
        self.owner: int | None = None
        self.handlers: dict[int, Handler] = {}
        self.deferring = False
        self.pending: list[int] = []


_main = _MainThread()


def _remember(signum: int, frame: Any) -> None:
    # Nothing is deferred inside ``Interruptible``, or while handlers are replaced or restored.
    if not _main.deferring:
        _main.handlers[signum](signum, frame)
    elif signum not in _main.pending:
        _main.pending.append(signum)


def _put_back() -> None:
    """Install the caller's handlers again."""
    # A copy, because a handler may run between two iterations, call agym, and change the dict.
    for signum, handler in (*_main.handlers.items(),):
        if _getsignal(signum) is _remember:
            _setsignal(signum, handler)


def _forget() -> None:
    """Reset the state in a forked child, where neither the block nor the parent's signals exist."""
    _main.ident, _main.owner, _main.deferring = get_ident(), None, False
    _main.pending.clear()
    with suppress(ValueError):  # Python is embedded, and does not own the main thread
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
    """A block that no signal interrupts. Outside the main thread it does nothing.

    The caller's handlers run after the block. A handler that is not a Python function stays
    installed.
    """

    _replaces = False
    _nested = False
    _was_deferring = False

    def __enter__(self) -> None:
        thread = get_ident()
        if _main.owner == thread:
            self._nested, self._was_deferring = True, _main.deferring
            _main.deferring = True
        elif thread == _main.ident:
            self._replace()

    def _replace(self) -> None:
        """Record signals from now on.

        A handler may raise between any two lines. Then ``_remember`` stays installed for some
        signals. It defers nothing, because ``deferring`` is set last, and so it only calls the
        caller's handlers, until the end of the next block restores them.
        """
        for signum in SIGNALS:
            handler = _getsignal(signum)
            if callable(handler) and handler is not _remember:
                _main.handlers[signum] = handler
                try:
                    _setsignal(signum, _remember)
                except ValueError:
                    return  # Python is embedded, and does not own the main thread
        self._replaces = True
        _main.owner, _main.deferring = get_ident(), True

    def __exit__(self, *_: object) -> None:
        if self._nested:
            _main.deferring = self._was_deferring
        elif self._replaces:
            # From here on, handlers run at once again. Signals recorded until here follow below.
            _main.owner, _main.deferring = None, False
            _put_back()
        else:
            return
        if _main.pending and not _main.deferring:
            _deliver()


class Interruptible:
    """Part of an :class:`Uninterrupted` block in which handlers run at once."""

    _was_deferring = False

    def __enter__(self) -> None:
        if _main.deferring and _main.owner == get_ident():
            self._was_deferring, _main.deferring = True, False
            try:
                _deliver()
            except BaseException:  # ``__exit__`` is not called if ``__enter__`` raises
                _main.deferring = True
                raise

    def __exit__(self, *_: object) -> None:
        if self._was_deferring:
            _main.deferring = True
