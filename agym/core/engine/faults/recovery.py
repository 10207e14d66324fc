"""Recovery: handles faults as the ``on_fault`` option says.

Recovery filters every completion before the collector accounts for it. Under ``raise`` a fault
passes through and becomes the caller's error. Under ``restart`` and ``replay`` the worker, or the
environment that raised, is replaced, and its pending operations are sent again, after a
``Replace``::

    death  --> replace_worker --> Replace(its envs) --> their pending steps and resets, again
    raised -->                    Replace(that env) --> its step or reset, again

A replacement that cuts its episode off starts another episode, with the seed and options of the
last reset: its next step returns truncated, with the last known observation and no reward, and the
autoreset mode decides what follows. A replacement that loads a replay continues where the
environment was, so its next step is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.faults.episodes import Episodes
from agym.core.engine.faults.fault_log import FaultLog
from agym.core.engine.faults.fault_policy import BudgetExceeded, FaultPolicy, RestartBudget
from agym.core.engine.faults.replacements import Replacements
from agym.core.engine.opened import EnvRows
from agym.core.hosts.states.codecs import registered
from agym.core.hosts.states.env_state import EnvState
from agym.core.protocol.arguments import Ids, runs
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import EnvLoss, Failure, WorkerDeath, name_envs
from agym.core.protocol.messages.operations import FAULT, OPEN, CloseEnv, Replace, Restart, Save
from agym.errors import Fault


class Recovery:
    """Replaces workers and environments that failed.

    Attributes:
        policy: The caller's policy.
        follows: Whether every step must be seen, to replay episodes or to retry them.
        fault_log: The log of faults.
        episodes: The record of the episodes, and which of them are retried.
        pending: Faults that have not been reported to the caller, by environment.
        recovering: The environments that are being replaced.
        restarts: How many times each worker was replaced.
        on_replace: Called with the index of a worker that is about to be replaced.
    """

    def __init__(self, policy: FaultPolicy, rows: EnvRows) -> None:
        self.policy = policy
        self.follows = policy.follow_episodes
        self.episodes = Episodes(policy, rows)
        self.fault_log = FaultLog(policy, rows, self.episodes)
        self.pending: dict[int, Fault] = {}
        self.recovering = Replacements()
        self.on_replace: Callable[[int], None] = lambda worker: None
        self._rows = rows
        self._backend, self._dispatcher = rows.backend, rows.dispatcher
        self._status = rows.dispatcher.status
        self.restarts = [0] * len(self._backend.ranges)
        self._budget = RestartBudget(policy.max_restarts, policy.restart_window)
        # Workers that have ended and were not replaced.
        self._dead: set[int] = set()
        # Workers that are being ended because they could not make their environments.
        self._failed_replacements: set[int] = set()

    # ---------------------------------------------------------------- completions

    def filter(self, completion: Completion, ticket: Ticket | None) -> Iterator[Completion]:
        """Handle the problems of a completion; yield completions for the collector."""
        number, start, stop, payload = completion
        problems: list[Any] = [] if payload is None else payload.problems
        ids: Ids = ()
        if number == FAULT:
            self._on_worker_death(problems[0])
        elif ticket is not None:
            ids = self.recovering.without_cancelled(number, range(start, stop))
            if ticket.kind is Restart:
                self._on_restarted(problems)
            elif ticket.message.replaces:
                self._on_replaced(ids, payload)
            elif any(isinstance(problem, WorkerDeath) for problem in problems):
                ids = self._on_parts_lost(ids, ticket, problems)
            else:
                self._record_failures(problems, ticket)
                if isinstance(ticket.message, Save) and payload is not None:
                    self.episodes.note_states(payload.values)
                if ticket.message.writes_rows and not ticket.expired:
                    payload = payload or Payload()
                    ids = self._handle_failures(ids, ticket, payload)
                    faults = self._report(ids, payload)
                    if self.follows:
                        self.episodes.report(ids, ticket, payload, faults)
        for run in runs(ids):
            yield Completion(number, run.start, run.stop, payload)
            payload = None
        yield from self.recovering.take_failed()

    def _report(self, ids: Ids, payload: Payload) -> dict[int, Fault]:
        """Report pending faults in the infos of environments; return them."""
        faults = {i: self.pending.pop(i) for i in ids if i in self.pending}
        for i, fault in faults.items():
            payload.infos.setdefault(i, {})["fault"] = fault
        return faults

    # ---------------------------------------------------------------- an environment raised

    def _record_failures(self, problems: list[Any], ticket: Ticket) -> None:
        """Count failures, and write capsules, which the failures then name."""
        for k, failure in enumerate(problems):
            if isinstance(failure, Failure) and failure.fault:
                self.fault_log.count(failure.env_ids)
                problems[k] = self.fault_log.with_capsule(failure, ticket)

    def _handle_failures(self, ids: Ids, ticket: Ticket, payload: Payload) -> Ids:
        """Replace environments that raised in a step or reset; return the other environments."""
        if not payload.problems or not self.policy.tolerant:
            return ids
        failures = [p for p in payload.problems if isinstance(p, Failure) and p.fault]
        payload.problems = [p for p in payload.problems if isinstance(p, Failure) and not p.fault]
        for i, start in payload.starts.items():
            self.episodes[i].raised = start
        resend: list[int] = []
        for failure in failures:
            span = failure.env_ids
            given_up = self._replace_envs(self.fault_log.raised(failure))
            if given_up is not None:
                payload.problems.append(given_up)
                continue
            resend += span
            payload.take(span)  # drop the results of a step that is sent again
            for each in self.recovering.start(i for i in ids if i in span):
                each.part = ticket
        return tuple(i for i in ids if i not in resend)

    def _replace_envs(self, faults: Sequence[Fault]) -> BudgetExceeded | None:
        """Replace environments after a fault, unless their budget is exceeded."""
        given_up = self._record_restart(faults)
        if given_up is None:
            self._load(_span(faults))
        return given_up

    def _load(self, span: range, innocent: Collection[int] = (), *, fresh: bool = False) -> None:
        """Replace environments, and load the best known state into each replacement.

        Args:
            span: The environments.
            innocent: Environments that may continue, because they only shared a dead worker.
            fresh: Their worker is new and has just made them.
        """
        self.recovering.start(span)
        if not self.policy.tolerant:
            self._status.mark_unready(span, "was replaced after a missed deadline")
        states = [self._state(i, innocent=i in innocent) for i in span]
        load = Replace(states, codecs=registered(), fresh=fresh)
        self._dispatcher.start_internal(load, span)

    def _state(self, slot: int, *, innocent: bool) -> EnvState:
        """Return the state that a replacement loads; note why one cannot be replayed."""
        lost = self._lost(slot)
        if not self.policy.tolerant or not self._status.is_ready(slot):
            return lost
        observation, flags = self._rows.last(slot)
        if observation is None:  # the first reset is still under way
            return lost
        lost = lost._replace(observation=observation)
        replays = self.policy.mode == "replay" and innocent
        fault = self.pending[slot]
        if not replays or fault.culprit == slot or fault.kind == "raised":
            return lost  # includes an earlier truncation that was not reported yet
        state = self.episodes.replayed(slot, lost, flags)
        if isinstance(state, EnvState):
            return state
        self.pending[slot] = replace(fault, replay=state)
        return lost

    def _lost(self, slot: int) -> EnvState:
        """Return the state of a replacement that starts another episode."""
        return self.episodes.lost(slot, self.fault_log.counts[slot])

    def _on_replaced(self, ids: Ids, payload: Payload | None) -> None:
        """Resume environments that were replaced, and handle failed replacements."""
        problems = [] if payload is None else payload.problems
        if any(isinstance(problem, WorkerDeath) for problem in problems):
            return  # the next replacement sends another ``Replace``
        bad: set[int] = set()
        for failure in problems:
            if isinstance(failure, Failure) and failure.env_id in ids:
                bad.update(failure.env_ids)
                if not self.policy.tolerant or self.recovering.requested(failure.env_ids):
                    self._abandon(failure.env_ids, failure)
                else:  # try again, unless the budget is exceeded
                    self.recover(failure)
        parts: dict[Ticket, list[int]] = {}
        for i in ids:
            if i in bad:
                continue
            replaced = self.recovering.pop(i, None)
            if replaced is not None and replaced.cancelled is not None:
                # A completion that was only late has arrived by now, before that of ``Replace``.
                self._backend.settle(replaced.cancelled, i)
            if replaced is not None and replaced.part is not None:
                parts.setdefault(replaced.part, []).append(i)
            lost = None if payload is None else payload.values.get(i)
            if lost is None:
                if replaced is None or not replaced.faulted:
                    self.pending.pop(i, None)
                    self.episodes.resumed(i)
            elif lost and i in self.pending:
                self.pending[i] = replace(self.pending[i], replay=lost)
        for ticket, slots in parts.items():
            self._dispatcher.resend(ticket, tuple(slots))
        self._dispatcher.rearm()

    def _record_restart(
        self, faults: Sequence[Fault], innocent: Collection[int] = ()
    ) -> BudgetExceeded | None:
        """Record a fault that is about to be recovered: budget, infos, retry and log.

        Args:
            faults: The fault of each environment that is replaced.
            innocent: The environments that only shared a worker.

        Returns:
            ``BudgetExceeded`` if there were too many.
        """
        ids = _span(faults)
        fault = next((fault for fault in faults if fault.env_id not in innocent), faults[0])
        given_up = self._budget.record(ids, fault)
        if given_up is not None:
            self._abandon(ids, given_up)
        elif self.policy.tolerant:
            for each in faults:
                earlier = self.pending.get(each.env_id)
                if earlier is None or each.operation == "reset":  # perhaps the reset of a retry
                    failed = self.episodes.failed(each)
                    self.pending[each.env_id] = replace(earlier or failed, retry=failed.retry)
            fault = replace(fault, retry=self.pending[fault.env_id].retry)
            self.fault_log.warn(ids, fault, self._budget.count(ids), innocent)
        return given_up

    def _abandon(self, ids: range, loss: EnvLoss) -> None:
        """Mark environments as lost, until the caller restarts them."""
        self._status.mark_lost(ids, loss)
        for i in ids:
            replaced = self.recovering.pop(i, None)
            if replaced is not None and replaced.part is not None:
                self.recovering.fail(i, replaced.part, [loss])
        self._forget(ids)
        self._dispatcher.rearm()

    def _forget(self, ids: Ids) -> None:
        """Forget the faults of environments whose episodes have ended with them."""
        for i in ids:
            self.pending.pop(i, None)
            self.episodes[i].forget_retry()

    # ---------------------------------------------------------------- a worker died

    def _on_worker_death(self, death: WorkerDeath) -> None:
        """Replace a dead worker if the policy says so, or mark its environments as lost."""
        ids, worker = death.env_ids, death.worker
        failed_replacement = worker in self._failed_replacements
        self._failed_replacements.discard(worker)
        self._dead.add(worker)
        faults = self.fault_log.died(death)
        suspects = _suspects(death)
        if death.late and death.pid is None and not failed_replacement:
            where = name_envs(sorted(suspects))
            self.fault_log.notices.append(
                f"worker {worker}, a thread, {death.reason} in {where} and was abandoned: it keeps"
                " running until its environment returns"
            )
        recoverable = self.policy.tolerant or (
            death.late and not failed_replacement and self._rows.opened is not None
        )
        if not (recoverable and death.replaceable) or self.recovering.requested(ids):
            self._abandon(ids, death)
            return
        innocent = [i for i in ids if i not in suspects]
        if self._record_restart(faults, innocent) is not None:
            return
        try:
            self._replace_worker(worker, innocent)
        except Exception as error:  # for example, no memory or processes are left
            reason = f"{death.reason}, and cannot be replaced: {error}"
            self._abandon(ids, replace(death, reason=reason))

    def _replace_worker(self, worker: int, innocent: Collection[int]) -> None:
        """Replace a worker and its environments."""
        self._start_worker(worker)
        if self._rows.opened is None:
            return
        ids = self._backend.ranges[worker]
        self._load(ids, innocent, fresh=True)
        for i in self._status.closed_envs.intersection(ids):
            self._dispatcher.start_internal(CloseEnv(), (i,))

    def _start_worker(self, worker: int) -> None:
        """Start another worker in place of a dead worker, which makes the environments again."""
        number = OPEN
        if self._rows.opened is not None:
            number = self._dispatcher.start_internal(Restart(), self._backend.ranges[worker])
        self.restarts[worker] += 1
        self._dead.discard(worker)
        self.on_replace(worker)
        self._backend.replace_worker(worker, number)

    def _on_parts_lost(self, ids: Ids, ticket: Ticket, problems: list[Any]) -> Ids:
        """Resend the parts that a dead worker did not finish; return the ids that have failed."""
        if any(i in self._status.lost for i in ids):
            if self.policy.tolerant:
                problems[:] = {id(loss): loss for loss in map(self._status.lost.get, ids)}.values()
            return ids
        if ticket.number == OPEN:
            return ()  # the replacement makes them
        # Resets are safe to resend to the replacement.
        recoverable = self.policy.tolerant or ticket.message.starts
        if not ticket.message.writes_rows or not recoverable or ticket.expired:
            return ids
        self._dispatcher.resend(ticket, ids)
        return ()

    def _on_restarted(self, problems: Iterable[Any]) -> None:
        """End a replacement worker that failed to make its environments."""
        for failure in problems:
            if isinstance(failure, Failure):
                reason = f"could not be made again: {failure.error}"
                self._end_workers(failure.env_ids, reason, replacements=True)

    # ---------------------------------------------------------------- a deadline passed

    @property
    def timeout_ends(self) -> Literal["env", "worker"] | None:
        """The scope of a missed deadline: it ends an environment, its whole worker, or nothing."""
        if self._rows.cancellable:
            return "env"
        return "worker" if self._backend.replaceable else None

    def force(self, late: Iterable[int], ticket: Ticket, reason: str) -> Iterator[Completion]:
        """Replace environments that missed a deadline; yield completions in place of theirs."""
        late = set(late)
        stuck: set[int] = set()
        unmade = ticket.message.slow and self._backend.replaceable
        if unmade or not self._rows.cancellable:
            stuck = late
        elif self._backend.replaceable:
            # A coroutine that never awaits blocks the loop, so cancelling it has no effect. Only
            # ending the whole worker does. ``running`` names the environment that blocks it now.
            running = self._backend.running
            stuck = {i for i in late if running(self._backend.worker_of(i)) in late}
        self._end_workers(stuck, reason, replacements=unmade)
        # Those that only wait behind the concurrency limit come first: their host keeps them. Once
        # the host has replaced an environment that holds a place, one of them gets the place, and
        # would be replaced in the middle of its operation.
        for i in sorted(late - stuck, key=self._rows.is_waiting, reverse=True):
            fault = self.fault_log.late(i, ticket, reason)
            (replaced,) = self.recovering.start((i,))
            replaced.cancelled = ticket.number
            replaced.faulted = i in self.pending
            if self.policy.tolerant and not ticket.expired and ticket.message.writes_rows:
                replaced.part = ticket
            elif ticket.message.replaces:
                self.recovering.fail(i, ticket, [Failure(i, "make", reason, "")])
            else:
                self.recovering.fail(i, ticket, [])
            self._replace_envs([fault])
        yield from self.recovering.take_failed()

    def _end_workers(self, ids: Iterable[int], reason: str, *, replacements: bool) -> None:
        """Kill the workers of some environments; ``replacements`` if they failed to make them."""
        for worker in sorted(self._backend.workers_of(ids)):
            if replacements:
                self._failed_replacements.add(worker)
            self.recovering.start(self._backend.ranges[worker])
            self._backend.end_worker(worker, reason)

    # ---------------------------------------------------------------- on request

    def restart(self, ids: Ids) -> list[tuple[range, Replace]]:
        """Replace environments at the caller's request; return the loads to send to them."""
        dead = self._backend.workers_of(ids) & self._dead
        for loss in map(self._status.lost.get, ids):
            if isinstance(loss, WorkerDeath) and not loss.replaceable:
                raise loss.to_exception()
        for worker in sorted(dead):
            self._start_worker(worker)
        self._budget.clear(ids)
        for replaced in self.recovering.start(ids):
            replaced.requested = True
        self._status.mark_restarted(ids)
        self._forget(ids)
        return [
            (run, Replace([*map(self._lost, run)], fresh=fresh))
            for fresh in (True, False)
            for run in runs(tuple(i for i in ids if (self._backend.worker_of(i) in dead) is fresh))
        ]

    def recover(self, failure: Failure) -> None:
        """Recover an environment that failed outside of the caller's operations."""
        self.fault_log.count(failure.env_ids)
        if self.policy.tolerant:
            self._replace_envs(self.fault_log.raised(failure))
        else:
            self._status.mark_unready(failure.env_ids, f"raised in {failure.operation}")

    def with_dead_neighbours(self, ids: Ids) -> Ids:
        """Add all environments that died with some of these, unless they are closed."""
        dead = self._backend.workers_of(ids) & self._dead
        added = (i for worker in dead for i in self._backend.ranges[worker])
        return tuple(sorted({*ids, *added} - self._status.closed_envs))


def _suspects(death: WorkerDeath) -> set[int]:
    """Return the environments that may have caused a death: the running one alone, if known."""
    if death.running is not None:
        return {death.running}
    return {i for i, doing in death.operations.items() if not doing.startswith("idle")}


def _span(faults: Sequence[Fault]) -> range:
    """Return the environments of faults, which are neighbours."""
    return range(faults[0].env_id, faults[-1].env_id + 1)
