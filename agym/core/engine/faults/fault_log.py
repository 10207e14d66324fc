"""Records faults for the caller, in capsule files, and as warnings of the logger ``agym``."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.faults.capsule import Capsule, write_capsule
from agym.core.engine.faults.episodes import Episodes, asked_start
from agym.core.engine.faults.fault_policy import FaultPolicy
from agym.core.engine.opened import EnvRows
from agym.core.hosts.episode import name_of
from agym.core.hosts.states.env_state import Record
from agym.core.protocol.messages.failures import (
    Failure,
    WorkerDeath,
    name_envs,
    name_range,
    without_controls,
)
from agym.core.protocol.messages.operations import Reset, Step
from agym.errors import Fault, UsageError

LOG = logging.getLogger("agym")

# At most this many warnings per period, in seconds, because an environment may raise in every step.
MAX_WARNINGS, WARNING_SECONDS = 20, 60.0

# Maximum number of characters of an error's text in a warning.
MAX_CHARACTERS = 200


class FaultLog:
    """Makes fault records, logs recovered faults, and writes capsules if wanted.

    Attributes:
        counts: Number of faults of each environment.
        notices: Warnings for the caller.
    """

    def __init__(self, policy: FaultPolicy, rows: EnvRows, episodes: Episodes) -> None:
        """Start without a fault.

        Args:
            policy: Decides what is recorded.
            rows: Read the actions of each environment.
            episodes: Know the episode of each environment.
        """
        self._options = rows.backend.options
        self.counts = [0] * len(self._options.factories)
        self.notices: list[str] = []
        self._policy = policy
        # When the latest warnings were logged, and how many were suppressed since then.
        self._warned: list[float] = []
        self._suppressed = 0
        self._rows = rows
        self._episodes = episodes

    def count(self, ids: Iterable[int]) -> None:
        """Count a fault of some environments."""
        for i in ids:
            self.counts[i] += 1

    # ---------------------------------------------------------------- warnings

    def warn(self, ids: range, fault: Fault, count: int, innocent: Collection[int]) -> None:
        """Log a fault that is about to be recovered, unless there were many recently.

        Args:
            ids: The environments that are replaced.
            fault: The fault of the environment that caused it, with the retry that follows.
            count: The number of their faults within the policy's window.
            innocent: The environments that only shared its worker.
        """
        now = time.monotonic()
        self._warned = [when for when in self._warned if now - when <= WARNING_SECONDS]
        if len(self._warned) >= MAX_WARNINGS:
            self._suppressed += 1
            return
        self.log_left_out()
        self._warned.append(now)
        replayed = [*innocent] if self._policy.mode == "replay" else []
        restarted = [i for i in ids if i not in replayed]
        does = {"restarting": restarted, "replaying": replayed}
        done = " and ".join(f"{verb} {name_envs(some)}" for verb, some in does.items() if some)
        line = (
            f"{_describe(ids, fault, innocent)}; {done}"
            f" ({_ordinal(count)} time in {self._policy.restart_window:g} s)"
        )
        if fault.retry:
            line += f", retry {fault.retry} of {self._policy.retry}"
        if len(self._warned) == MAX_WARNINGS:
            line += f"; further faults in the next {WARNING_SECONDS:g} s are only counted"
        LOG.warning(line)

    def log_left_out(self) -> None:
        """Log how many warnings were suppressed."""
        count, self._suppressed = self._suppressed, 0
        if count:
            LOG.warning("%d more faults were recovered, without a warning for each", count)

    # ---------------------------------------------------------------- the record of a fault

    def raised(self, failure: Failure) -> list[Fault]:
        """Return the fault of each environment that raised."""
        return [
            Fault(
                i, "raised", failure.operation, failure.error, failure.traceback,
                seed=failure.seed, episode=failure.episode, step=failure.step,
                action=failure.action, capsule=failure.capsule,
            ) for i in failure.env_ids
        ]  # fmt: skip

    def with_capsule(self, failure: Failure, ticket: Ticket) -> Failure:
        """Write a capsule for an environment that raised; return the failure with its path."""
        slot = failure.env_id
        position = ticket.ids.index(slot) if slot in ticket.ids else 0  # a group may lack its first
        known = self._episodes[slot]
        path = self._write(
            self.raised(failure)[0], known.record, known.actions is not None,
            ticket.message.arguments(position),
        )  # fmt: skip
        return replace(failure, capsule=path)

    def died(self, death: WorkerDeath) -> list[Fault]:
        """Return a fault per environment of a dead worker; write capsules for possible causes."""
        kind = "timeout" if death.late else "died"
        faults = []
        for i in death.env_ids:
            doing = death.operations.get(i, "idle")
            fault = Fault(
                i, kind, doing, death.reason, worker=death.worker, pid=death.pid,
                exitcode=death.exitcode, culprit=death.running,
            )  # fmt: skip
            suspected = death.running == i if death.running is not None else doing in _RUNNING
            faults.append(self._complete(fault, suspected=suspected))
        return faults

    def late(self, slot: int, ticket: Ticket, reason: str) -> Fault:
        """Return the fault of an environment that missed a deadline while its worker continues."""
        fault = Fault(slot, "timeout", ticket.message.name, reason, culprit=slot)
        return self._complete(fault, suspected=True)

    def _complete(self, fault: Fault, *, suspected: bool) -> Fault:
        """Count a fault, add its episode, and write a capsule if it is ``suspected``."""
        slot = fault.env_id
        self.count((slot,))
        known = self._episodes[slot]
        record, complete = known.record, known.actions is not None
        action = step = None
        ticket = self._rows.dispatcher.queues.owner(slot)
        if ticket is not None and isinstance(ticket.message, Step):
            action = self._rows.action(slot, ticket)
        elif ticket is not None and isinstance(ticket.message, Reset):
            start = asked_start(slot, ticket)
            record, complete = Record(start, []), start.seed is not None
        if complete and self._policy.record_actions:
            step = len(record.actions) + (fault.operation == "step")
        fault = replace(fault, seed=known.seed, action=action, step=step)
        return replace(fault, capsule=self._write(fault, record, complete)) if suspected else fault

    def _write(
        self, fault: Fault, record: Record, complete: bool, arguments: tuple[Any, ...] = ()
    ) -> str:
        """Write a capsule if the policy wants it; return its path, else ``""``."""
        if self._policy.capsule_dir is None:
            return ""
        capsule = Capsule(
            fault,
            record.start,
            name_of(self._options.autoreset),
            self._options.factories[fault.env_id],
            record.actions,
            arguments,
            complete=complete or fault.operation == "make",
        )
        try:
            return str(write_capsule(self._policy.capsule_dir, capsule))
        except UsageError as error:
            self.notices.append(
                f"the capsule of environment {fault.env_id} cannot be written to capsule_dir:"
                f" {error}"
            )
            return ""


_RUNNING = frozenset({"step", "reset", "render", "call", "get_attr", "set_attr", "make", "close"})

# How a warning names what a worker was doing; other operations appear by name.
_DOING = {"step": "stepping", "reset": "resetting", "make": "making", "render": "rendering"}


def _describe(ids: range, fault: Fault, innocent: Collection[int]) -> str:
    """Describe a fault in one line."""
    error = without_controls(" ".join(fault.error.split()))
    if len(error) > MAX_CHARACTERS:
        error = f"{error[:MAX_CHARACTERS]}..."
    blamed = name_envs([i for i in ids if i not in innocent] or [*ids])
    if fault.kind == "raised":
        return f"{name_range(ids).capitalize()} raised in {fault.operation}: {error}"
    if fault.worker is None:  # a single coroutine, whose loop continues
        return f"{blamed.capitalize()} {error}"
    if fault.kind == "timeout":
        return f"Worker {fault.worker} {error} in {blamed}"
    doing = fault.operation
    if doing in _RUNNING:
        doing = f"{_DOING.get(doing, f'in {doing} of')} {blamed}"
    return f"Worker {fault.worker} died ({error}) while {doing}"


def _ordinal(count: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{'th' if count % 100 in (11, 12, 13) else ending}"
