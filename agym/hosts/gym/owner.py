"""The thread that makes, uses and closes one environment, where environments change places.

Without spares that is the thread of the host. With spares each environment has its own, for its
whole life, so a spare is reset while the host steps others, and no library notices::

    call(function) --> inbox --> thread: function() --> the caller's future
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Call = tuple[Callable[[], Any], "Future[Any]"]


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
        self._inbox: SimpleQueue[Call | None] = SimpleQueue()
        # A daemon, since a thread that hangs cannot be killed and must not keep Python alive.
        self._thread = threading.Thread(
            target=_serve, args=(self._inbox,), name="agym-env", daemon=True
        )
        self._thread.start()
        weakref.finalize(self, self._inbox.put, None)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in the thread, after what it was given before."""
        future: Future[T] = Future()
        self._inbox.put((function, future))
        return future

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread; return what it returns."""
        if threading.get_ident() == self._thread.ident:
            return function()
        return self.submit(function).result()

    def stop(self) -> None:
        """End the thread, after what it was given before."""
        self._inbox.put(None)

    def join(self, seconds: float) -> None:
        """Wait for its end, but not longer than some seconds."""
        self._thread.join(seconds)


def _serve(inbox: SimpleQueue[Call | None]) -> None:
    while (item := inbox.get()) is not None:
        function, future = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
        del item, function, future  # not kept until the next one arrives
