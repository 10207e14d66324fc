"""Base class of all compared systems: make, step for a while, close.

All systems get the same factories and actions and return arrays. They reset a finished environment
at its next step, which counts as a step; only Stable-Baselines3 resets within the last step.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import cycle
from typing import Any, ClassVar

from agym.core._system.extras import how_to_get, installed
from benchmarks.measuring.workloads import Actions, Workload

# Systems with more processes than this take too long.
MAX_PROCESSES = 64


class System(ABC):
    """One way to run environments; by default a wrapper of a Gymnasium vector environment.

    Attributes:
        name: Its row in tables.
        process_per_env: Whether each environment has a process.
        max_processes: Maximum number of such processes.
        extra: agym's extra and the module that it needs, if it is optional.
        choice: The choice, if the system makes one.
    """

    name: ClassVar[str]
    process_per_env: ClassVar[bool] = False
    max_processes: ClassVar[int] = MAX_PROCESSES
    extra: ClassVar[tuple[str, str] | None] = None
    choice: str = ""

    def __init__(self, work: Workload, actions: Actions, workers: int) -> None:
        self._num_envs = work.num_envs
        self._actions = cycle(self.choose(actions))
        self._envs = self.make(work, workers)

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        """Return why the system cannot run a workload, ``None`` if it can."""
        if cls.extra is not None and not installed(cls.extra[1]):
            return how_to_get(cls.extra[1], cls.extra[0])
        if cls.process_per_env and work.num_envs > cls.max_processes:
            return f"skipped, because it has a process per environment (over {cls.max_processes})"
        return None

    @abstractmethod
    def make(self, work: Workload, workers: int) -> Any:
        """Make the object to step."""

    def choose(self, actions: Actions) -> list[Any]:
        """Return the actions in the form that the system needs."""
        return actions.batches

    def reset(self) -> None:
        self._envs.reset(seed=0)

    def step(self, actions: Any) -> None:
        """Step every environment once."""
        self._envs.step(actions)

    def run(self, seconds: float) -> float:
        """Step for ``seconds``; return environment steps per second."""
        step, actions, batches, elapsed = self.step, self._actions, 0, 0.0
        started = time.perf_counter()
        while elapsed < seconds:
            step(next(actions))
            batches += 1
            elapsed = time.perf_counter() - started
        return batches * self._num_envs / elapsed

    def run_in(self, seconds: float) -> None:
        """Step for ``seconds`` without measuring."""
        self.run(seconds)

    def close(self) -> None:
        self._envs.close()


class Contest(Workload, ABC):
    """A workload in which only some systems take part."""

    @property
    @abstractmethod
    def systems(self) -> Sequence[type[System]]:
        """Systems to compare."""
