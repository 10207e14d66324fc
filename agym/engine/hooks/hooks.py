"""Listeners: who is told of steps while they are under way, such as a recording or a live page.

Without any, steps cost nothing more. They run in the caller's thread, and must not take long.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from agym.engine.batches.results import Batch, StepResult
from agym.protocol.arguments import Ids

StepOutcome = StepResult[Any] | Batch[Any]


class Hook:
    """Is told of steps and resets; each method does nothing unless it is overridden."""

    def before_step(self, ids: Ids) -> None:
        """Environments are about to be sent a step; what is dispatched here comes before it."""

    def after_reset_sent(self, number: int, ids: Ids) -> None:
        """A reset was sent; what is sent after it has higher numbers."""

    def after_step(self, number: int | None, ids: Ids, result: StepOutcome) -> None:
        """The caller gets what came of steps.

        Args:
            number: When they were sent; ``None`` if after all resets.
            ids: The environments, in the order of the result's rows.
            result: Rewards and flags as arrays.
        """


class Hooks:
    """Those of one engine."""

    def __init__(self) -> None:
        """None yet."""
        self._all: tuple[Hook, ...] = ()
        self._lock = threading.Lock()  # a live page comes and goes in a thread of its own

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._all)

    def __iter__(self) -> Iterator[Hook]:
        """Them, in the order in which they are told."""
        return iter(self._all)

    def add(self, listener: Hook, *, first: bool = False) -> None:
        """Tell a listener from now on, before the others if it is to be the first."""
        with self._lock:
            self._all = (listener, *self._all) if first else (*self._all, listener)

    def remove(self, listener: Hook) -> None:
        """Tell it nothing any more. Idempotent."""
        with self._lock:
            self._all = tuple(other for other in self._all if other is not listener)

    def before_step(self, ids: Ids) -> None:
        """Tell all of a step that is about to be dispatched."""
        for listener in self._all:
            listener.before_step(ids)

    def after_reset_sent(self, number: int, ids: Ids) -> None:
        """Tell all of a reset."""
        for listener in self._all:
            listener.after_reset_sent(number, ids)

    def after_step(self, number: int | None, ids: Ids, result: StepOutcome) -> None:
        """Tell all of results."""
        for listener in self._all:
            listener.after_step(number, ids, result)
