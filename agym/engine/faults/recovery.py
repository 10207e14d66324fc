"""Recovery: what a fault does to the environments, by the ``on_fault`` option.

Recovery filters every completion before the collector accounts for it. Under ``raise`` a fault
passes and becomes the caller's error. Under ``restart`` and ``replay`` the worker, or the
environment that raised, is replaced, and its pending operations are sent again, behind a
``Load``::

    death  --> replace_worker --> Load(its envs) --> their pending steps and resets, again
    raised -->                    Load(that env) --> its step or reset, again

A replacement that loads the state of an episode that is cut off starts another episode, with the
seed and options of the last reset: its next step comes back truncated, with the last known
observation and no reward, and the autoreset mode decides what follows. One that loads a replay
continues where the environment was, so its next step is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from agym.backends.pool import Pool
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.interrupted import InterruptedParts
from agym.engine.calls.ticket import Ticket
from agym.engine.faults.episodes import Episodes
from agym.engine.faults.fault_log import FaultLog
from agym.engine.faults.policy import BudgetExceeded, FaultPolicy, RestartBudget
from agym.engine.opened import EnvRows
from agym.engine.status import EnvStatus, WorkerLog
from agym.errors import Fault
from agym.hosts.snapshots.codecs import registered
from agym.hosts.snapshots.states import EnvState
from agym.protocol.arguments import Ids, runs
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import EnvLoss, Failure, WorkerDeath, name_envs
from agym.protocol.messages.operations import (
    FAULT,
    OPEN,
    CloseEnv,
    Load,
    Restart,
    Save,
)

NO_FAULTS: Mapping[int, Fault] = MappingProxyType({})


class Recovery:
    """Replaces workers and environments that failed.

    Attributes:
        policy: The caller's policy.
        follows: Whether every step must be seen: to replay episodes, or to try them again.
        fault_log: The log of faults.
        workers: What became of the workers.
        episodes: What is known of the episodes, and which of them begin again.
        recovering: The environments that are being replaced.
        pending: Faults that have not been reported to the caller, by environment.
        on_replace: Called with the index of a worker that is about to be replaced.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        status: EnvStatus,
        dispatcher: Dispatcher,
        rows: EnvRows,
        backend: Pool,
    ) -> None:
        self.policy = policy
        self.follows = policy.follow_episodes
        options = backend.options
        self.episodes = Episodes(
            policy, dispatcher, rows, len(options.factories), options.autoreset
        )
        self.fault_log = FaultLog(policy, options, dispatcher, rows, self.episodes)
        self.pending = self.fault_log.pending
        self.workers = WorkerLog(backend)
        self.recovering: set[int] = set()
        self.on_replace: Callable[[int], None] = _ignore
        self._status = status
        self._dispatcher = dispatcher
        self._rows = rows
        self._backend = backend
        self._budget = RestartBudget(policy.max_restarts, policy.restart_window)
        self._parts = InterruptedParts(dispatcher)
        # Environments that the caller asked to replace: a failure of these is raised at once.
        self._requested: set[int] = set()

    # ---------------------------------------------------------------- completions

    def filter(self, completion: Completion, ticket: Ticket | None) -> Iterator[Completion]:
        """Handle the problems of a completion; yield what the collector is to account for."""
        number, start, stop, payload = completion
        problems = [] if payload is None else payload.problems
        for problem in problems:
            if isinstance(problem, WorkerDeath) and self.workers.is_new(problem):
                self._on_worker_death(problem)
        if number == FAULT or ticket is None:
            yield from self._parts.take_failed()
            return
        ids: Ids = self._parts.wanted(number, start, stop)
        if ticket.kind is Restart:
            self._on_restarted(problems)
        elif ticket.message.replaces:
            self._on_replaced(ids, payload)
        elif any(isinstance(problem, WorkerDeath) for problem in problems):
            ids = self._on_parts_lost(ids, ticket, problems)
        else:
            self._record_failures(problems, ticket)
            if ticket.kind is Save and payload is not None:
                self.episodes.note_states(payload.values)
            if ticket.message.writes_rows and not ticket.expired:
                payload = payload or Payload()
                ids = self._handle_failures(ids, ticket, payload)
                faults = self.fault_log.report(ids, payload)
                if self.policy.follow_episodes:
                    self.episodes.report(ids, ticket, payload, faults)
        for run in runs(ids) if ids else ():
            yield Completion(number, run.start, run.stop, payload)
            payload = None
        yield from self._parts.take_failed()

    # ---------------------------------------------------------------- an environment raised

    def _record_failures(self, problems: list[Any], ticket: Ticket) -> None:
        """Count failures, and write capsules, which the failures then name."""
        for k, failure in enumerate(problems):
            if isinstance(failure, Failure) and failure.fault and not failure.echo:
                self.fault_log.count(failure.env_ids)
                problems[k] = self.fault_log.with_capsule(failure, ticket)

    def _handle_failures(self, ids: Ids, ticket: Ticket, payload: Payload) -> Ids:
        """Replace environments that raised in a step or reset; return the ones that are done."""
        if not payload.problems or not self.policy.tolerant:
            return ids
        failures = [p for p in payload.problems if isinstance(p, Failure) and p.fault]
        payload.problems = [p for p in payload.problems if isinstance(p, Failure) and not p.fault]
        self.episodes.note_raised(payload)
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
            payload.take(span)  # what became of a step that is sent again
            self._parts.hold([i for i in ids if i in span], ticket)
            if not failure.echo:
                self._load(span)
        return tuple(i for i in ids if i not in resend)

    def _load(self, span: range, suspects: Collection[int] | None = None) -> None:
        """Replace environments, each by one in the state that is known.

        Args:
            span: The environments.
            suspects: With a fresh worker, those that may have caused the death of the old one; the
                others may continue. Else all environments are replaced by others.
        """
        self.recovering.update(span)
        innocent = set() if suspects is None else {*span}.difference(suspects)
        states = [self._state(i, innocent=i in innocent) for i in span]
        load = Load(states, codecs=registered(), fresh=suspects is not None)
        self._dispatcher.begin_internal(load, span)

    def _state(self, slot: int, *, innocent: bool) -> EnvState:
        """Return the state that a replacement loads; note why one cannot be replayed."""
        lost = self.episodes.lost(slot, self.fault_log.counts[slot])
        if not self.policy.tolerant or not self._status.is_ready(slot):
            return lost
        observation, flags = self._rows.last(slot)
        if observation is None:  # the first reset is still under way
            return lost
        lost = lost._replace(observation=observation)
        pending = self.fault_log.pending
        fault = pending.get(slot)
        if not innocent or fault is None or fault.culprit == slot or fault.kind == "raised":
            return lost  # includes an earlier truncation that was not reported yet
        if self.policy.mode != "replay":
            return lost
        state = self.episodes.replayed(slot, lost, flags)
        if isinstance(state, EnvState):
            return state
        pending[slot] = replace(fault, replay=state)
        return lost

    def _on_replaced(self, ids: Ids, payload: Payload | None) -> None:
        """Resume environments that were replaced, and handle those that could not be."""
        problems = [] if payload is None else payload.problems
        if any(isinstance(problem, WorkerDeath) for problem in problems):
            return  # another ``Load`` is on its way
        bad: set[int] = set()
        for failure in problems:
            if isinstance(failure, Failure) and failure.env_id in ids:
                bad.update(failure.env_ids)
                self._on_load_failed(failure)
        well = [i for i in ids if i not in bad]
        self._parts.uncancel(ids)
        self._requested.difference_update(ids)
        self.recovering.difference_update(well)
        self._parts.resend(well)
        pending = self.fault_log.pending
        for i in well:
            lost = None if payload is None else payload.values.get(i)
            if lost is None:
                pending.pop(i, None)
                self.episodes.resumed(i)
            elif lost and i in pending:
                pending[i] = replace(pending[i], replay=lost)
        self._dispatcher.rearm()

    def _on_load_failed(self, failure: Failure) -> None:
        """Try again, unless the caller asked for the environment or its budget is exceeded."""
        span = failure.env_ids
        if not self.policy.tolerant or self._requested.intersection(span):
            self._abandon(span, failure)
            return
        self.fault_log.count(span)
        if self._record_restart(span, self.fault_log.raised(failure)) is None:
            self._load(span)

    def _record_restart(
        self,
        ids: range,
        fault: Fault,
        faults: Mapping[int, Fault] = NO_FAULTS,
        innocent: Collection[int] = (),
    ) -> BudgetExceeded | None:
        """Record and log a fault that is to be recovered.

        Args:
            ids: The environments that are replaced.
            fault: What happened, to the environment that is to blame.
            faults: What happened to single environments, where that differs.
            innocent: The environments that only shared a worker.

        Returns:
            The verdict if the budget is exceeded.
        """
        given_up = self._budget.record(ids, fault)
        if given_up is not None:
            self._abandon(ids, given_up)
        elif self.policy.tolerant:
            for i in ids:
                self._interrupt(i, faults.get(i) or replace(fault, env_id=i))
            self.fault_log.warn(ids, fault, self._budget.count(ids), innocent)
        return given_up

    def _interrupt(self, env_id: int, fault: Fault) -> None:
        """Note a fault for the next info of an environment; decide about a retry."""
        pending = self.fault_log.pending
        if env_id not in pending:
            pending[env_id] = self.episodes.failed(env_id, fault)
        elif fault.operation == "reset":  # of the retry itself
            retry = self.episodes.failed(env_id, fault).retry
            pending[env_id] = replace(pending[env_id], retry=retry)

    def _abandon(self, ids: range, loss: EnvLoss) -> None:
        """Mark environments as lost, until the caller asks for others."""
        self._status.mark_lost(ids, loss)
        self.recovering.difference_update(ids)
        self._requested.difference_update(ids)
        for i in ids:
            self.fault_log.pending.pop(i, None)
            self.episodes[i].forget_retry()
        self._parts.abandon(ids, loss)
        self._dispatcher.rearm()

    # ---------------------------------------------------------------- a worker died

    def _on_worker_death(self, death: WorkerDeath) -> None:
        """Replace a dead worker if the policy says so, or mark its environments as lost."""
        ids, worker = death.env_ids, death.worker
        failed_replacement = self.workers.note_death(worker)
        faults = self.fault_log.died(death)
        suspects = _suspects(death)
        self.fault_log.count(ids)
        if death.late and death.pid is None and not failed_replacement:
            where = name_envs(sorted(suspects))
            self.fault_log.notices.append(
                f"worker {worker}, a thread, {death.reason} in {where} and was left behind: it goes"
                " on until it comes back"
            )
        recoverable = self.policy.tolerant or (
            death.late and not failed_replacement and self._rows.opened is not None
        )
        if not (recoverable and death.replaceable) or self._requested.intersection(ids):
            self._abandon(ids, death)
            return
        worst = faults[next(iter(suspects), ids[0])]
        innocent = [i for i in ids if i not in suspects]
        if self._record_restart(ids, worst, faults, innocent) is not None:
            return
        try:
            self._replace(worker, suspects)
        except Exception as error:  # for example, no memory or processes are left
            reason = f"{death.reason}, and cannot be replaced: {error}"
            self._abandon(ids, replace(death, reason=reason))

    def _replace(self, worker: int, suspects: set[int]) -> None:
        """Replace a worker and its environments."""
        ids = self._backend.ranges[worker]
        self.workers.note_replacement(worker)
        self.on_replace(worker)
        if self._rows.opened is None:
            self._backend.replace_worker(worker, OPEN)
            return
        self.recovering.update(ids)
        if not self.policy.tolerant:
            self._status.mark_unready(ids, "was replaced after a missed deadline")
        begin = self._dispatcher.begin_internal
        self._backend.replace_worker(worker, begin(Restart(), ids))
        self._load(ids, suspects)
        for i in self._status.closed_envs.intersection(ids):
            begin(CloseEnv(), (i,))

    def _on_parts_lost(self, ids: Ids, ticket: Ticket, problems: list[Any]) -> Ids:
        """Resend the parts that a dead worker left, if possible; return those that failed."""
        gone = any(i in self._status.lost for i in ids)
        if ticket.number == OPEN and not gone:
            return ()  # the replacement makes them
        if gone and self.policy.tolerant:
            problems[:] = {id(loss): loss for loss in map(self._status.lost.get, ids)}.values()
            return ids
        # Resets are safe to resend to the replacement.
        recoverable = self.policy.tolerant or (ticket.message.starts and not gone)
        if not ticket.message.writes_rows or not recoverable or ticket.expired:
            return ids
        for run in runs(ids) if ids else ():
            self._dispatcher.resend(ticket, run.start, run.stop)
        return ()

    def _on_restarted(self, problems: Iterable[Any]) -> None:
        """End a replacement worker that failed to make its environments."""
        for failure in problems:
            if isinstance(failure, Failure):
                worker = self.workers.worker_of(failure.env_id)
                self.workers.note_failure([worker])
                self._backend.end_worker(worker, f"could not be made again: {failure.error}")

    # ---------------------------------------------------------------- a deadline passed

    @property
    def timeout_ends(self) -> Literal["env", "worker"] | None:
        """What a missed deadline can end: an environment, its whole worker, or nothing."""
        if self._rows.cancellable:
            return "env"
        return "worker" if self._backend.replaceable else None

    @property
    def can_force(self) -> bool:
        """Whether what missed a deadline can be replaced."""
        return self.timeout_ends is not None

    def force(self, late: Iterable[int], ticket: Ticket, reason: str) -> Iterator[Completion]:
        """Replace what missed a deadline; yield completions of the parts that will not arrive."""
        late = set(late)
        if not self._rows.cancellable:
            self._end_workers(late, reason)
            return
        # What does not yield, such as a coroutine that never awaits, blocks the others.
        stuck: set[int] = set()
        if self._backend.replaceable:
            running = self._backend.running
            stuck = {i for i in late if running(self.workers.worker_of(i)) in late}
        if stuck:
            self._end_workers(stuck, reason)
        for i in late - stuck:
            self.fault_log.count((i,))
            self._parts.cancel(i, ticket)
            fault = self.fault_log.late(i, ticket, reason)
            if self.policy.tolerant and not ticket.expired and ticket.message.writes_rows:
                self._parts.hold([i], ticket)
            else:
                unmade = ticket.message.replaces
                self._parts.fail(i, ticket, [Failure(i, "make", reason, "")] if unmade else [])
            if self._record_restart(range(i, i + 1), fault) is None:
                if not self.policy.tolerant:
                    self._status.mark_unready((i,), "was replaced after a missed deadline")
                self._load(range(i, i + 1))
        yield from self._parts.take_failed()

    def overdue(self, ticket: Ticket, reason: str) -> Iterator[Completion]:
        """Handle a replacement that missed its own deadline."""
        late = ticket.late()
        if self._backend.replaceable:
            self.workers.note_failure(self.workers.of(late))
            self._end_workers(late, reason)
        else:
            yield from self.force(late, ticket, reason)

    def _end_workers(self, ids: Iterable[int], reason: str) -> None:
        """Kill the workers of some environments."""
        for worker in sorted(self.workers.of(ids)):
            self.recovering.update(self._backend.ranges[worker])
            self._backend.end_worker(worker, reason)

    # ---------------------------------------------------------------- on request

    def restart(self, ids: Ids) -> list[tuple[range, Load]]:
        """Replace environments at the caller's request; return what to send to which of them."""
        dead = self.workers.of(ids) & self.workers.dead
        for loss in map(self._status.lost.get, ids):
            if isinstance(loss, WorkerDeath) and not loss.replaceable:
                raise loss.to_exception()
        for worker in sorted(dead):
            span = self._backend.ranges[worker]
            self.workers.note_replacement(worker)
            self.on_replace(worker)
            number = self._dispatcher.begin_internal(Restart(), span)
            self._backend.replace_worker(worker, number)
        for run in runs(ids):
            self._budget.clear(run)
        self.recovering.update(ids)
        self._requested.update(ids)
        self._status.mark_found(ids)
        self._status.mark_unready(ids, "was restarted")
        for i in ids:
            self.fault_log.pending.pop(i, None)
            self.episodes[i].forget_retry()
        fresh = {i for i in ids if self.workers.worker_of(i) in dead}
        return [
            (run, Load([self.episodes.lost(i, self.fault_log.counts[i]) for i in run], fresh=new))
            for new, some in ((True, fresh), (False, {*ids} - fresh))
            for run in (runs(tuple(sorted(some))) if some else ())
        ]

    def recover(self, failure: Failure) -> None:
        """Recover an environment that failed outside of the caller's operations."""
        span = failure.env_ids
        self.fault_log.count(span)
        if not self.policy.tolerant:
            self._status.mark_unready(span, f"raised in {failure.operation}")
        elif self._record_restart(span, self.fault_log.raised(failure)) is None:
            self._load(span)

    def with_dead_neighbours(self, ids: Ids) -> Ids:
        """Add all environments that died with some of these, unless they are closed."""
        return tuple(sorted(self.workers.with_dead_neighbours(ids) - self._status.closed_envs))


def _suspects(death: WorkerDeath) -> set[int]:
    """Return the environments that may have caused a death: only the running one, if known."""
    if death.running is not None:
        return {death.running}
    return {i for i, doing in death.operations.items() if not doing.startswith("idle")}


def _ignore(worker: int) -> None:
    """Nobody has to know of a replacement."""
