"""Exits: what is left open is left when Python ends, while everything still works.

After the functions of ``atexit`` Python stops all daemon threads wherever they are, and then lets
go of modules and their objects. Who closes environments only then, a generator that was left in the
middle of its ``with`` block or a ``__del__``, would wait for threads that never answer. So whoever
may be left open registers here, and is told to leave at the last moment at which it can: after
functions that the program has registered with ``atexit`` itself, which may use environments.
"""

from __future__ import annotations

import atexit
import multiprocessing.util  # noqa: F401  (see below)
import signal
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

# How long one may take: an environment of the caller's own thread may hang while it is closed.
LEAVE_SECONDS = 5.0

_leaves: set[weakref.WeakMethod[Callable[[], None]]] = set()


def close_at_exit(leave: Callable[[], None]) -> None:
    """Have a method called when Python ends, if its object is still there.

    It lets go of everything, soon; the object is not used any more, or finds itself closed.
    """
    _leaves.add(weakref.WeakMethod(leave, _leaves.discard))


# What multiprocessing and weakref register is to be called after ours: finalizers do nothing then.
weakref.finalize(close_at_exit, bool).detach()


@atexit.register
def _close_all() -> None:
    for reference in [*_leaves]:
        leave = reference()
        if leave is not None:
            with suppress(Exception, _TooLongError), _at_most(LEAVE_SECONDS):
                leave()


class _TooLongError(BaseException):
    """Ends what takes too long."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Break a block off, where the system can."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _break_off)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _break_off(signum: int, frame: Any) -> NoReturn:
    raise _TooLongError
