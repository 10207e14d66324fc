"""Exit handling: closes open environments while threads and modules still work.

After the ``atexit`` functions, Python stops all daemon threads and tears modules down. Environments
which are closed only then (by ``__del__``, or by a generator suspended inside its ``with`` block)
would wait for threads that never reply. Their owners therefore register here. They are closed after
the ``atexit`` functions of the program itself, because those may still use environments.
"""

from __future__ import annotations

import atexit
import multiprocessing.util  # noqa: F401  (see below)
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from agym.core._system.platform import time_limit

# Limit per object: an environment in the caller's thread may hang while it is closed.
LEAVE_SECONDS = 5.0

_leaves: set[weakref.WeakMethod[Callable[[], None]]] = set()


def close_at_exit(leave: Callable[[], None]) -> None:
    """Call a method when Python ends, if its object is still alive.

    The method must release everything quickly. The object is not used afterwards.
    """
    _leaves.add(weakref.WeakMethod(leave, _leaves.discard))


# ``atexit`` runs in reverse order. multiprocessing and weakref must register first, so that they
# run after this module: finalizers do nothing once weakref's own exit function has run.
weakref.finalize(close_at_exit, bool).detach()


@atexit.register
def _close_all() -> None:
    # A copy, because closing an object may end others, whose callbacks change the set.
    for reference in [*_leaves]:
        leave = reference()
        if leave is not None:
            with suppress(Exception, _TooLongError), time_limit(LEAVE_SECONDS, _break_off):
                leave()


class _TooLongError(BaseException):
    """Interrupts a method that exceeds its limit."""


def _break_off(signum: int, frame: Any) -> NoReturn:
    raise _TooLongError
