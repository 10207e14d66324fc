"""Recovery: what a fault does to the environments, by the ``on_fault`` option.

It looks at every outcome before the engine accounts for it. Under ``raise`` a fault passes and
becomes the caller's error. Under ``restart`` and ``replay`` the worker, or the one environment that
raised, is replaced, and what it owed is sent again, behind a ``recreate``::

    death  --> replace(worker) --> recreate(its envs) --> the steps and resets it owed, again
    raised -->                     recreate(that env) --> its step or reset, again

A recreated environment has nothing but its place: its next step comes back truncated, with the last
known observation and no reward, and the autoreset mode's rule does the rest. A replayed one is
where it was, so its step is a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from agym.engine.faults.action_log import ActionLog
from agym.engine.faults.budget import BudgetExceeded, RestartBudget
from agym.engine.faults.fault_log import FaultLog, Witness
from agym.engine.faults.policy import FaultPolicy
from agym.engine.status import EnvStatus
from agym.engine.ticket import Ticket
from agym.errors import Fault
from agym.protocol.arguments import Ids, runs
from agym.protocol.messages import (
    FAULT,
    OPEN,
    ROW_KINDS,
    Completion,
    EnvLoss,
    EpisodeStart,
    Failure,
    Payload,
    RestoreSpec,
    WorkerDeath,
    name_ids,
)


class Workers(Protocol):
    """What recovery needs of an backend; see :class:`agym.backends.base.Backend`."""

    @property
    def ranges(self) -> Sequence[range]: ...
    @property
    def replaceable(self) -> bool: ...
    def end_worker(self, worker: int, reason: str) -> None: ...
    def replace_worker(self, worker: int, number: int) -> None: ...
    def running(self, worker: int) -> int | None: ...


class Repairs(Witness, Protocol):
    """What recovery needs of the engine."""

    num_envs: int

    @property
    def opened(self) -> bool:
        """Whether the environments are made."""

    @property
    def coroutines(self) -> bool:
        """Whether they are coroutine environments."""

    def order(self, kind: str, ids: Ids, each: list[Any] | None = None) -> int:
        """Begin an operation of our own, ahead of all that waits; gives its number."""

    def resend(self, ticket: Ticket, start: int, stop: int) -> None:
        """Send a part of a ticket's operation once more."""

    def last_row(self, slot: int) -> tuple[Any, tuple[bool, bool]]:
        """The last known observation and flags of an environment."""

    def rearm(self) -> None:
        """Set the deadlines anew that were suspended."""


