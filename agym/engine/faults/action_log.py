"""The action log: how each environment's episode began, and the actions since."""

from __future__ import annotations

from typing import Any, NamedTuple

from agym.hosts.snapshots.states import EnvState
from agym.protocol.messages.resets import EpisodeStart


class Episode(NamedTuple):
    """The log of an environment's current episode.

    Attributes:
        start: How it began, ``None`` if that is unknown.
        actions: The actions since.
        complete: Whether no action is missing.
        checkpoint: The latest state in it that is known, and the actions since.
    """

    start: EpisodeStart | None
    actions: list[Any]
    complete: bool
    checkpoint: tuple[EnvState, list[Any]] | None = None


class ActionLog:
    """Keeps at most ``limit`` actions per environment; longer episodes are dropped."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._starts: dict[int, EpisodeStart] = {}
        self._actions: dict[int, list[Any] | None] = {}
        self._checkpoints: dict[int, tuple[EnvState, list[Any]]] = {}

    def begin(self, slot: int, start: EpisodeStart) -> None:
        self._checkpoints.pop(slot, None)
        self._starts[slot] = start
        self._actions[slot] = []

    def checkpoint(self, slot: int, state: EnvState) -> None:
        """Note the state of an environment after the actions so far."""
        self._checkpoints[slot] = state, []

    def since(self, slot: int) -> int:
        """Return how many actions a replay would take."""
        known = self._checkpoints.get(slot)
        return len((self._actions.get(slot) or ()) if known is None else known[1])

    def add(self, slot: int, action: Any) -> None:
        if slot in self._checkpoints:
            recent = self._checkpoints[slot][1]
            recent.append(action)
            if len(recent) > self.limit:
                del self._checkpoints[slot]
        actions = self._actions.get(slot)
        if actions is None:
            return
        if len(actions) < self.limit:
            actions.append(action)
        else:
            self._actions[slot] = None

    def cut(self, slot: int) -> None:
        """Drop an episode that cannot be replayed."""
        self._starts.pop(slot, None)
        self._actions.pop(slot, None)
        self._checkpoints.pop(slot, None)

    def episode(self, slot: int) -> Episode:
        """Return what is known of the current episode."""
        actions = self._actions.get(slot)
        known = self._checkpoints.get(slot)
        return Episode(self._starts.get(slot), actions or [], actions is not None, known)
