"""Recycling: moves environments that leak memory to a new worker, in the middle of an episode.

When an environment of a worker has finished its number of episodes, or the worker's memory exceeds
the limit, a standby worker makes the same environments and proves how to copy them
(``hosts/states/``). Once the standby is ready, each environment moves after its next step, and
waits for no more than these messages::

    step ended --> Export (old worker: returns the state of the environment)
               --> Import (standby: continues from it) --> the environment's next operation
    all moved  --> the standby becomes the worker, and the old worker ends

An environment that cannot be copied, or whose proof ended the standby, moves when its episode is
over: its state says how the next episode starts, and the standby starts that episode. A
trajectory that is a function of ``np_random`` does not change. Under same-step autoreset the next
episode has already started: the standby starts it again, and takes over the environment only if the
first observation is the same. Otherwise the environment stays until the end of its next episode.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from agym.core._system.load import rss_of
from agym.core.backends.options import Recycle
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.faults.recovery import Recovery
from agym.core.engine.opened import EnvRows
from agym.core.hosts.states.codecs import registered
from agym.core.hosts.states.env_state import EnvState
from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Export, Import, Standby

# Read a process's memory at most once in this many seconds.
MEMORY_SECONDS = 0.25


@dataclass(slots=True)
class _Move:
    """The environments of a worker that are moving to its standby.

    Attributes:
        proofs: How to copy each environment; ``None`` until the standby is ready.
        moved: The environments that have moved.
        uncopied: The environments that can move only between two episodes.
    """

    proofs: dict[int, Any] | None = None
    moved: set[int] = field(default_factory=set)
    uncopied: set[int] = field(default_factory=set)


class Recycling:
    """Moves environments from workers to their standby workers."""

    def __init__(self, policy: Recycle, rows: EnvRows, recovery: Recovery) -> None:
        self._policy = policy
        self._rows = rows
        self._backend, self._dispatcher = rows.backend, rows.dispatcher
        self._recovery = recovery
        self._episodes: dict[int, int] = {}
        # The move of each worker with a standby.
        self._moves: dict[int, _Move] = {}
        # Workers whose standby ended or failed during the proof. The next standby skips the proof.
        self._unproven: set[int] = set()
        # Environments between two workers, whose operations are delayed.
        self._moving: set[int] = set()
        self._memory_read_at: dict[int, float] = {}

    def on_steps_ended(self, ids: Ids, ticket: Ticket) -> None:
        """Act on environments whose step has ended."""
        for slot in ids:
            if slot not in self._moving:
                plane = ticket.plane_of(slot)
                self._on_step_ended(slot, plane, over=any(self._rows.flags(slot, plane)))

    def _on_step_ended(self, slot: int, plane: int, *, over: bool) -> None:
        worker = self._backend.worker_of(slot)
        self._episodes[slot] = self._episodes.get(slot, 0) + over
        move = self._moves.get(worker)
        if move is None:
            if self._due(worker, slot):
                self._start_standby(worker)
            return
        if move.proofs is None or slot in move.moved:
            return
        if slot in self._recovery.recovering or slot in self._recovery.pending:
            return
        copied = slot not in move.uncopied
        if copied or over:
            known = move.proofs.get(slot) if copied else None
            message = Export([plane], registered(), known)
            if self._dispatcher.seize(slot, message):
                self._moving.add(slot)

    def _start_standby(self, worker: int) -> None:
        self._moves[worker] = _Move()
        standby = Standby(codecs=None if worker in self._unproven else registered())
        number = self._dispatcher.start_internal(standby, self._backend.ranges[worker])
        self._backend.prepare(worker, number, standby)

    def _due(self, worker: int, slot: int) -> bool:
        policy = self._policy
        if policy.episodes is not None and self._episodes[slot] >= policy.episodes:
            return True
        now = time.monotonic()
        if policy.rss_mb is None or now - self._memory_read_at.get(worker, 0.0) < MEMORY_SECONDS:
            return False
        self._memory_read_at[worker] = now
        return (rss_of(self._backend.pids[worker]) or 0) > policy.rss_mb * 1e6

    def advance(self, ticket: Ticket) -> None:
        """Continue a move after one of its operations has ended."""
        slot = ticket.ids[0]
        worker = self._backend.worker_of(slot)
        payload = ticket.payload or Payload()
        move = self._moves.get(worker)
        if move is None:
            self._end_move(slot)  # the worker died during the move
        elif ticket.kind is Standby:
            self._on_standby_ready(worker, move, payload)
        elif slot not in self._moving:
            pass
        elif ticket.kind is Import:
            self._on_loaded(worker, move, slot, payload)
        elif isinstance(state := payload.values.get(slot), EnvState) and not payload.problems:
            # The save has ended and the environment's operations are delayed, so from here on the
            # standby can receive everything: first the state, then the delayed operations.
            self._backend.move(worker, slot)
            message = Import([state], codecs=registered())
            self._dispatcher.start_internal(message, (slot,))
        else:  # it cannot be copied: the environment stays
            move.uncopied.add(slot)
            self._end_move(slot)

    def _on_standby_ready(self, worker: int, move: _Move, payload: Payload) -> None:
        if not payload.problems:
            move.proofs = payload.values
            return
        self.forget_worker(worker)
        self._backend.discard(worker)
        if worker not in self._unproven:
            self._unproven.add(worker)
            self._start_standby(worker)
            return
        problem = payload.problems[0]
        if isinstance(problem, Failure):
            self._recovery.fault_log.notices.append(
                f"worker {worker} cannot be recycled: {problem.error}"
            )

    def _on_loaded(self, worker: int, move: _Move, slot: int, payload: Payload) -> None:
        """Finish a move, or undo it if the standby could not continue."""
        for problem in payload.problems:
            if isinstance(problem, Failure):
                self._recovery.recover(problem)
        if payload.values.get(slot):
            move.uncopied.add(slot)
            self._backend.move(worker, slot, back=True)
        else:
            move.moved.add(slot)
        self._end_move(slot)
        if len(move.moved) == len(self._backend.ranges[worker]):
            if self._backend.finish(worker):
                self._recovery.restarts[worker] += 1
            self.forget_worker(worker)

    def forget_worker(self, worker: int) -> None:
        """Forget the standby and the episode counts of a worker that is new."""
        self._moves.pop(worker, None)
        for slot in self._backend.ranges[worker]:
            self._episodes.pop(slot, None)

    def _end_move(self, slot: int) -> None:
        if slot in self._moving:
            self._moving.discard(slot)
            self._dispatcher.unseize(slot)
