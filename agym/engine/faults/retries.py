"""Retries: failed episodes that are tried again, so that failures bias nothing.

::

    episode begins --> [fault] --> its row comes back truncated --> the next reset begins it again
                          '-- how it began ------ RestoreSpec.retry --------^

The engine knows how an episode began from the host, which reports it with the episode's first row
(``Payload.starts``). How the next one begins it reports with the last row (``Payload.nexts``), so a
fault inside the reset itself loses nothing either. A fault that interrupts an explicit reset is one
of the episode that this reset begins.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.errors import Fault
from agym.protocol.arguments import Ids
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.operations import Reset, Restore
from agym.protocol.messages.resets import EpisodeStart, as_keywords


class Retries:
    """Decides which episodes begin again, and how.

    Attributes:
        limit: How often in a row an episode is tried again.
    """

    def __init__(self, limit: int, dispatcher: Dispatcher) -> None:
        self.limit = limit
        self._dispatcher = dispatcher
        # How each environment's episode began, and how the one after it begins once it is over.
        self._starts: dict[int, EpisodeStart] = {}
        self._nexts: dict[int, EpisodeStart] = {}
        # How an episode began whose reset raised.
        self._raised: dict[int, EpisodeStart] = {}
        # How often in a row each environment's episode was tried again, and how often because the
        # environment failed itself; and the retries to come.
        self._attempts: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        self._due: dict[int, EpisodeStart] = {}

    def start(self, slot: int) -> EpisodeStart | None:
        """Return how the next episode of an environment is to begin, ``None`` for another one."""
        return self._due.get(slot)

    def note_raised(self, payload: Payload) -> None:
        """Note how the episodes began that are in a payload with failures."""
        self._raised = payload.starts

    def failed(self, slot: int, fault: Fault) -> Fault:
        """Decide whether the episode that a fault interrupts begins again; return the fault."""
        if not self.limit:
            return fault
        start = self._interrupted(slot)
        # One that only shared the worker of another is tried again for as long as that is replaced.
        own = fault.kind == "raised" or fault.culprit in (None, slot)
        failures = self._failures.get(slot, 0) + own
        if start is None or failures > self.limit:
            self.forget(slot)
            return replace(fault, retry=0)
        self._due[slot] = start
        self._failures[slot] = failures
        self._attempts[slot] = attempts = self._attempts.get(slot, 0) + 1
        return replace(fault, retry=attempts)

    def forget(self, slot: int) -> None:
        """Let another episode follow."""
        for known in (self._due, self._attempts, self._failures):
            known.pop(slot, None)

    def resumed(self, slot: int) -> None:
        """Take a retry back: the episode goes on where it was."""
        if self._due.pop(slot, None) is not None:
            self._attempts[slot] -= 1
            self._failures[slot] = min(self._failures[slot], self._attempts[slot])

    def _interrupted(self, slot: int) -> EpisodeStart | None:
        """Return how the episode began that is being interrupted, ``None`` if that is unknown."""
        if slot in self._due:  # its retry has not begun
            return self._due[slot]
        ticket = self._dispatcher.in_flight(slot)
        message = None if ticket is None else ticket.operation.message
        if ticket is not None and isinstance(message, Reset) and not ticket.has_ended(slot):
            if isinstance(message, Restore):
                return None
            options = as_keywords(message.options, slot).get("options")
            seed = message.seeds[ticket.ids.index(slot)] if message.seeds else None
            if seed is not None:
                return EpisodeStart(seed, None, options)
            known = self._nexts.get(slot) or self._raised.get(slot)
            return known and known._replace(options=options)
        return self._nexts.get(slot) or self._starts.get(slot)

    def report(self, ids: Ids, ticket: Ticket, payload: Payload) -> None:
        """Note how episodes began and ended; say in an info which of them are retries."""
        for slot in ids if payload.starts or payload.nexts or ticket.kind is Restore else ():
            start = payload.starts.get(slot)
            if start is not None:
                self._begin(slot, start, payload)
            elif ticket.kind is Restore:
                self._starts.pop(slot, None)
                self._nexts.pop(slot, None)
                self.forget(slot)
            if slot in payload.nexts:
                self._nexts[slot] = payload.nexts[slot]
                if slot not in self._due:
                    self.forget(slot)

    def _begin(self, slot: int, start: EpisodeStart, payload: Payload) -> None:
        self._starts[slot] = start
        self._nexts.pop(slot, None)
        due = self._due.pop(slot, None)
        if due is not None and _alike(due, start):
            payload.infos.setdefault(slot, {})["retry"] = self._attempts[slot]
        else:
            self.forget(slot)


def _alike(one: EpisodeStart, other: EpisodeStart) -> bool:
    """Whether two episodes begin with the same random numbers."""
    if one.seed is None and one.rng is None:
        return True  # it has none
    # Generators other than NumPy's default have arrays in their state.
    return one.seed == other.seed and pickle.dumps(one.rng) == pickle.dumps(other.rng)
