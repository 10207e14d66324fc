"""Recycling: environments that leak move to a new worker, each at the end of an episode.

When one of a worker's environments has had its number of episodes, or the worker's memory is over
the limit, a spare makes the same environments beside it. Once it is ready, each environment moves
when its episode is over, and nobody waits but for the few messages that takes::

    episode over --> export (old worker: where are your random numbers?)
                 --> import_env (spare: go on from there) --> what comes next for it
    all over     --> the spare is the worker, and the old one ends

A trajectory does not change by that, if it is a function of ``np_random``. Under same-step
autoreset the next episode has begun already: the spare begins it again, and keeps the environment
only if it comes to the same first observation; else it stays where it is until its next episode.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import psutil

from agym.backends.options import Recycle
from agym.engine.faults.recovery import Recovery
from agym.engine.ticket import Ticket
from agym.protocol.arguments import Ids
from agym.protocol.messages import Failure, RestoreSpec

# Memory is not looked at more often than this.
LOOK_SECONDS = 0.25


class Spares(Protocol):
    """What recycling needs of an backend; see :class:`agym.backends.base.Backend`."""

    @property
    def ranges(self) -> Sequence[range]: ...
    @property
    def pids(self) -> Sequence[int | None]: ...
    def prepare(self, worker: int, number: int) -> None: ...
    def discard(self, worker: int) -> None: ...
    def move(self, worker: int, slot: int, *, back: bool = False) -> None: ...
    def finish(self, worker: int) -> None: ...


class EnvMover(Protocol):
    """What recycling needs of the engine."""

    @property
    def autoreset(self) -> str:
        """What follows an episode's end."""

    def order(self, kind: str, ids: Ids, each: list[Any] | None = None) -> int:
        """Begin an operation of our own, ahead of all that waits; gives its number."""

    def ended_with(self, slot: int, plane: int) -> tuple[bool, bool]:
        """The flags of an environment's row."""

    def export(self, slot: int) -> int | None:
        """Begin to move an environment, and hold back what it is to do next; unless that began."""

    def release_env(self, slot: int, number: int) -> None:
        """Let it go on."""


class Recycling:
    """Moves environments from workers to their spares."""

    def __init__(
        self, policy: Recycle, movers: EnvMover, spares: Spares, recovery: Recovery
    ) -> None:
        """Begin with workers that are new."""
        self._policy = policy
        self._movers = movers
        self._spares = spares
        self._recovery = recovery
        self._episodes: dict[int, int] = {}
        # The workers with a spare: whether that is ready.
        self._ready: dict[int, bool] = {}
        self._moved: dict[int, set[int]] = {}
        # Where the row of an environment that moves was, and who holds its next operation back.
        self._holders: dict[int, tuple[int, int]] = {}
        self._looked: dict[int, float] = {}

    def settled(self, ids: Ids, plane: int) -> None:
        """Steps have ended: see whose episode is over."""
        for slot in ids:
            if any(self._movers.ended_with(slot, plane)) and slot not in self._holders:
                self._over(slot, plane)

    def _over(self, slot: int, plane: int) -> None:
        worker = self._worker_of(slot)
        self._episodes[slot] = self._episodes.get(slot, 0) + 1
        if worker not in self._ready:
            if self._due(worker, slot):
                self._ready[worker] = False
                self._moved[worker] = set()
                ids = self._spares.ranges[worker]
                self._spares.prepare(worker, self._movers.order("spare", ids))
        elif self._ready[worker] and slot not in self._moved[worker]:
            if slot in self._recovery.recovering or slot in self._recovery.pending:
                return
            number = self._movers.export(slot)
            if number is not None:
                self._holders[slot] = number, plane

    def _due(self, worker: int, slot: int) -> bool:
        policy = self._policy
        if policy.episodes is not None and self._episodes[slot] >= policy.episodes:
            return True
        now = time.monotonic()
        if policy.rss_mb is None or now - self._looked.get(worker, 0.0) < LOOK_SECONDS:
            return False
        self._looked[worker] = now
        try:
            return bool(
                psutil.Process(self._spares.pids[worker]).memory_info().rss > policy.rss_mb * 1e6
            )
        except psutil.Error:  # it is gone, which is noticed elsewhere
            return False

    def advance(self, ticket: Ticket) -> None:
        """A part of a move has ended."""
        slot = ticket.ids[0]
        worker = self._worker_of(slot)
        extras = ticket.extras
        problems = [] if extras is None else extras.problems
        if worker not in self._ready:
            self._release(slot)  # its worker died meanwhile
        elif ticket.kind == "spare":
            self._prepared(worker, problems)
        elif slot not in self._holders:
            pass
        elif ticket.kind == "export" and extras is not None and not problems:
            self._hand_over(worker, slot, extras.values[slot])
        elif ticket.kind == "export":
            self._release(slot)  # it stays where it is
        else:
            self._taken_over(worker, slot, problems, extras and extras.values.get(slot))

    def _prepared(self, worker: int, problems: Sequence[Any]) -> None:
        for problem in problems:
            self.release(worker)
            self._spares.discard(worker)
            if isinstance(problem, Failure):
                self._recovery.incidents.notices.append(
                    f"worker {worker} cannot be recycled: {problem.error}"
                )
            return
        self._ready[worker] = True

    def _hand_over(self, worker: int, slot: int, start: Any) -> None:
        """The old environment has said where it is."""
        restore = self._recovery.import_env(slot)
        over = None
        if self._movers.autoreset != "same_step":
            over = self._movers.ended_with(slot, self._holders[slot][1])
        self._spares.move(worker, slot)
        each = [RestoreSpec(False, restore.seed, None, restore.options, restore.episode,
                        restore.observation, start, (), over)]  # fmt: skip
        self._movers.order("import_env", (slot,), each)

    def _taken_over(self, worker: int, slot: int, problems: Sequence[Any], reason: Any) -> None:
        """The new environment is in place, or is not."""
        for problem in problems:
            if isinstance(problem, Failure):
                self._recovery.mend(problem)
        if reason:
            self._spares.move(worker, slot, back=True)
        else:
            self._moved[worker].add(slot)
        self._release(slot)
        if len(self._moved[worker]) == len(self._spares.ranges[worker]):
            self._spares.finish(worker)
            self._recovery.restarts[worker] += 1
            self.release(worker)

    def release(self, worker: int) -> None:
        """A worker is a new one."""
        self._ready.pop(worker, None)
        self._moved.pop(worker, None)
        for slot in self._spares.ranges[worker]:
            self._episodes.pop(slot, None)

    def _release(self, slot: int) -> None:
        held = self._holders.pop(slot, None)
        if held is not None:
            self._movers.release_env(slot, held[0])

    def _worker_of(self, slot: int) -> int:
        return next(k for k, ids in enumerate(self._spares.ranges) if slot in ids)
