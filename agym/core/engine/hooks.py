"""Hooks: callbacks on steps, resets and waits, for example to record a video.

A step without hooks pays one test at each place that calls hooks. Hooks must be fast, except for
hooks that hold results back. They run in a thread of the caller: ``after_step`` in any thread that
waits for environments at that moment, ``after_removal`` in the thread that removes the hook.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any, ClassVar

from agym.core.engine.batches.results import Batch, StepResult
from agym.core.protocol.arguments import Ids

StepOutcome = StepResult[Any] | Batch[Any]


class Hook:
    """Base class of hooks; each method does nothing unless it is overridden.

    Example:
        >>> import agym
        >>> class CountEpisodes(agym.Hook):
        ...     ended = 0
        ...     def after_step(self, number, ids, result):
        ...         self.ended += (result.terminated | result.truncated).sum()
        >>> with agym.make("CartPole-v1", 2, autoreset="same_step") as envs:
        ...     envs.tap.add_hook(hook := CountEpisodes())
        ...     observations, infos = envs.reset(seed=0)
        ...     for _ in range(100):
        ...         result = envs.step([0, 0])
        >>> int(hook.ended) > 10
        True

    A hook runs in the caller's thread, inside the caller's calls: be fast, and don't raise. All
    ids are those of the whole set, also for a group of ``split``.

    Attributes:
        follows_steps: Whether it needs ``before_step`` or ``after_step`` of every step. Without
            such a hook, a step of ``serial`` may run inline.
    """

    follows_steps: ClassVar[bool] = True

    def before_step(self, ids: Ids) -> None:
        """Called before a step is sent; operations dispatched here come before it."""

    def after_reset_sent(self, number: int, ids: Ids, *, restored: bool) -> None:
        """Called after a reset was sent; later operations have higher numbers.

        ``restored`` says that the environments continue from snapshots instead.
        """

    def after_steps_lost(self, ids: Ids) -> None:
        """Called when results of steps are dropped: another environment raised or was late."""

    def after_step(self, number: int | None, ids: Ids, result: StepOutcome) -> None:
        """Called before the caller gets the result of steps.

        Args:
            number: Number of the steps' operation; ``None`` if they come after all resets.
            ids: The environments, in the order of the result's rows.
            result: Rewards and flags as arrays.
        """

    def after_wait(self, name: str, started: float, stopped: float, *, in_task: bool) -> None:
        """Called after the caller waited for an operation; not if the result was there at once.

        Args:
            name: Name of the operation.
            started: When the caller started to wait, in seconds of ``perf_counter``.
            stopped: When it stopped waiting.
            in_task: Whether a task of an event loop waited; otherwise a thread did.
        """

    @property
    def holds(self) -> bool:
        """Whether it may hold results of steps back; if not, ``hold`` is not called."""
        return False

    def hold(self, end: float | None) -> None:
        """Block the thread that is about to return the result of steps.

        Args:
            end: ``time.monotonic()`` at which the result must be returned, ``None`` for no limit.
        """

    def holding(self, end: float | None) -> Generator[Any, None, None]:
        """Do the same as :meth:`hold` in a task of the running event loop."""
        yield from ()

    def after_removal(self) -> None:
        """Called after the hook was removed; it must release all callers that it blocks."""


class Hooks:
    """The hooks of one engine.

    Attributes:
        all: The hooks, in the order of calls.
        follow_steps: Whether each step must call a hook.
    """

    def __init__(self) -> None:
        self.all: tuple[Hook, ...] = ()
        self.follow_steps = False
        # A live page adds and removes its hook in its own thread. Readers take no lock: ``all`` is
        # an immutable tuple that is replaced as a whole, so a loop over it sees old or new hooks.
        self._lock = threading.Lock()

    def add(self, hook: Hook, *, first: bool = False) -> None:
        """Add a hook at the end, or as the first. Idempotent."""
        with self._lock:
            if hook not in self.all:
                self._set((hook, *self.all) if first else (*self.all, hook))

    def remove(self, hook: Hook) -> None:
        """Remove a hook. Idempotent."""
        with self._lock:
            present = hook in self.all
            self._set(tuple(other for other in self.all if other is not hook))
        if present:
            hook.after_removal()

    def _set(self, hooks: tuple[Hook, ...]) -> None:
        self.all = hooks
        self.follow_steps = any(hook.follows_steps for hook in hooks)

    # Called by the waiters. The engine loops over ``all`` itself.

    def after_wait(self, name: str, started: float, stopped: float, *, in_task: bool) -> None:
        for hook in self.all:
            hook.after_wait(name, started, stopped, in_task=in_task)

    @property
    def holds(self) -> bool:
        """Whether any of them may hold results of steps back."""
        return any(hook.holds for hook in self.all)

    def hold(self, end: float | None) -> None:
        for hook in self.all:
            hook.hold(end)

    def holding(self, end: float | None) -> Generator[Any, None, None]:
        for hook in self.all:
            yield from hook.holding(end)
