"""Action log: how the episode of each environment began, and what it was sent since."""

from __future__ import annotations

from typing import Any, NamedTuple

from agym.protocol.messages import EpisodeStart


class Episode(NamedTuple):
    """What is known of an environment's episode.

    Attributes:
        start: How it began, ``None`` if that is not known.
        actions: The actions since.
        complete: Whether no action is missing.
    """

    start: EpisodeStart | None
    actions: list[Any]
    complete: bool


class ActionLog:
    """Keeps at most ``limit`` actions of each environment; an episode that has more is dropped."""

    def __init__(self, limit: int) -> None:
        """Begin empty."""
        self.limit = limit
        self._starts: dict[int, EpisodeStart] = {}
        self._actions: dict[int, list[Any] | None] = {}

    def begin(self, slot: int, start: EpisodeStart) -> None:
        """An episode begins."""
        self._starts[slot] = start
        self._actions[slot] = []

    def add(self, slot: int, action: Any) -> None:
        """A step was done."""
        actions = self._actions.get(slot)
        if actions is None:
            return
        if len(actions) < self.limit:
            actions.append(action)
        else:
            self._actions[slot] = None

    def cut(self, slot: int) -> None:
        """An episode ended that cannot be played again."""
        self._starts.pop(slot, None)
        self._actions.pop(slot, None)

    def episode(self, slot: int) -> Episode:
        """Tell what is known."""
        actions = self._actions.get(slot)
        return Episode(self._starts.get(slot), actions or [], actions is not None)
