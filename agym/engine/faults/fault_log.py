"""Incidents: what is put on record about a fault, for the caller and in a capsule's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from agym.engine.faults.action_log import ActionLog, Episode
from agym.engine.ticket import Ticket
from agym.errors import Fault
from agym.hosts.base import Factory
from agym.protocol.arguments import Ids
from agym.protocol.messages import EpisodeStart, Failure, Options, WorkerDeath, as_keywords, lasting


class Witness(Protocol):
    """Who knows what environments were doing: the engine."""

    @property
    def factories(self) -> Sequence[Factory]:
        """What makes each environment."""

    @property
    def autoreset(self) -> str:
        """What follows an episode's end."""

    def in_flight(self, slot: int) -> Ticket | None:
        """The step or reset that an environment was doing."""

    def action(self, slot: int, ticket: Ticket) -> Any:
        """The action of an environment in a step."""


class FaultLog:
    """Makes fault records, and writes capsules where these are wanted.

    Attributes:
        seeds: Seed of each environment's last explicit reset.
        options: Options of each environment's last explicit reset.
        notices: What the caller should be warned of.
    """

    def __init__(self, directory: str | None, log: ActionLog | None, witness: Witness) -> None:
        """Begin with no incident.

        Args:
            directory: Where capsules are written, ``None`` for nowhere.
            log: What environments were sent, where that is logged.
            witness: Who knows the rest.
        """
        self.seeds: dict[int, int] = {}
        self.options: dict[int, dict[str, Any] | None] = {}
        self.notices: list[str] = []
        self._directory = directory
        self._log = log
        self._witness = witness

    def note_reset(self, ids: Ids, seeds: Sequence[int | None] | None, options: Options) -> None:
        """Environments are about to be reset by the caller."""
        for k, i in enumerate(ids):
            seed = None if seeds is None else seeds[k]
            if seed is not None:
                self.seeds[i] = seed
            self.options[i] = lasting(options)

    def raised(self, failure: Failure) -> Fault:
        """An environment raised."""
        return Fault(
            failure.env_id, "raised", failure.operation, failure.error, failure.traceback,
            seed=failure.seed, episode=failure.episode, step=failure.step, action=failure.action,
            capsule=failure.capsule,
        )  # fmt: skip

    def with_capsule(self, failure: Failure, ticket: Ticket) -> Failure:
        """Write a capsule about an environment that raised; gives the failure that names it."""
        operation = ticket.operation
        arguments: tuple[Any, ...] = ()
        if operation.kind == "call":
            arguments = operation.shared
        elif operation.kind == "get_attr":
            arguments = (operation.shared,)
        elif operation.kind == "set_attr" and operation.each is not None:
            name, _ = operation.shared
            arguments = (name, operation.each[ticket.ids.index(failure.env_id)])
        path = self._write(self.raised(failure), self._episode(failure.env_id), arguments)
        return replace(failure, capsule=path)

    def died(self, death: WorkerDeath) -> dict[int, Fault]:
        """A worker died: a fault for each of its environments, a capsule for those suspected."""
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
        """An environment missed a deadline by itself."""
        fault = Fault(slot, "timeout", ticket.kind, reason, seed=self.seeds.get(slot), culprit=slot)
        return self._complete(fault, suspected=True)

    def _complete(self, fault: Fault, *, suspected: bool) -> Fault:
        """Add what is logged, and write the capsule."""
        slot = fault.env_id
        episode = self._episode(slot)
        ticket = self._witness.in_flight(slot)
        if ticket is not None and ticket.kind == "step":
            fault = replace(fault, action=self._witness.action(slot, ticket))
        elif ticket is not None and ticket.kind == "reset" and episode is not None:
            operation = ticket.operation
            seed = operation.each[ticket.ids.index(slot)] if operation.each else None
            start = EpisodeStart(seed, None, as_keywords(operation.shared, slot).get("options"))
            episode = Episode(start, [], complete=seed is not None)
        if episode is not None and episode.complete and episode.start is not None:
            fault = replace(fault, step=len(episode.actions) + (fault.operation == "step"))
        return replace(fault, capsule=self._write(fault, episode)) if suspected else fault

    def _episode(self, slot: int) -> Episode | None:
        return None if self._log is None else self._log.episode(slot)

    def _write(self, fault: Fault, episode: Episode | None, arguments: tuple[Any, ...] = ()) -> str:
        if self._directory is None or episode is None:
            return ""
        # Late, since few programs write capsules.
        from agym.engine.faults.capsule import Capsule
        from agym.engine.faults.capsule_file import write_capsule

        start = episode.start or EpisodeStart()
        capsule = Capsule(
            fault.env_id, self._witness.factories[fault.env_id], self._witness.autoreset,
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
