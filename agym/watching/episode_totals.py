"""Counts the returns and lengths of episodes from the results that the caller receives.

If an environment reports ``info["episode"]`` (``episode_stats=True``, a wrapper of Gymnasium,
SB3's ``Monitor``), that is used. Otherwise rewards are added up, but only for episodes whose steps
were all seen: not for an episode that was under way when counting started, that continues from a
snapshot, or that lost a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agym import Batch, StepResult
from agym.core.protocol.infos.policy import EPISODE
from agym.core.protocol.typing import Array


class Episodes:
    """The episodes of all environments.

    Attributes:
        steps: Steps so far, without steps that only reset an environment or had no effect.
        returns: Returns of the episodes that ended since the last :meth:`take`.
        lengths: Lengths of these episodes.
        last: Return of each environment's latest finished episode, or NaN.
    """

    def __init__(self, num_envs: int, autoreset: str, steps: int = 0) -> None:
        """Start to count; episodes that are under way do not count."""
        self.steps = steps
        self.returns: list[float] = []
        self.lengths: list[int] = []
        # A row after an episode's end is not a step: it only resets the environment, or it has no
        # effect until there is a reset. Its reward is 0.
        self._pauses = autoreset != "same_step"
        self._waits_for_reset = autoreset == "disabled"
        self._totals = np.zeros(num_envs)
        self.last = np.full(num_envs, np.nan)
        self._counts = np.zeros(num_envs, np.int64)
        # Whether every step of the current episode was seen.
        self._whole = np.zeros(num_envs, bool)
        self._over: set[int] = set()
        # For each environment: the number of the latest reset, until a later result has been seen,
        # and whether that reset restored a snapshot.
        self._resets = np.zeros(num_envs, np.int64)
        self._restored = np.zeros(num_envs, bool)
        self._reset_sent = False

    @property
    def totals(self) -> Array:
        """Rewards of each environment's current episode; NaN if its first steps were not seen."""
        return np.where(self._whole, self._totals, np.nan)

    def count_from_start(self, ids: Sequence[int]) -> None:
        """Count the episodes of environments that have not been stepped yet."""
        self._whole[list(ids)] = True

    def reset(self, number: int, ids: Sequence[int], *, restored: bool) -> None:
        """Note a reset that was sent; ``restored`` if it restored snapshots instead.

        Operations with higher numbers run after it.
        """
        self._resets[list(ids)] = number
        self._restored[list(ids)] = restored
        self._reset_sent = True

    def lose(self, ids: Sequence[int]) -> None:
        """Note that results of steps are missing."""
        self._whole[list(ids)] = False

    def add(self, number: int | None, ids: Sequence[int], result: StepResult | Batch) -> None:
        """Add the results of steps.

        Args:
            number: Number of the steps' operation; ``None`` if they ran after all resets.
            ids: The environments.
            result: Their results.
        """
        index: Any = slice(ids.start, ids.stop) if isinstance(ids, range) else np.asarray(ids)
        if self._reset_sent:
            self._start_episodes(number, index)
        over = self._over
        paused = over.intersection(ids) if over else over
        self.steps += len(ids) - len(paused)
        self._totals[index] += result.rewards
        self._counts[index] += 1
        if paused and not self._waits_for_reset:  # this row was their reset
            over -= paused
        done = result.terminated | result.truncated
        if done.any():
            for k in np.flatnonzero(done).tolist():
                i = ids[k]
                if not (self._waits_for_reset and i in paused):
                    self._end(i, result.infos[k])
                    if self._pauses:
                        over.add(i)

    def _start_episodes(self, number: int | None, index: Any) -> None:
        """Start the episodes of environments that were reset before these steps."""
        resets = self._resets[index]
        starts = resets > 0
        if number is not None:
            starts &= resets < number
        if starts.any():
            for array in (self._totals, self._counts, self._resets):
                array[index] = np.where(starts, 0, array[index])
            self._whole[index] = np.where(starts, ~self._restored[index], self._whole[index])
            if self._over:
                self._over.difference_update(np.arange(len(self._totals))[index][starts].tolist())
            self._reset_sent = bool(self._resets.any())

    def _end(self, i: int, info: dict[str, Any]) -> None:
        reported: Any = (info.get("final_info") or info).get(EPISODE)
        known = isinstance(reported, dict) and "r" in reported and "l" in reported
        # An episode that a fault interrupted does not count.
        if (known or self._whole[i]) and "fault" not in info:
            self.last[i] = reported["r"] if known else self._totals[i]
            self.returns.append(float(self.last[i]))
            self.lengths.append(int(reported["l"] if known else self._counts[i]))
        self._totals[i], self._whole[i] = 0.0, True
        self._counts[i] = 0 if not self._pauses else -1  # the next row is not a step

    def take(self) -> tuple[list[float], list[int]]:
        """Return the returns and lengths, and clear them."""
        returns, lengths = self.returns, self.lengths
        self.returns, self.lengths = [], []
        return returns, lengths
