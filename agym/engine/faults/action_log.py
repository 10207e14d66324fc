"""The action log: how each environment's episode began, and the actions since."""

from __future__ import annotations

from typing import Any, NamedTuple

from agym.protocol.messages.resets import EpisodeStart


class Episode(NamedTuple):
    """The log of an environment's current episode.

    Attributes:
        start: How it began, ``None`` if that is unknown.
        actions: The actions since.
        complete: Whether no action is missing.
    """

    start: EpisodeStart | None
    actions: list[Any]
    complete: bool


class ActionLog:
    """Keeps at most ``limit`` actions per environment; longer episodes are dropped."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._starts: dict[int, EpisodeStart] = {}
        self._actions: dict[int, list[Any] | None] = {}

    def begin(self, slot: int, start: EpisodeStart) -> None:
        self._starts[slot] = start
        self._actions[slot] = []

    def add(self, slot: int, action: Any) -> None:
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

    def episode(self, slot: int) -> Episode:
        """Return what is known of the current episode."""
        actions = self._actions.get(slot)
        return Episode(self._starts.get(slot), actions or [], actions is not None)
