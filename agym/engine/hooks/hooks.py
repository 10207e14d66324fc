"""Hooks, which are called while steps are under way, for example to record a video.

Without hooks, steps have no extra cost. Hooks run in the caller's thread and must be fast.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from agym.engine.batches.results import Batch, StepResult
from agym.protocol.arguments import Ids

StepOutcome = StepResult[Any] | Batch[Any]


class Hook:
    """Base class of hooks; each method does nothing unless it is overridden."""

    def before_step(self, ids: Ids) -> None:
        """Called before a step is sent; operations dispatched here come before it."""

    def after_reset_sent(self, number: int, ids: Ids) -> None:
        """Called after a reset was sent; later operations have higher numbers."""

    def after_step(self, number: int | None, ids: Ids, result: StepOutcome) -> None:
        """Called before the caller gets the result of steps.

        Args:
            number: Number of the steps' operation; ``None`` if they come after all resets.
            ids: The environments, in the order of the result's rows.
            result: Rewards and flags as arrays.
        """


class Hooks:
    """The hooks of one engine.

    Attributes:
        all: The hooks, in the order of calls.
    """

    def __init__(self) -> None:
        self.all: tuple[Hook, ...] = ()
        self._lock = threading.Lock()  # a live page attaches and detaches in its own thread

    def __bool__(self) -> bool:
        return bool(self.all)

    def __iter__(self) -> Iterator[Hook]:
        """Iterate in the order of calls."""
        return iter(self.all)

    def add(self, hook: Hook, *, first: bool = False) -> None:
        """Add a hook at the end, or as the first."""
        with self._lock:
            self.all = (hook, *self.all) if first else (*self.all, hook)

    def remove(self, hook: Hook) -> None:
        """Remove a hook. Idempotent."""
        with self._lock:
            self.all = tuple(other for other in self.all if other is not hook)

    def before_step(self, ids: Ids) -> None:
        for hook in self.all:
            hook.before_step(ids)

    def after_reset_sent(self, number: int, ids: Ids) -> None:
        for hook in self.all:
            hook.after_reset_sent(number, ids)

    def after_step(self, number: int | None, ids: Ids, result: StepOutcome) -> None:
        for hook in self.all:
            hook.after_step(number, ids, result)