class Recovery:
    """Mends what can be mended.

    Attributes:
        policy: What the caller wants.
        incidents: What is put on record.
        recovering: The environments that are being replaced.
        pending: Faults that the caller has not been told.
        counts: How many faults each environment had.
        restarts: How often each worker was replaced.
        attentive: Also outcomes without anything special are to be looked at.
        acted: Something was sent while outcomes were looked at.
        on_replace: Called with the index of a worker that is about to be replaced.
    """

    def __init__(
        self, policy: FaultPolicy, health: EnvStatus, repairs: Repairs, workers: Workers
    ) -> None:
        """Begin with nothing wrong."""
        self.policy = policy
        self.recovering: set[int] = set()
        self.pending: dict[int, Fault] = {}
        self.counts = [0] * repairs.num_envs
        self.restarts = [0] * len(workers.ranges)
        self.dirty = False
        self.on_replace: Callable[[int], object] = int
        self._status = health
        self._repairs = repairs
        self._workers = workers
        self._budget = RestartBudget(policy.max_restarts, policy.restart_window)
        self._log = ActionLog(policy.replay_limit) if policy.record_actions else None
        self.incidents = FaultLog(policy.folder, self._log, repairs)
        self._latest: dict[int, WorkerDeath] = {}
        self._dead: set[int] = set()
        # Workers that died because they could not make their environments again.
        self._unmade: set[int] = set()
        # Operations of environments that were cancelled: their answers are not waited for.
        self._cancelled: dict[int, int] = {}
        # Environments that the caller asked for: if these fail, it is told at once.
        self._asked: set[int] = set()
        # What is sent again to an environment once it is remade; and what never will be.
        self._owed: dict[int, Ticket] = {}
        self._forfeited: list[Completion] = []
        self._attend()

    def _attend(self) -> None:
        self.active = bool(self._log is not None or self.pending or self.recovering)

    # ---------------------------------------------------------------- outcomes

    def filter(self, outcome: Completion, ticket: Ticket | None) -> Iterator[Completion]:
        """Look at an outcome; gives what of it the engine is to account for."""
        number, start, stop, extras = outcome
        problems = [] if extras is None else extras.problems
        for problem in problems:
            if isinstance(problem, WorkerDeath) and self._latest.get(problem.worker) is not problem:
                self._latest[problem.worker] = problem
                self.on_worker_death(problem)
        self._attend()
        if number == FAULT or ticket is None:
            yield from self._forfeit()
            return
        ids: Ids = tuple(i for i in range(start, stop) if self._cancelled.get(i) != number)
        if ticket.kind == "restart":
            self._made(problems)
        elif ticket.kind == "recreate":
            self._on_recreated(ids, extras)
        elif any(isinstance(problem, WorkerDeath) for problem in problems):
            ids = self._lost(ids, ticket, problems)
        else:
            self._examine(problems, ticket)
            if ticket.kind in ROW_KINDS and not ticket.expired:
                extras = extras or Payload()
                ids = self._failed(ids, ticket, extras)
                self._note(ids, ticket, extras)
        self._attend()
        for run in runs(ids) if ids else ():
            yield Completion(number, run.start, run.stop, extras)
            extras = None
        yield from self._forfeit()

    def _forfeit(self) -> list[Completion]:
        """Outcomes in the place of those that will not come."""
        forfeited, self._forfeited = self._forfeited, []
        return forfeited

    def _note(self, ids: Ids, ticket: Ticket, extras: Payload) -> None:
        """Log what environments were sent, and tell of faults."""
        for i in ids:
            if i in self.pending:
                extras.infos.setdefault(i, {})["fault"] = self.pending.pop(i)
                if self._log is not None:
                    self._log.cut(i)
            elif self._log is not None and ticket.kind == "step" and i not in extras.starts:
                self._log.add(i, self._repairs.action(i, ticket))
            if self._log is not None and i in extras.starts:
                self._log.begin(i, extras.starts[i])

    # ---------------------------------------------------------------- an environment raised

    def _examine(self, problems: list[Any], ticket: Ticket) -> None:
        """Count failures, and write capsules, which the errors then name."""
        for k, failure in enumerate(problems):
            if isinstance(failure, Failure) and failure.fault and not failure.echo:
                self._count(failure.env_ids)
                problems[k] = self.incidents.with_capsule(failure, ticket)

    def _failed(self, ids: Ids, ticket: Ticket, extras: Payload) -> Ids:
        """Steps or resets have ended, some badly; gives the environments that are through."""
        if not extras.problems or not self.policy.tolerant:
            return ids
        failures = [problem for problem in extras.problems if isinstance(problem, Failure)]
        extras.problems = []
        resend: list[int] = []
        for failure in failures:
            span = failure.env_ids
            given_up = self._status.lost.get(failure.env_id)
            if not failure.echo:
                given_up = self._record_restart(span, self.incidents.raised(failure))
            if given_up is not None:
                extras.problems.append(given_up)
                continue
            resend += span
            self._owed.update((i, ticket) for i in ids if i in span)
            if not failure.echo:
                self._recreate(span)
        return tuple(i for i in ids if i not in resend)

    def _recreate(self, span: range) -> None:
        """Put another in the place of an environment, or of all that are one program."""
        self.dirty = True
        self.recovering.update(span)
        self._repairs.order("recreate", span, [self._restore_spec(i) for i in span])

    def _count(self, span: range) -> None:
        for i in span:
            self.counts[i] += 1

    def _on_recreated(self, ids: Ids, extras: Payload | None) -> None:
        """Environments were put in the place of others, or could not be."""
        problems = [] if extras is None else extras.problems
        if any(isinstance(problem, WorkerDeath) for problem in problems):
            return  # there is another "recreate" on the way
        bad: set[int] = set()
        for failure in problems:
            if isinstance(failure, Failure) and failure.env_id in ids:
                bad.update(failure.env_ids)
                self._on_recreate_failed(failure)
        well = [i for i in ids if i not in bad]
        for i in ids:
            self._cancelled.pop(i, None)
            self._asked.discard(i)
        self.recovering.difference_update(well)
        self._resend_pending(well)
        for i in well:
            reason = None if extras is None else extras.values.get(i)
            if reason == "":
                self.pending.pop(i, None)
            elif reason and i in self.pending:
                self.pending[i] = replace(self.pending[i], replay=reason)
        self._repairs.rearm()

    def _on_recreate_failed(self, failure: Failure) -> None:
        """What was to take another's place could not be made."""
        span = failure.env_ids
        if not self.policy.tolerant or self._asked.intersection(span):
            self._abandon(span, failure)
            return
        self._count(span)
        if self._record_restart(span, self.incidents.raised(failure)) is None:
            self._recreate(span)

    def _resend_pending(self, ids: Iterable[int]) -> None:
        """Send again what environments owe, to neighbours together."""
        owed = [(self._owed.pop(i), i) for i in ids if i in self._owed]
        for ticket in dict.fromkeys(ticket for ticket, _ in owed):
            for run in runs(tuple(i for other, i in owed if other is ticket)):
                self._repairs.resend(ticket, run.start, run.stop)
                self.dirty = True

    def _record_restart(self, ids: range, fault: Fault) -> BudgetExceeded | None:
        """A fault is to be mended; gives the verdict if it is one too many."""
        given_up = self._budget.record(ids, fault)
        if given_up is not None:
            self._abandon(ids, given_up)
        elif self.policy.tolerant:
            for i in ids:
                self.pending.setdefault(i, replace(fault, env_id=i))
        return given_up

    def _abandon(self, ids: range, loss: EnvLoss) -> None:
        """Environments are gone, until the caller asks for others."""
        self._status.mark_lost(ids, loss)
        self.recovering.difference_update(ids)
        self._asked.difference_update(ids)
        for i in ids:
            self.pending.pop(i, None)
            self._cancelled.pop(i, None)
            owed = self._owed.pop(i, None)
            if owed is not None:
                extras = Payload(problems=[loss])
                self._forfeited.append(Completion(owed.number, i, i + 1, extras))
        self._repairs.rearm()

    # ---------------------------------------------------------------- a worker died

    def on_worker_death(self, death: WorkerDeath) -> None:
        """A worker has ended: put another in its place, if that is wanted."""
        ids, worker = death.env_ids, death.worker
        unmade = worker in self._unmade
        self._unmade.discard(worker)
        self._dead.add(worker)
        faults = self.incidents.died(death)
        suspects = self._suspects(death)
        for i in ids:
            self.counts[i] += 1
        if death.pid is None and not unmade:
            self.incidents.notices.append(
                f"worker {worker}, a thread, {death.reason} in environments"
                f" {name_ids(sorted(suspects))} and was left behind: it goes on until it comes back"
            )
        mended = self.policy.tolerant or (death.late and not unmade and self._repairs.opened)
        if not mended or self._asked.intersection(ids):
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
        except Exception as error:  # no memory, no processes left: it cannot be brought back
            reason = f"{death.reason}, and cannot be replaced: {error}"
            self._abandon(ids, replace(death, reason=reason))

    def _replace(self, worker: int, suspects: set[int]) -> None:
        """Put a worker in the place of one, with environments that take over or begin again."""
        ids = self._workers.ranges[worker]
        self.dirty = True
        self.restarts[worker] += 1
        self._dead.discard(worker)
        self.on_replace(worker)
        if not self._repairs.opened:
            self._workers.replace_worker(worker, OPEN)
            return
        self.recovering.update(ids)
        if not self.policy.tolerant:
            self._status.mark_unready(ids, "was replaced after a missed deadline")
        self._workers.replace_worker(worker, self._repairs.order("restart", ids))
        restores = [self._restore_spec(i, anew=False, innocent=i not in suspects) for i in ids]
        self._repairs.order("recreate", ids, restores)
        for i in self._status.retired.intersection(ids):
            self._repairs.order("close_env", (i,))

    @staticmethod
    def _suspects(death: WorkerDeath) -> set[int]:
        """Who may have caused it: the one that was running, if that is known."""
        if death.running is not None:
            return {death.running}
        return {i for i, kind in death.operations.items() if not kind.startswith("idle")}

    def _lost(self, ids: Ids, ticket: Ticket, problems: list[Any]) -> Ids:
        """A worker died that owed something: send it again where that may be, else it failed."""
        gone = any(i in self._status.lost for i in ids)
        if ticket.number == OPEN and not gone:
            return ()  # the worker in its place owes it now
        if gone and self.policy.tolerant:
            problems[:] = {id(loss): loss for loss in map(self._status.lost.get, ids)}.values()
            return ids
        # Nothing is lost with a reset: where another is in place already, it is done there.
        mended = self.policy.tolerant or (ticket.kind == "reset" and not gone)
        if ticket.kind not in ROW_KINDS or not mended or ticket.expired:
            return ids
        for run in runs(ids) if ids else ():
            self._repairs.resend(ticket, run.start, run.stop)
        return ()

    def _made(self, problems: Iterable[Any]) -> None:
        """Another worker has made its environments, or failed to."""
        for failure in problems:
            if isinstance(failure, Failure):
                worker = self._worker_of(failure.env_id)
                self._unmade.add(worker)
                self._workers.end_worker(worker, f"could not be made again: {failure.error}")
                self.dirty = True

    def _worker_of(self, slot: int) -> int:
        return next(k for k, ids in enumerate(self._workers.ranges) if slot in ids)

    # ---------------------------------------------------------------- a deadline passed

    def force(self, late: Iterable[int], ticket: Ticket, reason: str) -> Iterator[Completion]:
        """End what does not come back; gives outcomes in the place of those that will not come."""
        late = set(late)
        if not self._repairs.coroutines:
            self.end_workers(late, reason)
            return
        # One that never awaits holds its whole loop up.
        stuck = {i for i in late if self._workers.running(self._worker_of(i)) in late}
        if stuck:
            self.end_workers(stuck, reason)
        for i in late - stuck:
            self.counts[i] += 1
            self._cancelled[i] = ticket.number
            fault = self.incidents.late(i, ticket, reason)
            if self.policy.tolerant and not ticket.expired and ticket.kind in ROW_KINDS:
                self._owed[i] = ticket
            else:
                unmade = [Failure(i, "make", reason, "")] if ticket.kind == "recreate" else []
                extras = Payload(problems=[*unmade])
                self._forfeited.append(Completion(ticket.number, i, i + 1, extras))
            if self._record_restart(range(i, i + 1), fault) is None:
                if not self.policy.tolerant:
                    self._status.mark_unready((i,), "was replaced after a missed deadline")
                self._recreate(range(i, i + 1))
        self._attend()
        yield from self._forfeit()

    def overdue(self, ticket: Ticket, reason: str) -> Iterator[Completion]:
        """Not even what is to take another's place comes up."""
        late = ticket.late()
        if self._workers.replaceable:
            self._unmade.update(map(self._worker_of, late))
            self.end_workers(late, reason)
        else:
            yield from self.force(late, ticket, reason)

    def end_workers(self, ids: Iterable[int], reason: str) -> None:
        """End the workers of some environments."""
        for worker in sorted({self._worker_of(i) for i in ids}):
            self.recovering.update(self._workers.ranges[worker])
            self._workers.end_worker(worker, reason)
        self._attend()

    # ---------------------------------------------------------------- on request

    def restart(self, ids: Ids) -> list[RestoreSpec]:
        """The caller asks for other environments, which are to be reset then."""
        workers = {self._worker_of(i) for i in ids}
        dead = workers & self._dead
        for worker in sorted(dead):
            span = self._workers.ranges[worker]
            self.restarts[worker] += 1
            self.on_replace(worker)
            self._workers.replace_worker(worker, self._repairs.order("restart", span))
        self._dead -= dead
        for run in runs(ids):
            self._budget.clear(run)
        self.recovering.update(ids)
        self._asked.update(ids)
        self._status.mark_found(ids)
        self._status.mark_unready(ids, "was restarted")
        for i in ids:
            self.pending.pop(i, None)
        self._attend()
        return [
            replace(self._restore_spec(i, anew=self._worker_of(i) not in dead), observation=None)
            for i in ids
        ]

    def import_env(self, slot: int) -> RestoreSpec:
        """What an environment takes over from one that is well."""
        incidents = self.incidents
        return RestoreSpec(
            seed=incidents.seeds.get(slot),
            options=incidents.options.get(slot),
            observation=self._repairs.last_row(slot)[0],
        )

    def mend(self, failure: Failure) -> None:
        """An environment failed that nobody was waiting for."""
        span = failure.env_ids
        self._count(span)
        if not self.policy.tolerant:
            self._status.mark_unready(span, f"raised in {failure.operation}")
        elif self._record_restart(span, self.incidents.raised(failure)) is None:
            self._recreate(span)
        self._attend()

    def whole(self, ids: Ids) -> Ids:
        """Environments, and all that died with them."""
        dead = [self._workers.ranges[worker] for worker in self._dead]
        with_them = {i for span in dead if set(span).intersection(ids) for i in span}
        return tuple(sorted({*ids, *with_them} - self._status.retired))

    def _restore_spec(self, slot: int, *, anew: bool = True, innocent: bool = False) -> RestoreSpec:
        """What an environment is to take over."""
        seed = self.incidents.seeds.get(slot)
        restore = RestoreSpec(
            anew, seed, self._reseed(slot, seed), self.incidents.options.get(slot)
        )
        if not self.policy.tolerant or not self._status.is_ready(slot):
            return restore
        observation, over = self._repairs.last_row(slot)
        if observation is None:  # its first reset is still under way
            return restore
        restore = replace(restore, observation=observation)
        fault = self.pending.get(slot)
        if not innocent or fault is None or fault.culprit == slot or fault.kind == "raised":
            return restore  # also if it was cut off before, and the caller is yet to hear of it
        if self.policy.mode != "replay" or self._log is None:
            return restore
        episode = self._log.episode(slot)
        if episode.start is not None and episode.complete:
            return replace(restore, start=episode.start, actions=[*episode.actions])
        if any(over) and self._repairs.autoreset != "same_step":  # nothing is left to cut off
            return replace(restore, start=EpisodeStart(), over=over)
        why = f"its episode is longer than replay_limit={self._log.limit}"
        if episode.start is None:
            why = "how its episode began is not known"
        self.pending[slot] = replace(fault, replay=why)
        return restore

    def _reseed(self, slot: int, seed: int | None) -> int | None:
        """A seed for what takes another's place: a function of its seed and number of faults."""
        if seed is None:
            return None
        return int(np.random.SeedSequence([seed, self.counts[slot]]).generate_state(1)[0])
