"""Recovery: what a fault does to the environments, by the ``on_fault`` option.

Recovery filters every completion before the engine accounts for it. Under ``raise`` a fault passes
and becomes the caller's error. Under ``restart`` and ``replay`` the worker, or the environment that
raised, is replaced, and its pending operations are sent again, behind a ``recreate``::

    death  --> replace(worker) --> recreate(its envs) --> their pending steps and resets, again
    raised -->                     recreate(that env) --> its step or reset, again

A recreated environment keeps nothing but its id: its next step comes back truncated, with the last
known observation and no reward, and the autoreset mode decides what follows. A replayed environment
continues where it was, so its next step is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.backends.base import Backend
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.faults.action_log import ActionLog
from agym.engine.faults.budget import BudgetExceeded, RestartBudget
from agym.engine.faults.env_rows import EnvRows
from agym.engine.faults.fault_log import FaultLog
from agym.engine.faults.policy import FaultPolicy
from agym.engine.status import EnvStatus
from agym.errors import Fault
from agym.protocol.arguments import Ids, runs
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import EnvLoss, Failure, WorkerDeath, name_ids
from agym.protocol.messages.operations import (
    FAULT,
    OPEN,
    CloseEnv,
    Recreate,
    Reset,
    Restart,
    Step,
)
from agym.protocol.messages.resets import EpisodeStart, RestoreSpec


class Recovery:
    """Replaces workers and environments that failed.

    Attributes:
        policy: The caller's policy.
        fault_log: The log of faults.
        recovering: The environments that are being replaced.
        pending: Faults that have not been reported to the caller.
        counts: How many faults each environment had.
        restarts: How often each worker was replaced.
        active: Completions without problems must be filtered too.
        dirty: Operations were sent while filtering, so completions may have arrived meanwhile.
        on_replace: Called with the index of a worker that is about to be replaced.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        status: EnvStatus,
        dispatcher: Dispatcher,
        rows: EnvRows,
        backend: Backend,
    ) -> None:
        self.policy = policy
        self.recovering: set[int] = set()
        self.pending: dict[int, Fault] = {}
        self.counts = [0] * len(backend.factories)
        self.restarts = [0] * len(backend.ranges)
        self.dirty = False
        self.on_replace: Callable[[int], None] = _ignore
        self._status = status
        self._dispatcher = dispatcher
        self._rows = rows
        self._backend = backend
        self._budget = RestartBudget(policy.max_restarts, policy.restart_window)
        self._log = ActionLog(policy.replay_limit) if policy.record_actions else None
        self.fault_log = FaultLog(policy.folder, self._log, backend.options, dispatcher, rows)
        self._latest: dict[int, WorkerDeath] = {}
        self._dead: set[int] = set()
        # Workers that are being ended because they could not make their environments.
        self._failed_replacements: set[int] = set()
        # The operation of each cancelled environment whose completion is to be dropped.
        self._cancelled: dict[int, int] = {}
        # Environments that the caller asked to recreate: a failure of these is raised at once.
        self._requested: set[int] = set()
        # What to send to each environment once it is recreated, and completions for what never is.
        self._to_resend: dict[int, Ticket] = {}
        self._failed_parts: list[Completion] = []
        self._update_active()

    def _update_active(self) -> None:
        self.active = bool(self._log is not None or self.pending or self.recovering)

    # ---------------------------------------------------------------- completions

    def filter(self, completion: Completion, ticket: Ticket | None) -> Iterator[Completion]:
        """Handle the problems of a completion; yield what the engine is to account for."""
        number, start, stop, payload = completion
        problems = [] if payload is None else payload.problems
        for problem in problems:
            if isinstance(problem, WorkerDeath) and self._latest.get(problem.worker) is not problem:
                self._latest[problem.worker] = problem
                self.on_worker_death(problem)
        self._update_active()
        if number == FAULT or ticket is None:
            yield from self._take_failed_parts()
            return
        ids: Ids = tuple(i for i in range(start, stop) if self._cancelled.get(i) != number)
        if ticket.kind is Restart:
            self._on_restarted(problems)
        elif ticket.kind is Recreate:
            self._on_recreated(ids, payload)
        elif any(isinstance(problem, WorkerDeath) for problem in problems):
            ids = self._on_parts_lost(ids, ticket, problems)
        else:
            self._record_failures(problems, ticket)
            if ticket.kind.writes_rows and not ticket.expired:
                payload = payload or Payload()
                ids = self._handle_failures(ids, ticket, payload)
                self._log_and_report(ids, ticket, payload)
        self._update_active()
        for run in runs(ids) if ids else ():
            yield Completion(number, run.start, run.stop, payload)
            payload = None
        yield from self._take_failed_parts()

    def _take_failed_parts(self) -> list[Completion]:
        """Return and clear the completions of operations that will not be sent again."""
        failed, self._failed_parts = self._failed_parts, []
        return failed

    def _log_and_report(self, ids: Ids, ticket: Ticket, payload: Payload) -> None:
        """Log the actions that environments took, and report pending faults in their infos."""
        for i in ids:
            if i in self.pending:
                payload.infos.setdefault(i, {})["fault"] = self.pending.pop(i)
                if self._log is not None:
                    self._log.cut(i)
            elif self._log is not None and ticket.kind is Step and i not in payload.starts:
                self._log.add(i, self._rows.action(i, ticket))
            if self._log is not None and i in payload.starts:
                self._log.begin(i, payload.starts[i])

    # ---------------------------------------------------------------- an environment raised

    def _record_failures(self, problems: list[Any], ticket: Ticket) -> None:
        """Count failures, and write capsules, which the failures then name."""
        for k, failure in enumerate(problems):
            if isinstance(failure, Failure) and failure.fault and not failure.echo:
                self._count(failure.env_ids)
                problems[k] = self.fault_log.with_capsule(failure, ticket)

    def _handle_failures(self, ids: Ids, ticket: Ticket, payload: Payload) -> Ids:
        """Recreate environments that raised in a step or reset; return the ones that are done."""
        if not payload.problems or not self.policy.tolerant:
            return ids
        failures = [problem for problem in payload.problems if isinstance(problem, Failure)]
        payload.problems = []
        resend: list[int] = []
        for failure in failures:
            span = failure.env_ids
            given_up = self._status.lost.get(failure.env_id)
            if not failure.echo:
                given_up = self._record_restart(span, self.fault_log.raised(failure))
            if given_up is not None:
                payload.problems.append(given_up)
                continue
            resend += span
            self._to_resend.update((i, ticket) for i in ids if i in span)
            if not failure.echo:
                self._recreate(span)
        return tuple(i for i in ids if i not in resend)

    def _recreate(self, span: range) -> None:
        """Replace an environment, or a whole group."""
        self.dirty = True
        self.recovering.update(span)
        self._dispatcher.begin_internal(Recreate([*map(self._restore_spec, span)]), span)

    def _count(self, span: range) -> None:
        for i in span:
            self.counts[i] += 1

    def _on_recreated(self, ids: Ids, payload: Payload | None) -> None:
        """Resume recreated environments, and handle those that could not be recreated."""
        problems = [] if payload is None else payload.problems
        if any(isinstance(problem, WorkerDeath) for problem in problems):
            return  # another "recreate" is on its way
        bad: set[int] = set()
        for failure in problems:
            if isinstance(failure, Failure) and failure.env_id in ids:
                bad.update(failure.env_ids)
                self._on_recreate_failed(failure)
        well = [i for i in ids if i not in bad]
        for i in ids:
            self._cancelled.pop(i, None)
            self._requested.discard(i)
        self.recovering.difference_update(well)
        self._resend_pending(well)
        for i in well:
            reason = None if payload is None else payload.values.get(i)
            if reason == "":
                self.pending.pop(i, None)
            elif reason and i in self.pending:
                self.pending[i] = replace(self.pending[i], replay=reason)
        self._dispatcher.rearm()

    def _on_recreate_failed(self, failure: Failure) -> None:
        """Try again, unless the caller asked for the environment or its budget is exceeded."""
        span = failure.env_ids
        if not self.policy.tolerant or self._requested.intersection(span):
            self._abandon(span, failure)
            return
        self._count(span)
        if self._record_restart(span, self.fault_log.raised(failure)) is None:
            self._recreate(span)

    def _resend_pending(self, ids: Iterable[int]) -> None:
        """Send the pending operations of environments again, joined for neighbours."""
        pending = [(self._to_resend.pop(i), i) for i in ids if i in self._to_resend]
        for ticket in dict.fromkeys(ticket for ticket, _ in pending):
            for run in runs(tuple(i for other, i in pending if other is ticket)):
                self._dispatcher.resend(ticket, run.start, run.stop)
                self.dirty = True

    def _record_restart(self, ids: range, fault: Fault) -> BudgetExceeded | None:
        """Record a fault that is to be recovered; return the verdict if the budget is exceeded."""
        given_up = self._budget.record(ids, fault)
        if given_up is not None:
            self._abandon(ids, given_up)
        elif self.policy.tolerant:
            for i in ids:
                self.pending.setdefault(i, replace(fault, env_id=i))
        return given_up

    def _abandon(self, ids: range, loss: EnvLoss) -> None:
        """Mark environments as lost, until the caller asks for others."""
        self._status.mark_lost(ids, loss)
        self.recovering.difference_update(ids)
        self._requested.difference_update(ids)
        for i in ids:
            self.pending.pop(i, None)
            self._cancelled.pop(i, None)
            ticket = self._to_resend.pop(i, None)
            if ticket is not None:
                payload = Payload(problems=[loss])
                self._failed_parts.append(Completion(ticket.number, i, i + 1, payload))
        self._dispatcher.rearm()

    # ---------------------------------------------------------------- a worker died

    def on_worker_death(self, death: WorkerDeath) -> None:
        """Replace a dead worker if the policy says so, or mark its environments as lost."""
        ids, worker = death.env_ids, death.worker
        failed_replacement = worker in self._failed_replacements
        self._failed_replacements.discard(worker)
        self._dead.add(worker)
        faults = self.fault_log.died(death)
        suspects = self._suspects(death)
        for i in ids:
            self.counts[i] += 1
        if death.pid is None and not failed_replacement:
            self.fault_log.notices.append(
                f"worker {worker}, a thread, {death.reason} in environments"
                f" {name_ids(sorted(suspects))} and was left behind: it goes on until it comes back"
            )
        recoverable = self.policy.tolerant or (
            death.late and not failed_replacement and self._rows.opened is not None
        )
        if not recoverable or self._requested.intersection(ids):
            self._abandon(ids, death)
            return
        if self.policy.tolerant:
            for i in ids:
                self.pending.setdefault(i, faults[i])
        worst = faults[next(iter(suspects), ids[0])]
        if self._record_restart(ids, worst) is not None:
            return
        try:
            self._replace(worker, suspects)
        except Exception as error:  # for example, no memory or processes are left
            reason = f"{death.reason}, and cannot be replaced: {error}"
            self._abandon(ids, replace(death, reason=reason))

    def _replace(self, worker: int, suspects: set[int]) -> None:
        """Replace a worker, and recreate or restore its environments."""
        ids = self._backend.ranges[worker]
        self.dirty = True
        self.restarts[worker] += 1
        self._dead.discard(worker)
        self.on_replace(worker)
        if self._rows.opened is None:
            self._backend.replace_worker(worker, OPEN)
            return
        self.recovering.update(ids)
        if not self.policy.tolerant:
            self._status.mark_unready(ids, "was replaced after a missed deadline")
        self._backend.replace_worker(worker, self._dispatcher.begin_internal(Restart(), ids))
        restores = [self._restore_spec(i, used=False, innocent=i not in suspects) for i in ids]
        self._dispatcher.begin_internal(Recreate(restores), ids)
        for i in self._status.closed_envs.intersection(ids):
            self._dispatcher.begin_internal(CloseEnv(), (i,))

    @staticmethod
    def _suspects(death: WorkerDeath) -> set[int]:
        """Return the environments that may have caused a death: only the running one, if known."""
        if death.running is not None:
            return {death.running}
        return {i for i, doing in death.operations.items() if not doing.startswith("idle")}

    def _on_parts_lost(self, ids: Ids, ticket: Ticket, problems: list[Any]) -> Ids:
        """Resend the parts that a dead worker left, if possible; return those that failed."""
        gone = any(i in self._status.lost for i in ids)
        if ticket.number == OPEN and not gone:
            return ()  # the replacement makes them
        if gone and self.policy.tolerant:
            problems[:] = {id(loss): loss for loss in map(self._status.lost.get, ids)}.values()
            return ids
        # Resets are safe to resend to the replacement.
        recoverable = self.policy.tolerant or (ticket.kind is Reset and not gone)
        if not ticket.kind.writes_rows or not recoverable or ticket.expired:
            return ids
        for run in runs(ids) if ids else ():
            self._dispatcher.resend(ticket, run.start, run.stop)
        return ()

    def _on_restarted(self, problems: Iterable[Any]) -> None:
        """End a replacement worker that failed to make its environments."""
        for failure in problems:
            if isinstance(failure, Failure):
                worker = self._backend.worker_of(failure.env_id)
                self._failed_replacements.add(worker)
                self._backend.end_worker(worker, f"could not be made again: {failure.error}")
                self.dirty = True

    # ---------------------------------------------------------------- a deadline passed

    @property
    def can_force(self) -> bool:
        """Whether what missed a deadline can be replaced."""
        return self._backend.replaceable or self._rows.coroutines

    def force(self, late: Iterable[int], ticket: Ticket, reason: str) -> Iterator[Completion]:
        """Replace what missed a deadline; yield completions of the parts that will not arrive."""
        late = set(late)
        if not self._rows.coroutines:
            self.end_workers(late, reason)
            return
        # A coroutine that never awaits blocks its whole event loop.
        stuck = {i for i in late if self._backend.running(self._backend.worker_of(i)) in late}
        if stuck:
            self.end_workers(stuck, reason)
        for i in late - stuck:
            self.counts[i] += 1
            self._cancelled[i] = ticket.number
            fault = self.fault_log.late(i, ticket, reason)
            if self.policy.tolerant and not ticket.expired and ticket.kind.writes_rows:
                self._to_resend[i] = ticket
            else:
                problems = [Failure(i, "make", reason, "")] if ticket.kind is Recreate else []
                payload = Payload(problems=[*problems])
                self._failed_parts.append(Completion(ticket.number, i, i + 1, payload))
            if self._record_restart(range(i, i + 1), fault) is None:
                if not self.policy.tolerant:
                    self._status.mark_unready((i,), "was replaced after a missed deadline")
                self._recreate(range(i, i + 1))
        self._update_active()
        yield from self._take_failed_parts()

    def overdue(self, ticket: Ticket, reason: str) -> Iterator[Completion]:
        """Handle a replacement that missed its own deadline."""
        late = ticket.late()
        if self._backend.replaceable:
            self._failed_replacements.update(map(self._backend.worker_of, late))
            self.end_workers(late, reason)
        else:
            yield from self.force(late, ticket, reason)

    def end_workers(self, ids: Iterable[int], reason: str) -> None:
        """Kill the workers of some environments."""
        for worker in sorted({self._backend.worker_of(i) for i in ids}):
            self.recovering.update(self._backend.ranges[worker])
            self._backend.end_worker(worker, reason)
        self._update_active()

    # ---------------------------------------------------------------- on request

    def restart(self, ids: Ids) -> list[RestoreSpec]:
        """Replace environments at the caller's request; return what the new ones restore."""
        workers = {self._backend.worker_of(i) for i in ids}
        dead = workers & self._dead
        for worker in sorted(dead):
            span = self._backend.ranges[worker]
            self.restarts[worker] += 1
            self.on_replace(worker)
            self._backend.replace_worker(worker, self._dispatcher.begin_internal(Restart(), span))
        self._dead -= dead
        for run in runs(ids):
            self._budget.clear(run)
        self.recovering.update(ids)
        self._requested.update(ids)
        self._status.mark_found(ids)
        self._status.mark_unready(ids, "was restarted")
        for i in ids:
            self.pending.pop(i, None)
        self._update_active()
        return [
            replace(
                self._restore_spec(i, used=self._backend.worker_of(i) not in dead), observation=None
            )
            for i in ids
        ]

    def import_env(self, slot: int) -> RestoreSpec:
        """Return what a healthy environment's successor in another worker restores."""
        fault_log = self.fault_log
        return RestoreSpec(
            seed=fault_log.seeds.get(slot),
            options=fault_log.options.get(slot),
            observation=self._rows.last(slot)[0],
        )

    def recover(self, failure: Failure) -> None:
        """Recover an environment that failed outside of the caller's operations."""
        span = failure.env_ids
        self._count(span)
        if not self.policy.tolerant:
            self._status.mark_unready(span, f"raised in {failure.operation}")
        elif self._record_restart(span, self.fault_log.raised(failure)) is None:
            self._recreate(span)
        self._update_active()

    def with_dead_neighbours(self, ids: Ids) -> Ids:
        """Add all environments that died with some of these."""
        dead = [self._backend.ranges[worker] for worker in self._dead]
        with_them = {i for span in dead if set(span).intersection(ids) for i in span}
        return tuple(sorted({*ids, *with_them} - self._status.closed_envs))

    def _restore_spec(self, slot: int, *, used: bool = True, innocent: bool = False) -> RestoreSpec:
        """Return what a new environment restores."""
        seed = self.fault_log.seeds.get(slot)
        restore = RestoreSpec(
            used, seed, self._reseed(slot, seed), self.fault_log.options.get(slot)
        )
        if not self.policy.tolerant or not self._status.is_ready(slot):
            return restore
        observation, over = self._rows.last(slot)
        if observation is None:  # the first reset is still under way
            return restore
        restore = replace(restore, observation=observation)
        fault = self.pending.get(slot)
        if not innocent or fault is None or fault.culprit == slot or fault.kind == "raised":
            return restore  # includes an earlier truncation that was not reported yet
        if self.policy.mode != "replay" or self._log is None:
            return restore
        episode = self._log.episode(slot)
        if episode.start is not None and episode.complete:
            return replace(restore, start=episode.start, actions=[*episode.actions])
        if (
            any(over) and self._backend.options.autoreset is not AutoresetMode.SAME_STEP
        ):  # the episode is over already
            return replace(restore, start=EpisodeStart(), over=over)
        why = f"its episode is longer than replay_limit={self._log.limit}"
        if episode.start is None:
            why = "how its episode began is not known"
        self.pending[slot] = replace(fault, replay=why)
        return restore

    def _reseed(self, slot: int, seed: int | None) -> int | None:
        """Derive a replacement's seed from the original seed and the number of faults."""
        if seed is None:
            return None
        return int(np.random.SeedSequence([seed, self.counts[slot]]).generate_state(1)[0])


def _ignore(worker: int) -> None:
    """Nobody has to know of a replacement."""
