"""What every system that is compared has to offer: make, step for a while, close.

All get the same factories and actions, give arrays, and reset a finished environment at its
next step, which counts as a step. Stable-Baselines3 knows only a reset within the last step.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import cycle
from typing import Any, ClassVar

from agym._system.extras import how_to_get, installed
from benchmarks.works import Actions, Work

# More processes than this for one system are not worth the wait.
MAX_PROCESSES = 64


class System(ABC):
    """One way to run environments; by default around a vector environment of Gymnasium's form.

    Attributes:
        name: Its row in tables.
        process_per_env: Whether each environment costs a process.
        max_processes: How many of them are worth the wait.
        extra: The extra of agym that brings it, and its module, if it is optional.
    """

    name: ClassVar[str]
    process_per_env: ClassVar[bool] = False
    max_processes: ClassVar[int] = MAX_PROCESSES
    extra: ClassVar[tuple[str, str] | None] = None

    def __init__(self, work: Work, actions: Actions, workers: int) -> None:
        """Make the environments."""
        self._num_envs = work.num_envs
        self._actions = cycle(self.choose(actions))
        self._envs = self.make(work, workers)

    @classmethod
    def why_not(cls, work: Work) -> str | None:
        """Say why it cannot be measured on some work, ``None`` if it can."""
        if cls.extra is not None and not installed(cls.extra[1]):
            return how_to_get(cls.extra[1], cls.extra[0])
        if cls.process_per_env and work.num_envs > cls.max_processes:
            return f"skipped, for it takes a process per environment (over {cls.max_processes})"
        return None

    @abstractmethod
    def make(self, work: Work, workers: int) -> Any:
        """Make what is stepped."""

    def choose(self, actions: Actions) -> list[Any]:
        """The form of actions that it takes."""
        return actions.batches

    def reset(self) -> None:
        """Reset all environments."""
        self._envs.reset(seed=0)

    def step(self, actions: Any) -> None:
        """Step every environment once."""
        self._envs.step(actions)

    def run(self, seconds: float) -> float:
        """Step for so long; gives steps of environments per second."""
        step, actions, batches, elapsed = self.step, self._actions, 0, 0.0
        begun = time.perf_counter()
        while elapsed < seconds:
            step(next(actions))
            batches += 1
            elapsed = time.perf_counter() - begun
        return batches * self._num_envs / elapsed

    def run_in(self, seconds: float) -> None:
        """Step for so long, unmeasured."""
        self.run(seconds)

    def close(self) -> None:
        """Close the environments and end what runs them."""
        self._envs.close()


class Contest(Work, ABC):
    """A work that only some systems take part in."""

    @property
    @abstractmethod
    def systems(self) -> Sequence[type[System]]:
        """What is compared."""
