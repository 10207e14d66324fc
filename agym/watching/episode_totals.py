"""Counts the returns and lengths of episodes from the results that the caller receives.

If an environment reports ``info["episode"]`` (``episode_stats=True``, a wrapper of Gymnasium,
SB3's ``Monitor``), that is used. Otherwise rewards are added up, but only for episodes whose steps
were all seen: not for an episode that was under way when counting started, that continues from a
snapshot, or that lost a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from agym import Batch, Hook, StepResult, Tap
from agym.core.protocol.arguments import Ids
from agym.core.protocol.infos.policy import EPISODE
from agym.core.protocol.typing import Array


class Ended(NamedTuple):
    """An episode that ended.

    Attributes:
        step: Steps of all environments when it ended.
        total: Its return.
        length: Its length.
        env: Its environment.
        first_step: Steps of all environments when it started.
    """

    step: int
    total: float
    length: int
    env: int
    first_step: int


class Episodes:
    """The episodes of all environments.

    Attributes:
        steps: Steps so far, without steps that only reset an environment or had no effect.
        ended: The episodes that ended since the last :meth:`take`.
        last: Return of each environment's latest finished episode, or NaN.
    """

    def __init__(self, num_envs: int, autoreset: str, steps: int = 0) -> None:
        """Start to count; episodes that are under way do not count."""
        self.steps = steps
        self.ended: list[Ended] = []
        # A row after an episode's end is not a step: it only resets the environment, or it has no
        # effect until there is a reset. Its reward is 0.
        self._pauses = autoreset != "same_step"
        self._waits_for_reset = autoreset == "disabled"
        self._totals = np.zeros(num_envs)
        self.last = np.full(num_envs, np.nan)
        self._counts = np.zeros(num_envs, np.int64)
        # Whether every step of the current episode was seen.
        self._whole = np.zeros(num_envs, bool)
        self._first_steps = np.full(num_envs, steps)
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
        with np.errstate(all="ignore"):  # of infinite rewards, which may cancel out
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
            self._first_steps[index] = np.where(starts, self.steps, self._first_steps[index])
            if self._over:
                self._over.difference_update(np.arange(len(self._totals))[index][starts].tolist())
            self._reset_sent = bool(self._resets.any())

    def _end(self, i: int, info: dict[str, Any]) -> None:
        known = reported((info.get("final_info") or info).get(EPISODE))
        # An episode that a fault interrupted does not count.
        if (known or self._whole[i]) and "fault" not in info:
            self.last[i], length = known or (self._totals[i], int(self._counts[i]))
            first = int(self._first_steps[i])
            self.ended.append(Ended(self.steps, float(self.last[i]), length, i, first))
        self._totals[i], self._whole[i], self._first_steps[i] = 0.0, True, self.steps
        self._counts[i] = 0 if not self._pauses else -1  # the next row is not a step

    def take(self) -> list[Ended]:
        """Return the episodes that ended, and forget them."""
        ended, self.ended = self.ended, []
        return ended


class EpisodesHook(Hook):
    """Counts the episodes of some environments while it is a hook.

    Attributes:
        episodes: Their totals.
    """

    def __init__(self, tap: Tap, ids: Ids | None = None, steps: int = 0) -> None:
        """Prepare to count the environments ``ids``, by default all."""
        self._tap = tap
        self._ids = None if ids is None or len(ids) == tap.num_envs else frozenset(ids)
        self.episodes = Episodes(tap.num_envs, tap.autoreset, steps)

    def start(self) -> None:
        """Count from now on."""
        self._tap.add_hook(self)
        self.episodes.count_from_start(self._tap.unstepped())

    def on_steps(self) -> None:
        """Called after steps were counted."""

    def after_reset_sent(self, number: int, ids: Ids, *, restored: bool) -> None:
        self.episodes.reset(number, ids, restored=restored)

    def after_steps_lost(self, ids: Ids) -> None:
        self.episodes.lose(ids)

    def after_step(self, number: int | None, ids: Ids, result: StepResult | Batch) -> None:
        if self._ids is not None and not self._ids.issuperset(ids):
            rows = [k for k, i in enumerate(ids) if i in self._ids]
            if not rows:
                return
            ids = tuple(ids[k] for k in rows)
            infos = [result.infos[k] for k in rows]
            flags = result.terminated[rows], result.truncated[rows]
            result = StepResult(None, result.rewards[rows], *flags, infos)
        self.episodes.add(number, ids, result)
        self.on_steps()


def reported(episode: Any) -> tuple[float, int] | None:
    """Return the return and the length that an environment reports, ``None`` if it does not."""
    try:
        total, length = (np.asarray(episode[key]).item() for key in ("r", "l"))
        return float(total), int(length)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None


def mean(values: Sequence[float]) -> float:
    """Return a mean, also of values that are infinite or whose sum is."""
    return sum(values) / len(values)
