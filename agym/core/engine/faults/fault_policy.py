"""The ``on_fault`` option, and the restart budget that it sets."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from agym.core.protocol.arguments import Ids, check_choice, check_count, check_seconds
from agym.core.protocol.messages.failures import name_envs
from agym.errors import AgymError, CrashLoopError, Fault, UsageError

FaultMode = Literal["raise", "restart", "replay"]

# Number of latest failures that an error shows.
SHOWN = 5


@dataclass(frozen=True)
class FaultPolicy:
    """How to handle environments that raise, hang, or lose their worker.

    Example:
        >>> import agym
        >>> policy = agym.FaultPolicy("restart", max_restarts=10)
        >>> with agym.make("CartPole-v1", 2, on_fault=policy) as envs:
        ...     observations, infos = envs.reset(seed=0)

    Pass it to :func:`agym.make` if the mode alone is not enough.

    Attributes:
        mode: ``"raise"`` raises an error. ``"restart"`` replaces what failed in a step or reset and
            continues: the row comes back truncated, with reward 0 and a :class:`~agym.Fault` as
            ``info["fault"]``. ``"replay"`` does the same, but environments that only shared the
            failed worker continue where they were.
        max_restarts: How often a worker, or an environment that raises, is replaced within
            ``restart_window`` before it is given up. Under ``"raise"``, only workers and
            environments that miss a deadline are replaced.
        restart_window: In seconds.
        retry: How many times in a row a failed episode is retried, with a fresh environment: the
            next episode then starts like the failed one. This keeps tasks that fail often from
            becoming rare. ``info["fault"].retry`` counts; see :doc:`/howto/retries`.
        replay_limit: How many actions per environment are kept for a replay: since the episode
            started, or since the latest :meth:`Envs.snapshot`.
        capsule_dir: A folder for one small file per fault, from which ``agym rerun FILE``
            reproduces it; ``None`` for no files.

    Raises:
        UsageError: A value is invalid.
    """

    mode: FaultMode = "raise"
    max_restarts: int = 10
    restart_window: float = 60.0
    retry: int = 0
    replay_limit: int = 10_000
    capsule_dir: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_choice("on_fault", self.mode, get_args(FaultMode), " or an agym.FaultPolicy")
        for name, least in (("max_restarts", 0), ("replay_limit", 1), ("retry", 0)):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least))
        if self.retry and self.mode == "raise":
            raise UsageError(
                f"retry={self.retry} restarts the episode of a replaced environment, but"
                ' on_fault="raise" replaces none: use FaultPolicy("restart", retry=...)'
            )
        check_seconds("restart_window", self.restart_window)
        if self.capsule_dir is not None:
            if not isinstance(self.capsule_dir, str | os.PathLike) or not str(self.capsule_dir):
                raise UsageError(f"capsule_dir={self.capsule_dir!r} must be the path of a folder")
            folder = Path(self.capsule_dir)
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"capsule_dir={str(folder)!r} is not a folder")

    @property
    def tolerant(self) -> bool:
        """Whether faults are handled without being raised."""
        return self.mode != "raise"

    @property
    def follow_episodes(self) -> bool:
        """Whether to record how the current episodes started."""
        return self.record_actions or self.retry > 0

    @property
    def record_actions(self) -> bool:
        """Whether to record the actions of the current episodes."""
        return self.mode == "replay" or self.capsule_dir is not None


class RestartBudget:
    """Allows ``limit`` failures within ``window`` seconds, per worker or environment."""

    def __init__(self, limit: int, window: float) -> None:
        self._limit = limit
        self._window = window
        self._faults: dict[range, deque[tuple[float, Fault]]] = {}

    def record(self, ids: range, fault: Fault) -> BudgetExceeded | None:
        """Record a failure of some environments; return a verdict if it exceeds the budget."""
        now = time.monotonic()
        faults = self._faults.setdefault(ids, deque())
        faults.append((now, fault))
        while now - faults[0][0] > self._window:
            faults.popleft()
        if len(faults) <= self._limit:
            return None
        last = tuple(fault for _, fault in faults)[-SHOWN:]
        return BudgetExceeded(ids, len(faults), self._window, last)

    def count(self, ids: range) -> int:
        """Return how many failures of some environments were recorded within the window."""
        return len(self._faults[ids])

    def clear(self, ids: Ids) -> None:
        """Forget the failures of some environments, and of environments that failed with them."""
        for known in [*self._faults]:
            if not {*known}.isdisjoint(ids):
                del self._faults[known]


@dataclass(frozen=True)
class BudgetExceeded:
    """Environments that have failed too often."""

    env_ids: range
    count: int
    window: float
    faults: tuple[Fault, ...]

    def to_exception(self) -> AgymError:
        shown = "".join(
            f"\n  environment {fault.env_id}, {fault.operation}: {fault.error}"
            for fault in self.faults
        )
        failures = f"{self.count} failures" if self.count > 1 else "1 failure"
        verb = "is" if len(self.env_ids) == 1 else "are"
        return CrashLoopError(
            f"{name_envs(self.env_ids)} {verb} given up after {failures} in"
            f" {self.window:g} seconds (max_restarts); restart() tries again. Latest:{shown}",
            env_ids=self.env_ids,
            faults=self.faults,
        )
