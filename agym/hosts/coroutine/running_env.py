"""Tracks the running coroutine environment, so that a hang or a crash can be attributed.

Many environments share one event loop, so the running one is recorded at every turn::

    marker[0] = id + 1;  run until the next await;  marker[0] = 0
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

RunningSlot = memoryview | list[int]


@types.coroutine
def track_running(
    awaitable: Awaitable[T], marker: RunningSlot, slot: int
) -> Generator[Any, Any, T]:
    """Await something, and record the environment's id while each turn of it runs."""
    turns = awaitable.__await__()
    answer: Any = None
    thrown: BaseException | None = None
    while True:
        marker[0] = slot + 1
        try:
            asked = turns.send(answer) if thrown is None else turns.throw(thrown)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            marker[0] = 0
        answer = thrown = None
        try:
            answer = yield asked
        except BaseException as error:  # such as cancellation
            thrown = error
