"""Selection of infos by the ``infos`` and ``episode_stats`` options, in the host.

Episode statistics equal those of Gymnasium's ``RecordEpisodeStatistics`` around each environment:
returns are added one after another in the type of the rewards, so they agree to the last bit. One
``map`` of a C function adds them for a whole batch. (NumPy would need a conversion, and would round
differently if rewards are not float64.)

An episode that a fault has cut off has no statistics, because they were lost with the environment.
A replayed episode has the statistics of the whole episode. An ``info["episode"]`` from the
environment itself, for example from a wrapper, is left unchanged.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from agym.core.protocol.typing import Info

# Key of the statistics in an info.
EPISODE = "episode"


@dataclass(frozen=True)
class InfoPolicy:
    """The infos that the caller wants; see the options of :func:`agym.make`."""

    infos: str = "all"
    episode_stats: bool = False

    @property
    def active(self) -> bool:
        """Whether infos are changed at all."""
        return self.infos != "all" or self.episode_stats

    @property
    def counts(self) -> bool:
        """Whether episode statistics are counted."""
        return self.episode_stats or self.infos == "episode"


class InfoFilter:
    """Applies the policy to a host's infos, if the policy is ``active``; otherwise nothing changes.

    Indices count from the host's first environment.
    """

    def __init__(self, policy: InfoPolicy, count: int) -> None:
        self.active = policy.active
        self._policy = policy
        self._all = policy.infos == "all"
        self._returns: list[Any] = [0.0] * count
        self._started = [perf_counter()] * count
        # Whether the episode of each environment was cut off.
        self._cut = [False] * count

    def start(self, i: int) -> None:
        """Start the statistics of an episode, after its reset."""
        self._returns[i] = 0.0
        self._started[i] = perf_counter()
        self._cut[i] = False

    def cut(self, i: int) -> None:
        """Mark the episode of an environment as cut off."""
        self._cut[i] = True

    def statistics(self, i: int) -> tuple[Any, float, bool]:
        """Return the statistics of an episode so far, for another filter to resume."""
        return self._returns[i], perf_counter() - self._started[i], self._cut[i]

    def resume(self, i: int, statistics: tuple[Any, float, bool]) -> None:
        """Continue from statistics; their seconds are the time until they were taken."""
        self._returns[i], seconds, self._cut[i] = statistics
        self._started[i] = perf_counter() - seconds

    def add(self, start: int, rewards: Sequence[Any]) -> None:
        """Add the rewards of a step of adjacent environments from ``start`` on."""
        if self._policy.counts:
            part = slice(start, start + len(rewards))
            self._returns[part] = map(operator.add, self._returns[part], rewards)

    def running(self, infos: Sequence[Info]) -> Sequence[Info]:
        """Select the infos of resets, and of steps that do not end an episode."""
        return infos if self._all else [{}] * len(infos)

    def ended(self, i: int, info: Info, reward: Any, length: int) -> Info:
        """Select the info of the step that ended an episode, whose reward is not yet added."""
        policy = self._policy
        if policy.infos == "none":
            return {}
        if policy.counts and not self._cut[i] and EPISODE not in info:
            seconds = round(perf_counter() - self._started[i], 6)
            earned = self._returns[i] + reward
            if hasattr(earned, "item") and not isinstance(earned, np.generic):
                earned = earned.item()  # rewards were arrays or tensors of one element
            episode = {"r": earned, "l": length, "t": seconds}
            info = {**info, EPISODE: episode}
        if self._all:
            return info
        return {EPISODE: info[EPISODE]} if EPISODE in info else {}
