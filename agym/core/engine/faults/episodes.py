"""Follows each environment's episode, to know the state of a replacement.

::

    Payload.starts  how an episode started    --> retry: the next episode starts in the same way
    Payload.nexts   how the next one starts
    steps           the actions since         --> replay: the start or latest state, then actions
    Save, Load      a state in the episode

Hosts report how an episode started with its first row, and how the next one will start with its
last row. So a fault inside the reset itself loses nothing either. A fault that interrupts an
explicit reset counts as a fault of the episode that this reset starts.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.faults.fault_policy import FaultPolicy
from agym.core.engine.opened import EnvRows
from agym.core.hosts.episode import Episode, Phase
from agym.core.hosts.states.env_state import Copy, EnvState, Record
from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.messages.operations import Load, Reset, Step
from agym.core.protocol.messages.resets import EpisodeStart, Options, as_keywords, lasting
from agym.errors import Fault


@dataclass(slots=True)
class Known:
    """The record of one environment.

    Attributes:
        seed: Seed of the last explicit reset.
        options: Options of that reset, which automatic resets repeat.
        start: How the episode started.
        actions: The actions since the start, if they are recorded; ``None`` if any is missing.
        state: The latest known state in the episode.
        since: The actions since that state.
        next_start: How the next episode will start, once this episode is over.
        raised: How an episode started whose reset raised.
        retry: How the next episode must start, to retry a failed one.
        attempts: How many times in a row this episode was retried.
        failures: How many of these failures were caused by the environment itself.
    """

    seed: int | None = None
    options: dict[str, Any] | None = None
    start: EpisodeStart | None = None
    actions: list[Any] | None = None
    state: EnvState | None = None
    since: list[Any] = field(default_factory=list)
    next_start: EpisodeStart | None = None
    raised: EpisodeStart | None = None
    retry: EpisodeStart | None = None
    attempts: int = 0
    failures: int = 0

    @property
    def record(self) -> Record:
        """The start and the actions. Nothing is missing if ``actions`` is not ``None``."""
        return Record(self.start or EpisodeStart(), [*(self.actions or ())])

    def start_episode(self, start: EpisodeStart, *, keeps: bool) -> None:
        """Note how an episode started, and keep its actions if wanted."""
        self.start, self.actions = start, [] if keeps else None
        self.state = self.next_start = self.raised = None

    def reach(self, state: EnvState) -> None:
        """Note the state of the environment."""
        self.state, self.since = state, []

    def cut(self) -> None:
        """Drop the actions of an episode that cannot be replayed."""
        self.actions = self.state = None

    def add(self, action: Any, limit: int) -> None:
        """Note an action; at most ``limit`` are kept."""
        if self.state is not None:
            self.since.append(action)
            if len(self.since) > limit:
                self.state = None
        if self.actions is not None:
            self.actions.append(action)
            if len(self.actions) > limit:
                self.actions = None

    def forget_retry(self) -> None:
        """Do not retry the episode any more."""
        self.retry, self.attempts, self.failures = None, 0, 0


class Episodes:
    """Follows the episodes, and decides what replacements load and which episodes are retried."""

    def __init__(self, policy: FaultPolicy, rows: EnvRows) -> None:
        options = rows.backend.options
        self._known = [Known() for _ in options.factories]
        self._policy = policy
        self._rows = rows
        self._waits_when_over = options.autoreset is not AutoresetMode.SAME_STEP

    def __getitem__(self, slot: int) -> Known:
        return self._known[slot]

    # ---------------------------------------------------------------- following

    def note_reset(self, ids: Ids, seeds: Sequence[int | None] | None, options: Options) -> None:
        """Note seeds and options of a reset that is about to be sent."""
        for k, i in enumerate(ids):
            known = self._known[i]
            if seeds is not None and seeds[k] is not None:
                known.seed = seeds[k]
            known.options = lasting(options)

    def note_load(self, ids: Ids, states: Sequence[EnvState]) -> None:
        """Note the seeds and options of states that are about to be loaded."""
        for i, state in zip(ids, states, strict=True):
            self._known[i].seed = state.episode.seed
            self._known[i].options = state.episode.options

    def note_states(self, states: Mapping[int, EnvState | str]) -> None:
        """Note states that were taken; a string says why one cannot be."""
        if not self._policy.record_actions:
            return
        for i, state in states.items():
            if isinstance(state, EnvState) and state.way != "actions":
                self._known[i].reach(state)

    def report(
        self, ids: Ids, ticket: Ticket, payload: Payload, faults: Mapping[int, Fault]
    ) -> None:
        """Note the effect of a step, reset or load; mark the infos of episodes that are retries.

        Args:
            ids: The environments.
            ticket: The ticket of the operation.
            payload: The payload of its completion.
            faults: The faults that are reported with the same rows.
        """
        keeps, message = self._policy.record_actions, ticket.message
        for i in ids:
            known, start = self._known[i], payload.starts.get(i)
            if i in faults:
                known.cut()
            elif keeps and isinstance(message, Step) and start is None:
                known.add(self._rows.action(i, ticket), self._policy.replay_limit)
            if isinstance(message, Load):
                self._known[i] = Known(known.seed, known.options)
                if keeps:
                    self._known[i].reach(message.states[ticket.ids.index(i)])
            elif start is not None:
                retry, known.retry = known.retry, None
                if retry is not None and _same_start(retry, start):
                    payload.infos.setdefault(i, {})["retry"] = known.attempts
                else:
                    known.forget_retry()
                known.start_episode(start, keeps=keeps)
            if i in payload.nexts:
                known.next_start = payload.nexts[i]
                if known.retry is None:
                    known.forget_retry()

    # ---------------------------------------------------------------- retries

    def failed(self, fault: Fault) -> Fault:
        """Decide whether to retry the episode that a fault interrupts; return the fault."""
        limit, slot = self._policy.retry, fault.env_id
        known = self._known[slot]
        if not limit:
            return fault
        start = self._interrupted(slot)
        # An environment that only shared the failed worker does not use up its retries.
        at_fault = fault.kind == "raised" or fault.culprit in (None, slot)
        if start is None or known.failures + at_fault > limit:
            known.forget_retry()
            return replace(fault, retry=0)
        known.retry = start
        known.failures += at_fault
        known.attempts += 1
        return replace(fault, retry=known.attempts)

    def resumed(self, slot: int) -> None:
        """Cancel a retry, because the episode continues where it was."""
        known = self._known[slot]
        if known.retry is not None:
            known.retry = None
            known.attempts -= 1
            known.failures = min(known.failures, known.attempts)

    def _interrupted(self, slot: int) -> EpisodeStart | None:
        """Return how the interrupted episode started, ``None`` if that is unknown."""
        known = self._known[slot]
        if known.retry is not None:  # the retried episode has not started
            return known.retry
        ticket = self._rows.dispatcher.queues.owner(slot)
        if ticket is None or not ticket.message.starts or ticket.has_ended(slot):
            return known.next_start or known.start
        if not isinstance(ticket.message, Reset):
            return None
        asked = asked_start(slot, ticket)
        if asked.seed is not None:
            return asked
        start = known.next_start or known.raised
        return start and start._replace(options=asked.options)

    # ---------------------------------------------------------------- replacements

    def lost(self, slot: int, faults: int) -> EnvState:
        """Return the state of a replacement that starts another episode.

        Args:
            slot: The environment.
            faults: Number of its faults, which changes the seed for a reset without a seed.
        """
        known, reseed = self._known[slot], None
        if known.seed is not None:
            sequence = np.random.SeedSequence([known.seed, faults])
            reseed = int(sequence.generate_state(1)[0])
        episode = Episode(seed=known.seed, options=known.options, reseed=reseed, retry=known.retry)
        return EnvState(episode)

    def replayed(self, slot: int, lost: EnvState, flags: tuple[bool, bool]) -> EnvState | str:
        """Return the state of a replacement that continues the episode, or why it cannot.

        Args:
            slot: The environment.
            lost: The state to load if the replay fails.
            flags: The flags of the row with its last observation.
        """
        known = self._known[slot]
        episode = Episode(seed=known.seed, options=known.options)
        if known.state is not None:
            state = known.state._replace(actions=[*known.since])
        elif known.actions is not None:
            state = EnvState(episode, copied=Copy("actions", "", known.record))
        elif any(flags) and self._waits_when_over:
            episode.phase, episode.retry = Phase.DUE, known.next_start or EpisodeStart()
            state = EnvState(episode, flags=flags)
        elif known.start is None:
            return "the start of its episode is unknown"
        else:
            return f"its episode is longer than replay_limit={self._policy.replay_limit}"
        return state._replace(observation=lost.observation, otherwise=lost)


def asked_start(slot: int, ticket: Ticket) -> EpisodeStart:
    """Return the start of the episode that a reset in flight requests."""
    message = ticket.message
    assert isinstance(message, Reset)
    seed = message.seeds[ticket.ids.index(slot)] if message.seeds else None
    return EpisodeStart(seed, None, as_keywords(message.options, slot).get("options"))


def _same_start(first: EpisodeStart, second: EpisodeStart) -> bool:
    """Whether two episodes start with the same random numbers."""
    if first.seed is None and first.rng is None:
        return True  # the environment has no random numbers
    # Generators other than NumPy's default have arrays in their state, so compare pickles.
    return first.seed == second.seed and pickle.dumps(first.rng) == pickle.dumps(second.rng)
