"""Records faults: for the caller, in capsule files, and as warnings of the logger ``agym``."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

from agym.backends.base import BackendOptions
from agym.engine.batches.env_rows import EnvRows
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.faults.action_log import ActionLog, Episode
from agym.engine.faults.capsule import Capsule, write_capsule
from agym.engine.faults.policy import FaultPolicy
from agym.errors import Fault, UsageError
from agym.hosts.episode import name_of
from agym.hosts.snapshots.states import EnvState
from agym.protocol.arguments import Ids
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.failures import (
    Failure,
    WorkerDeath,
    name_envs,
    name_range,
    without_controls,
)
from agym.protocol.messages.operations import Reset, Restore, Step
from agym.protocol.messages.resets import EpisodeStart, Options, as_keywords, lasting

LOG = logging.getLogger("agym")

# The most warnings in a period, in seconds, because an environment may raise in every step.
MAX_WARNINGS, WARNING_SECONDS = 20, 60.0

# Characters of an error's text in a warning.
MAX_CHARACTERS = 200


class FaultLog:
    """Makes fault records, logs those that are recovered, and writes capsules if wanted.

    Attributes:
        counts: How many faults each environment had.
        pending: Faults that have not been reported to the caller.
        seeds: Seed of each environment's last explicit reset.
        options: Options of each environment's last explicit reset.
        notices: Warnings for the caller.
        due: The environments whose state is to be taken now, each with the plane of its row.
    """

    def __init__(
        self, policy: FaultPolicy, options: BackendOptions, dispatcher: Dispatcher, rows: EnvRows
    ) -> None:
        """Start without a fault.

        Args:
            policy: Says what is recorded.
            options: What the backend runs.
            dispatcher: Knows the operation of each environment.
            rows: Its actions.
        """
        self.counts = [0] * len(options.factories)
        self.pending: dict[int, Fault] = {}
        self.seeds: dict[int, int] = {}
        self.options: dict[int, dict[str, Any] | None] = {}
        self.notices: list[str] = []
        self.due: dict[int, int] = {}
        self._policy = policy
        # When the latest warnings were logged, and how many were left out since the last of them.
        self._warned: list[float] = []
        self._left_out = 0
        # Environments that can only be replayed from the beginning.
        self._replayed: set[int] = set()
        self._log = ActionLog(policy.replay_limit) if policy.record_actions else None
        self._options = options
        self._dispatcher = dispatcher
        self._rows = rows

    def note_reset(self, ids: Ids, seeds: Sequence[int | None] | None, options: Options) -> None:
        """Note seeds and options of a reset that is about to be sent."""
        for i, seed in zip(ids, repeat(None) if seeds is None else seeds, strict=False):
            if seed is not None:
                self.seeds[i] = seed
            self.options[i] = lasting(options)

    def note_restore(self, ids: Ids, states: Sequence[EnvState]) -> None:
        """Note seeds and options of states that are about to be restored."""
        for i, state in zip(ids, states, strict=True):
            self.seeds.pop(i, None)
            self.note_reset((i,), [state.episode.seed], state.episode.options)

    def count(self, ids: Iterable[int]) -> None:
        """Count a fault of some environments."""
        for i in ids:
            self.counts[i] += 1

    # ---------------------------------------------------------------- warnings

    def warn(self, ids: range, fault: Fault, count: int, innocent: Collection[int]) -> None:
        """Log a fault that is about to be recovered, unless there were many just now.

        Args:
            ids: The environments that are replaced.
            fault: What happened, to the environment that is to blame.
            count: How often it happened to these within the policy's window.
            innocent: The environments that only shared its worker.
        """
        now = time.monotonic()
        self._warned = [when for when in self._warned if now - when <= WARNING_SECONDS]
        if len(self._warned) >= MAX_WARNINGS:
            self._left_out += 1
            return
        self.log_left_out()
        self._warned.append(now)
        replayed = [*innocent] if self._policy.mode == "replay" else []
        restarted = [i for i in ids if i not in replayed]
        does = [f"restarting {name_envs(restarted)}"] if restarted else []
        does += [f"replaying {name_envs(replayed)}"] if replayed else []
        line = (
            f"{_describe(ids, fault, innocent)}; {' and '.join(does)}"
            f" ({_ordinal(count)} time in {self._policy.restart_window:g} s)"
        )
        if fault.env_id in self.pending and (retry := self.pending[fault.env_id].retry):
            line += f", retry {retry} of {self._policy.retry}"
        if len(self._warned) == MAX_WARNINGS:
            line += f"; more faults of the next {WARNING_SECONDS:g} s are only counted"
        LOG.warning(line)

    def log_left_out(self) -> None:
        """Log how many warnings were left out."""
        count, self._left_out = self._left_out, 0
        if count:
            LOG.warning("%d more faults were recovered, and not logged one by one", count)

    # ---------------------------------------------------------------- infos and actions

    @property
    def follows_steps(self) -> bool:
        """Whether :meth:`report` wants every completion."""
        return self._log is not None or bool(self.pending)

    def report(self, ids: Ids, ticket: Ticket, payload: Payload) -> None:
        """Report pending faults in the infos of environments, and log the actions they took."""
        for i in ids:
            fault = self.pending.pop(i, None)
            if fault is not None:
                payload.infos.setdefault(i, {})["fault"] = fault
            if self._log is not None:
                self._follow(self._log, i, ticket, payload, interrupted=fault is not None)

    def _follow(
        self, log: ActionLog, slot: int, ticket: Ticket, payload: Payload, *, interrupted: bool
    ) -> None:
        """Log what an environment did; ask for its state if a replay would become long."""
        message = ticket.operation.message
        if interrupted or isinstance(message, Restore):
            log.cut(slot)
        elif isinstance(message, Step) and slot not in payload.starts:
            log.add(slot, self._rows.action(slot, ticket))
            every = None if slot in self._replayed else self._policy.snapshot_every
            if every is not None and log.since(slot) % every == 0:
                self.due[slot] = ticket.plane
        if isinstance(message, Restore):
            log.checkpoint(slot, message.states[ticket.ids.index(slot)])
        elif slot in payload.starts:
            log.begin(slot, payload.starts[slot])

    def note_states(self, states: Mapping[int, EnvState | str]) -> None:
        """Note states that were taken; a string says why one cannot be."""
        for i, state in states.items():
            if not isinstance(state, EnvState) or state.way == "actions":
                self._replayed.add(i)
            elif self._log is not None:
                self._log.checkpoint(i, state)

    def episode(self, slot: int) -> Episode | None:
        """Return what is known of an environment's episode, ``None`` if nothing is logged."""
        return None if self._log is None else self._log.episode(slot)

    # ---------------------------------------------------------------- the record of a fault

    def raised(self, failure: Failure) -> Fault:
        """Return the fault of an environment that raised."""
        return Fault(
            failure.env_id, "raised", failure.operation, failure.error, failure.traceback,
            seed=failure.seed, episode=failure.episode, step=failure.step, action=failure.action,
            capsule=failure.capsule,
        )  # fmt: skip

    def with_capsule(self, failure: Failure, ticket: Ticket) -> Failure:
        """Write a capsule for an environment that raised; return the failure with its path."""
        slot = failure.env_id
        position = ticket.ids.index(slot) if slot in ticket.ids else 0  # a group's first may not be
        arguments = ticket.operation.message.arguments(position)
        path = self._write(self.raised(failure), self.episode(slot), arguments)
        return replace(failure, capsule=path)

    def died(self, death: WorkerDeath) -> dict[int, Fault]:
        """Return a fault for each environment of a dead worker; write capsules for suspects."""
        kind = "timeout" if death.late else "died"
        faults = {}
        for i in death.env_ids:
            doing = death.operations.get(i, "idle")
            fault = Fault(
                i, kind, doing, death.reason,
                worker=death.worker, pid=death.pid, exitcode=death.exitcode,
                seed=self.seeds.get(i), culprit=death.running,
            )  # fmt: skip
            suspected = death.running == i if death.running is not None else doing in _RUNNING
            faults[i] = self._complete(fault, suspected=suspected)
        return faults

    def late(self, slot: int, ticket: Ticket, reason: str) -> Fault:
        """Return the fault of an environment that missed a deadline while its worker lives on."""
        fault = Fault(
            slot, "timeout", ticket.kind.name, reason, seed=self.seeds.get(slot), culprit=slot
        )
        return self._complete(fault, suspected=True)

    def _complete(self, fault: Fault, *, suspected: bool) -> Fault:
        """Add what the action log knows, and write the capsule of a suspect."""
        slot = fault.env_id
        episode = self.episode(slot)
        ticket = self._dispatcher.in_flight(slot)
        message = None if ticket is None else ticket.operation.message
        if ticket is not None and isinstance(message, Step):
            fault = replace(fault, action=self._rows.action(slot, ticket))
        elif ticket is not None and isinstance(message, Reset) and episode is not None:
            seed = message.seeds[ticket.ids.index(slot)] if message.seeds else None
            start = EpisodeStart(seed, None, as_keywords(message.options, slot).get("options"))
            episode = Episode(start, [], complete=seed is not None)
        if episode is not None and episode.complete and episode.start is not None:
            fault = replace(fault, step=len(episode.actions) + (fault.operation == "step"))
        return replace(fault, capsule=self._write(fault, episode)) if suspected else fault

    def _write(self, fault: Fault, episode: Episode | None, arguments: tuple[Any, ...] = ()) -> str:
        """Write a capsule if the policy wants it; return its path, else ``""``."""
        if self._policy.capsule_dir is None or episode is None:
            return ""
        known = episode.start is not None or fault.operation == "make"
        capsule = Capsule(
            fault,
            episode.start or EpisodeStart(),
            name_of(self._options.autoreset),
            self._options.factories[fault.env_id],
            episode.actions,
            arguments,
            complete=episode.complete and known,
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

# What a worker was doing; other operations are named.
_DOING = {"step": "stepping", "reset": "resetting", "make": "making", "render": "rendering"}


def _describe(ids: range, fault: Fault, innocent: Collection[int]) -> str:
    """Describe a fault in a line."""
    error = without_controls(" ".join(fault.error.split()))
    if len(error) > MAX_CHARACTERS:
        error = f"{error[:MAX_CHARACTERS]}..."
    blamed = name_envs([i for i in ids if i not in innocent] or [*ids])
    if fault.kind == "raised":
        return f"{name_range(ids).capitalize()} raised in {fault.operation}: {error}"
    if fault.worker is None:  # one coroutine, on a loop that goes on
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
