"""Ctrl-C waits for the end of what must not be broken off half-way.

Python raises ``KeyboardInterrupt`` in the main thread between any two instructions, so also
between taking an outcome and accounting for it. While a sync call runs, the handler of SIGINT is
replaced by one that only remembers; where the call runs environments or sleeps, it lets go::

    with Uninterrupted():      # remembers
        ...
        with Interruptible():  # raises
            ...
        ...
                               # raises now what it remembered
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable
from threading import get_ident
from typing import Any

# What ``signal`` wraps: its detour over enums takes 8 us where this takes 0.5.
_plain_signal = importlib.import_module("_signal")

Handler = Callable[[int, Any], Any]


class _State:
    """Of the main thread, which is the only one to get signals.

    Attributes:
        owner: The thread, while an uninterrupted block runs.
        outer: The handler that is in place outside of that.
        held: Whether Ctrl-C has to wait.
        pending: Whether one does.
    """

    owner: int | None = None
    outer: Handler | None = None
    held = False
    pending = False


def _remember(signum: int, frame: Any) -> None:
    if _State.held or _State.outer is None:
        _State.pending = True
    else:
        _State.outer(signum, frame)


def _deliver(handler: Handler | None) -> None:
    if _State.pending and handler is not None:
        _State.pending = False
        handler(signal.SIGINT, None)


class Uninterrupted:
    """A block that Ctrl-C does not break off. In other threads than the main one it does nothing.

    The caller's handler is called afterwards; one that is no Python function stays in place.
    """

    _previous: Handler | None = None
    _was_held = False

    def __enter__(self) -> None:
        """Hold Ctrl-C back."""
        previous = _plain_signal.getsignal(signal.SIGINT)
        if not callable(previous):
            return
        try:
            _plain_signal.signal(signal.SIGINT, _remember)
        except ValueError:
            return  # not the main thread
        self._previous = previous
        if previous is _remember:
            self._was_held = _State.held
        else:
            _State.owner, _State.outer = get_ident(), previous
        _State.held = True

    def __exit__(self, *_: object) -> None:
        """Let it through, also one that came meanwhile."""
        if self._previous is None:
            return
        _plain_signal.signal(signal.SIGINT, self._previous)
        outer = _State.outer
        _State.held = self._was_held
        if self._previous is not _remember:
            _State.owner = _State.outer = None
        if not _State.held:
            _deliver(outer)


class Interruptible:
    """A part of such a block that Ctrl-C does break off."""

    _was_held = False

    def __enter__(self) -> None:
        """Let Ctrl-C through, also one that came before."""
        if _State.held and _State.owner == get_ident():
            self._was_held, _State.held = True, False
            _deliver(_State.outer)

    def __exit__(self, *_: object) -> None:
        """Hold it back as before."""
        if self._was_held:
            _State.held = True
