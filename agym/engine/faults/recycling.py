"""Recycling: moves environments that leak memory to a new worker, each at the end of an episode.

When one of a worker's environments has had its number of episodes, or the worker's memory exceeds
the limit, a spare worker makes the same environments beside it. Once the spare is ready, each
environment moves when its episode is over, which costs no more waiting than a few messages::

    episode over --> Export (old worker: returns the state of the random numbers)
                 --> Import (spare: continues from it) --> the environment's next operation
    all moved    --> the spare becomes the worker, and the old one ends

A trajectory that is a function of ``np_random`` does not change. Under same-step autoreset the next
episode has already begun: the spare begins it again, and takes the environment over only if it gets
the same first observation. Otherwise the environment stays until the end of its next episode.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psutil
from gymnasium.vector import AutoresetMode

from agym.backends.base import Backend
from agym.backends.options import Recycle
from agym.backends.parts import Spares
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.faults.env_rows import EnvRows
from agym.engine.faults.recovery import Recovery
from agym.protocol.arguments import Ids
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import Export, Import, Spare

# Read a process's memory at most this often.
MEMORY_SECONDS = 0.25


class Recycling:
    """Moves environments from workers to their spares."""

    def __init__(
        self,
        policy: Recycle,
        dispatcher: Dispatcher,
        rows: EnvRows,
        backend: Backend,
        spares: Spares,
        recovery: Recovery,
    ) -> None:
        self._policy = policy
        self._dispatcher = dispatcher
        self._rows = rows
        self._backend = backend
        self._spares = spares
        self._recovery = recovery
        self._episodes: dict[int, int] = {}
        # For each worker with a spare, whether the spare is ready.
        self._ready: dict[int, bool] = {}
        self._moved: dict[int, set[int]] = {}
        # For each environment that moves: the ticket that holds its row, and the row's plane.
        self._holders: dict[int, tuple[int, int]] = {}
        self._memory_read_at: dict[int, float] = {}

    def on_steps_ended(self, ids: Ids, plane: int) -> None:
        """Act on environments whose step has ended the episode."""
        for slot in ids:
            if any(self._rows.flags(slot, plane)) and slot not in self._holders:
                self._on_episode_over(slot, plane)

    def _on_episode_over(self, slot: int, plane: int) -> None:
        worker = self._recovery.workers.worker_of(slot)
        self._episodes[slot] = self._episodes.get(slot, 0) + 1
        if worker not in self._ready:
            if self._due(worker, slot):
                self._ready[worker] = False
                self._moved[worker] = set()
                ids = self._backend.ranges[worker]
                self._spares.prepare(worker, self._dispatcher.begin_internal(Spare(), ids))
        elif self._ready[worker] and slot not in self._moved[worker]:
            if slot in self._recovery.recovering or slot in self._recovery.fault_log.pending:
                return
            number = self._dispatcher.seize(slot, Export())
            if number is not None:
                self._holders[slot] = number, plane

    def _due(self, worker: int, slot: int) -> bool:
        policy = self._policy
        if policy.episodes is not None and self._episodes[slot] >= policy.episodes:
            return True
        now = time.monotonic()
        if policy.rss_mb is None or now - self._memory_read_at.get(worker, 0.0) < MEMORY_SECONDS:
            return False
        self._memory_read_at[worker] = now
        try:
            return bool(
                psutil.Process(self._backend.workers.pids[worker]).memory_info().rss
                > policy.rss_mb * 1e6
            )
        except psutil.Error:  # the process is gone, which the backend notices
            return False

    def advance(self, ticket: Ticket) -> None:
        """Continue a move after one of its operations has ended."""
        slot = ticket.ids[0]
        worker = self._recovery.workers.worker_of(slot)
        payload = ticket.payload
        problems = [] if payload is None else payload.problems
        if worker not in self._ready:
            self._end_move(slot)  # the worker died in between
        elif ticket.kind is Spare:
            self._prepared(worker, problems)
        elif slot not in self._holders:
            pass
        elif ticket.kind is Export and payload is not None and not problems:
            self._hand_over(worker, slot, payload.values[slot])
        elif ticket.kind is Export:
            self._end_move(slot)  # the export failed: the environment stays
        else:
            self._taken_over(worker, slot, problems, payload and payload.values.get(slot))

    def _prepared(self, worker: int, problems: Sequence[Any]) -> None:
        for problem in problems:
            self.forget_worker(worker)
            self._spares.discard(worker)
            if isinstance(problem, Failure):
                self._recovery.fault_log.notices.append(
                    f"worker {worker} cannot be recycled: {problem.error}"
                )
            return
        self._ready[worker] = True

    def _hand_over(self, worker: int, slot: int, start: Any) -> None:
        """Import an environment's exported state into the spare."""
        restore = self._recovery.restores.in_other_worker(slot)
        over = None
        if self._backend.options.autoreset is not AutoresetMode.SAME_STEP:
            over = self._rows.flags(slot, self._holders[slot][1])
        self._spares.move(worker, slot)
        restore = replace(restore, start=start, over=over)
        self._dispatcher.begin_internal(Import([restore]), (slot,))

    def _taken_over(self, worker: int, slot: int, problems: Sequence[Any], reason: Any) -> None:
        """Finish a move, or undo it if the spare gave a reason."""
        for problem in problems:
            if isinstance(problem, Failure):
                self._recovery.recover(problem)
        if reason:
            self._spares.move(worker, slot, back=True)
        else:
            self._moved[worker].add(slot)
        self._end_move(slot)
        if len(self._moved[worker]) == len(self._backend.ranges[worker]):
            self._spares.finish(worker)
            self._recovery.workers.restarts[worker] += 1
            self.forget_worker(worker)

    def forget_worker(self, worker: int) -> None:
        """Forget the spare and the episode counts of a worker that is new."""
        self._ready.pop(worker, None)
        self._moved.pop(worker, None)
        for slot in self._backend.ranges[worker]:
            self._episodes.pop(slot, None)

    def _end_move(self, slot: int) -> None:
        held = self._holders.pop(slot, None)
        if held is not None:
            self._dispatcher.unseize(slot, held[0])
