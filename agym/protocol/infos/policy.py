"""What of the infos is told: by the ``infos`` and ``episode_stats`` options, decided by the host.

Statistics of an episode are those of Gymnasium's ``RecordEpisodeStatistics`` around each
environment: returns are added up one after the other in the type that rewards have, so that they
are equal to the last bit. They are added for a whole batch by one ``map`` of C functions. (NumPy
would take a conversion more, and round otherwise where rewards are no float64.)

An episode that a fault has cut off has none, since what is known of it died with the environment;
one that was replayed has those of the whole. What an environment tells as ``info["episode"]`` by
itself, with a wrapper, stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from agym.protocol.typing import Info

# What can be asked for.
INFOS = ("all", "episode", "none")

# The key of the statistics.
EPISODE = "episode"


@dataclass(frozen=True)
class InfoPolicy:
    """What the caller wants to be told; see the options of :func:`agym.make`."""

    infos: str = "all"
    episode_stats: bool = False

    @property
    def active(self) -> bool:
        """Whether infos are not told just as they are."""
        return self.infos != "all" or self.episode_stats

    @property
    def counts(self) -> bool:
        """Whether episodes are followed."""
        return self.episode_stats or self.infos == "episode"


class InfoFilter:
    """What a host passes its infos through; environments are counted from its first.

    Attributes:
        active: Whether it changes anything; if not, nothing needs to be passed.
    """

    def __init__(self, policy: InfoPolicy, count: int) -> None:
        """Begin with episodes that nobody has begun."""
        self.active = policy.active
        self._policy = policy
        self._all = policy.infos == "all"
        self._returns: list[Any] = [0.0] * count
        self._begun = [perf_counter()] * count
        # Whose episode is not known from its beginning.
        self._cut: set[int] = set()

    def begin(self, i: int) -> None:
        """An episode has begun: its reset is over."""
        self._returns[i] = 0.0
        self._begun[i] = perf_counter()
        self._cut.discard(i)

    def cut(self, i: int) -> None:
        """The episode of an environment was cut off."""
        self._cut.add(i)

    def tally(self, i: int) -> tuple[Any, float, bool]:
        """What is known of an episode so far, for another filter to go on from."""
        return self._returns[i], self._begun[i], i in self._cut

    def resume(self, i: int, tally: tuple[Any, float, bool]) -> None:
        """Go on from there; clocks are the system's, so that its processes have the same."""
        self._returns[i], self._begun[i], cut = tally
        if cut:
            self._cut.add(i)

    def add(self, start: int, rewards: Sequence[Any]) -> None:
        """Neighbours from ``start`` on have made a step."""
        if self._policy.counts:
            part = slice(start, start + len(rewards))
            self._returns[part] = map(operator.add, self._returns[part], rewards)

    def running(self, infos: Sequence[Info]) -> Sequence[Info]:
        """What is told of resets, and of steps that do not end an episode."""
        return infos if self._all else [{}] * len(infos)

    def ended(self, i: int, info: Info, reward: Any, length: int) -> Info:
        """What is told of the step that ended an episode, the reward of which is not yet added."""
        policy = self._policy
        if policy.infos == "none":
            return {}
        if policy.counts and i not in self._cut and EPISODE not in info:
            seconds = round(perf_counter() - self._begun[i], 6)
            earned = self._returns[i] + reward
            if hasattr(earned, "item") and not isinstance(earned, np.generic):
                earned = earned.item()  # of rewards in arrays or tensors of one element
            episode = {"r": earned, "l": length, "t": seconds}
            info = {**info, EPISODE: episode}
        if self._all:
            return info
        return {EPISODE: info[EPISODE]} if EPISODE in info else {}
