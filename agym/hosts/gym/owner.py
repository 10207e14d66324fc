"""The thread that makes, uses and closes one environment, where environments change places.

Without spares that is the thread of the host. With spares each environment has its own, for its
whole life, so a spare is reset while the host steps others, and no library notices::

    call(function) --> inbox --> thread: function() --> a queue of the call's own --> its result
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

# What a function returned, or raised.
Outcome = tuple[Any, BaseException | None]
Inbox = SimpleQueue[tuple[Callable[[], Any], "SimpleQueue[Outcome] | None"] | None]


class OwnerThread:
    """A thread for one environment.

    Attributes:
        env: The environment, while it is a spare; ``None`` if it has not been made.
        key: What environments that may stand in for each other have in common.
    """

    def __init__(self, key: object) -> None:
        """Start the thread."""
        self.key = key
        self.env: Any = None
        self._inbox: Inbox = SimpleQueue()
        # A daemon, since a thread that hangs cannot be killed and must not keep Python alive.
        self._thread = threading.Thread(
            target=_serve, args=(self._inbox,), name="agym-env", daemon=True
        )
        self._thread.start()
        weakref.finalize(self, self._inbox.put, None)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in the thread, after what it was given before."""
        future: Future[T] = Future()
        self._inbox.put((partial(_fulfil, future, function), None))
        return future

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread; return what it returns."""
        if threading.get_ident() == self._thread.ident:
            return function()
        # In a third of the time of a future. A queue for each call, since Ctrl-C may leave the
        # outcome of one behind.
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._inbox.put((function, outcomes))
        value, error = outcomes.get()
        if error is not None:
            try:
                raise error
            finally:
                del error  # which refers to this frame
        result: T = value
        return result

    def stop(self) -> None:
        """End the thread, after what it was given before."""
        self._inbox.put(None)

    def join(self, seconds: float) -> None:
        """Wait for its end, but not longer than some seconds."""
        self._thread.join(seconds)


def _serve(inbox: Inbox) -> None:
    while (item := inbox.get()) is not None:
        function, outcomes = item
        outcome: Outcome
        try:
            outcome = function(), None
        except BaseException as error:
            outcome = None, error
        if outcomes is not None:
            outcomes.put(outcome)
        del item, function, outcomes, outcome  # not kept until the next one arrives


def _fulfil(future: Future[T], function: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
