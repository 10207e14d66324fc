"""Episodes: their returns and lengths, counted from the results that the caller is given.

What an environment tells as ``info["episode"]`` by itself (``episode_stats=True``, a wrapper of
Gymnasium's, SB3's ``Monitor``) is taken at its word; of all others rewards are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agym.engine.hooks.hooks import StepOutcome
from agym.protocol.infos.policy import EPISODE


class Episodes:
    """Those of a number of environments.

    Attributes:
        steps: Steps so far, without those that only reset an environment or found it holding still.
        returns: Of the episodes that have ended and were not taken yet.
        lengths: Likewise.
        totals: What each environment has earned in its episode so far, ``float64[num_envs]``.
        last: Return of the latest episode of each that has ended, or NaN.
    """

    def __init__(self, num_envs: int, autoreset: str, steps: int = 0) -> None:
        """Count from the next step on; an episode that has begun before counts from there."""
        self.steps = steps
        self.returns: list[float] = []
        self.lengths: list[int] = []
        # A row behind an episode's end is no step: a reset, or nothing until there is a reset. It
        # earns nothing.
        self._pauses = autoreset != "same_step"
        self._holds = autoreset == "disabled"
        self.totals = np.zeros(num_envs)
        self.last = np.full(num_envs, np.nan)
        self._counts = np.zeros(num_envs, np.int64)
        self._over: set[int] = set()
        # The number of the latest reset that is still to be seen in a result.
        self._resets = np.zeros(num_envs, np.int64)
        self._reset_sent = False

    def reset(self, number: int, ids: Sequence[int]) -> None:
        """A reset was sent; what is sent from now on, with higher numbers, comes after it."""
        self._resets[list(ids)] = number
        self._reset_sent = True

    def add(self, number: int | None, ids: Sequence[int], result: StepOutcome) -> None:
        """Steps have ended.

        Args:
            number: When they were sent; ``None`` if after all resets.
            ids: Of which environments.
            result: What came of them.
        """
        index: Any = slice(ids.start, ids.stop) if isinstance(ids, range) else np.asarray(ids)
        if self._reset_sent:
            self._begin(number, index)
        over = self._over
        paused = over.intersection(ids) if over else over
        self.steps += len(ids) - len(paused)
        self.totals[index] += result.rewards
        self._counts[index] += 1
        if paused and not self._holds:  # they have been reset by this
            over -= paused
        done = result.terminated | result.truncated
        if done.any():
            for k in np.flatnonzero(done).tolist():
                i = ids[k]
                if not (self._holds and i in paused):
                    self._end(i, result.infos[k])
                    if self._pauses:
                        over.add(i)

    def _begin(self, number: int | None, index: Any) -> None:
        """Episodes begin where a reset was sent before these steps."""
        resets = self._resets[index]
        begin = resets > 0
        if number is not None:
            begin &= resets < number
        if begin.any():
            for array in (self.totals, self._counts, self._resets):
                array[index] = np.where(begin, 0, array[index])
            if self._over:
                self._over.difference_update(np.arange(len(self.totals))[index][begin].tolist())
            self._reset_sent = bool(self._resets.any())

    def _end(self, i: int, info: dict[str, Any]) -> None:
        told: Any = (info.get("final_info") or info).get(EPISODE)
        if "fault" not in info:  # what it was cut off by is no end
            known = isinstance(told, dict) and "r" in told and "l" in told
            self.last[i] = told["r"] if known else self.totals[i]
            self.returns.append(float(self.last[i]))
            self.lengths.append(int(told["l"] if known else self._counts[i]))
        self.totals[i] = 0.0
        self._counts[i] = 0 if not self._pauses else -1  # what follows is no step

    def take(self) -> tuple[list[float], list[int]]:
        """Take returns and lengths out."""
        taken = self.returns, self.lengths
        self.returns, self.lengths = [], []
        return taken
