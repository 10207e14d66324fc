"""What became of the workers."""

from __future__ import annotations

from collections.abc import Iterable

from agym.backends.base import Backend
from agym.protocol.arguments import Ids
from agym.protocol.messages.failures import WorkerDeath


class WorkerLog:
    """Which workers are dead, and how often each was replaced.

    Attributes:
        restarts: How often each worker was replaced.
        dead: The workers that have ended and were not replaced.
    """

    def __init__(self, backend: Backend) -> None:
        self.restarts = [0] * len(backend.ranges)
        self.dead: set[int] = set()
        self._backend = backend
        self._latest: dict[int, WorkerDeath] = {}
        # Workers that are being ended because they could not make their environments.
        self._failed_replacements: set[int] = set()

    def is_new(self, death: WorkerDeath) -> bool:
        """Whether a death was not reported before; note it."""
        known = self._latest.get(death.worker) is death
        self._latest[death.worker] = death
        return not known

    def note_death(self, worker: int) -> bool:
        """Note that a worker has ended; return whether it was a replacement that failed."""
        failed = worker in self._failed_replacements
        self._failed_replacements.discard(worker)
        self.dead.add(worker)
        return failed

    def note_failure(self, workers: Iterable[int]) -> None:
        """Note replacements that could not make their environments, and are about to be ended."""
        self._failed_replacements.update(workers)

    def note_replacement(self, worker: int) -> None:
        """Note that a worker is about to be replaced."""
        self.restarts[worker] += 1
        self.dead.discard(worker)

    def worker_of(self, env_id: int) -> int:
        """Return the worker of an environment."""
        return next(k for k, ids in enumerate(self._backend.ranges) if env_id in ids)

    def of(self, ids: Iterable[int]) -> set[int]:
        """Return the workers of environments."""
        return {self.worker_of(i) for i in ids}

    def with_dead_neighbours(self, ids: Ids) -> set[int]:
        """Add all environments that died with some of these."""
        dead = [self._backend.ranges[worker] for worker in self.dead]
        return {*ids, *(i for span in dead if set(span).intersection(ids) for i in span)}
