"""Records faults, for the caller and in capsule files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agym.backends.base import BackendOptions
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.faults.action_log import ActionLog, Episode
from agym.engine.faults.env_rows import EnvRows
from agym.engine.faults.policy import FaultPolicy
from agym.errors import Fault
from agym.hosts.episode import name_of
from agym.hosts.snapshots.ways import EnvState
from agym.protocol.arguments import Ids
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.failures import Failure, WorkerDeath
from agym.protocol.messages.operations import Reset, Restore, Step
from agym.protocol.messages.resets import EpisodeStart, Options, as_keywords, lasting


class FaultLog:
    """Makes fault records, and writes capsules if these are wanted.

    Attributes:
        counts: How many faults each environment had.
        pending: Faults that have not been reported to the caller.
        seeds: Seed of each environment's last explicit reset.
        options: Options of each environment's last explicit reset.
        notices: Warnings for the caller.
        due: The environments whose state is to be taken now, each with the plane of its row.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        options: BackendOptions,
        dispatcher: Dispatcher,
        rows: EnvRows,
    ) -> None:
        """Begin with no fault.

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
        self._directory = policy.folder
        self._every = policy.snapshot_every
        # Environments that can only be replayed from the beginning.
        self._replayed: set[int] = set()
        self._log = ActionLog(policy.replay_limit) if policy.record_actions else None
        self._options = options
        self._dispatcher = dispatcher
        self._rows = rows

    def note_reset(self, ids: Ids, seeds: Sequence[int | None] | None, options: Options) -> None:
        """Note seeds and options of a reset that is about to be sent."""
        for k, i in enumerate(ids):
            seed = None if seeds is None else seeds[k]
            if seed is not None:
                self.seeds[i] = seed
            self.options[i] = lasting(options)

    def note_restore(self, ids: Ids, states: Sequence[EnvState]) -> None:
        """Note those of states that are about to be restored."""
        for i, state in zip(ids, states, strict=True):
            self.seeds.pop(i, None)
            if state.episode.seed is not None:
                self.seeds[i] = state.episode.seed
            self.options[i] = state.episode.options

    @property
    def follows_steps(self) -> bool:
        """Whether :meth:`report` wants every completion."""
        return self._log is not None or bool(self.pending)

    def count(self, ids: Iterable[int]) -> None:
        """Count a fault of some environments."""
        for i in ids:
            self.counts[i] += 1

    def report(self, ids: Ids, ticket: Ticket, payload: Payload) -> None:
        """Log the actions that environments took, and report pending faults in their infos."""
        log = self._log
        for i in ids:
            if i in self.pending:
                payload.infos.setdefault(i, {})["fault"] = self.pending.pop(i)
                if log is not None:
                    log.cut(i)
            elif log is not None and ticket.kind is Step and i not in payload.starts:
                log.add(i, self._rows.action(i, ticket))
                every = None if i in self._replayed else self._every
                if every is not None and log.since(i) % every == 0:
                    self.due[i] = ticket.plane
            message = ticket.operation.message
            if log is not None and isinstance(message, Restore):
                log.cut(i)
                log.checkpoint(i, message.states[ticket.ids.index(i)])
            elif log is not None and i in payload.starts:
                log.begin(i, payload.starts[i])

    def note_states(self, states: Mapping[int, EnvState | str]) -> None:
        """Note states that were taken; a string says why one cannot be."""
        for i, state in states.items():
            if not isinstance(state, EnvState) or state.way == "replay":
                self._replayed.add(i)
            elif self._log is not None:
                self._log.checkpoint(i, state)

    def raised(self, failure: Failure) -> Fault:
        """Return the fault of an environment that raised."""
        return Fault(
            failure.env_id, "raised", failure.operation, failure.error, failure.traceback,
            seed=failure.seed, episode=failure.episode, step=failure.step, action=failure.action,
            capsule=failure.capsule,
        )  # fmt: skip

    def with_capsule(self, failure: Failure, ticket: Ticket) -> Failure:
        """Write a capsule for an environment that raised; return the failure with its path."""
        message, slot = ticket.operation.message, failure.env_id
        position = ticket.ids.index(slot) if slot in ticket.ids else 0  # a group's first may not be
        arguments = message.arguments(position)
        path = self._write(self.raised(failure), self.episode(failure.env_id), arguments)
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

    def episode(self, slot: int) -> Episode | None:
        """Return what is known of an environment's episode, ``None`` if nothing is logged."""
        return None if self._log is None else self._log.episode(slot)

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
        if self._directory is None or episode is None:
            return ""
        # A late import, because few programs write capsules.
        from agym.engine.faults.capsule import Capsule
        from agym.engine.faults.capsule_file import write_capsule

        start = episode.start or EpisodeStart()
        capsule = Capsule(
            fault.env_id, self._options.factories[fault.env_id], name_of(self._options.autoreset),
            fault.operation, fault.kind, fault.error,
            seed=start.seed, rng=start.rng, options=start.options,
            actions=episode.actions, action=fault.action, arguments=arguments,
            traceback=fault.traceback, episode=fault.episode, step=fault.step,
            complete=episode.complete and (episode.start is not None or fault.operation == "make"),
        )  # fmt: skip
        try:
            return str(write_capsule(self._directory, capsule))
        except OSError as error:
            self.notices.append(
                f"the capsule of environment {fault.env_id} cannot be written: {error}; make"
                f" capsule_dir={self._directory!r} a folder that can be written to"
            )
            return ""


_RUNNING = frozenset({"step", "reset", "render", "call", "get_attr", "set_attr", "make", "close"})
