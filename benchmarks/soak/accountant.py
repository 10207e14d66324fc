"""Accountant: checks that each transition of counting environments arrives once and in order.

The environments are :class:`~benchmarks.soak.probes.CounterEnv` with next-step autoreset.
Observations are step counts of the episode, so the next row is known::

    0  1  2  3  3 (truncated, fault)  0  1  2 (done)  0  1 ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agym.errors import Fault

Array = np.ndarray[Any, Any]


class Accountant:
    """Checks every row.

    Attributes:
        steps: Number of rows so far.
        lost: Number of transitions that never arrived.
        duplicated: Number of transitions that arrived twice, or in the wrong place.
        faults: Number of reported faults, by kind.
        bystanders: Number of faults that interrupted an environment because it shared the culprit's
            worker.
        survived: Number of injected faults after which the environment has stepped again.
    """

    def __init__(self, num_envs: int) -> None:
        self.steps = 0
        self.lost = 0
        self.duplicated = 0
        self.faults: Counter[str] = Counter()
        self.bystanders = 0
        self.survived = 0
        self._counts = np.zeros(num_envs, np.int64)
        # Flags of the last row: terminated, truncated.
        self._flags = np.zeros((2, num_envs), np.bool_)
        self._sent: dict[int, int] = {}
        # Injected faults that each environment has not survived yet.
        self._pending: Counter[int] = Counter()

    @property
    def unresolved(self) -> int:
        """Number of injected faults after which the environment has not stepped yet."""
        return self._pending.total()

    @property
    def missing(self) -> int:
        """Number of steps that were sent and have not arrived."""
        return len(self._sent)

    def inject(self, env_ids: Iterable[int]) -> None:
        """Record that faults were injected into environments."""
        self._pending.update(env_ids)

    def reset(
        self, env_ids: Iterable[int], observations: Array, infos: Sequence[Mapping[str, Any]]
    ) -> None:
        """Check rows of resets; ``observations`` and ``infos`` are those of all environments."""
        for i in env_ids:
            if observations[i] != 0:
                self.duplicated += 1
            self._see(i, infos[i].get("fault"))
            self._counts[i] = 0
            self._flags[:, i] = False

    def send(self, env_ids: Array, actions: Array) -> None:
        """Record steps that are sent; each must arrive once."""
        self._sent.update(zip(env_ids.tolist(), actions.tolist(), strict=True))

    def receive(
        self,
        env_ids: Array,
        observations: Array,
        rewards: Array,
        terminated: Array,
        truncated: Array,
        infos: Sequence[Mapping[str, Any]],
    ) -> None:
        self.steps += len(env_ids)
        over = self._flags[:, env_ids].any(axis=0)
        flags = np.stack([terminated, truncated])
        expected = np.where(over, 0, self._counts[env_ids] + 1)
        all_ready = (observations == expected) & (rewards == expected)
        all_ready &= ~(over & flags.any(axis=0)) & ~flags.all(axis=0)
        for k, i in enumerate(env_ids.tolist()):
            action = self._sent.pop(i, None)
            if action is None:
                self.duplicated += 1
            elif not all_ready[k]:
                self._examine(i, int(observations[k]), float(rewards[k]), flags[:, k], infos[k])
            elif infos[k] and not self._fits(infos[k], int(observations[k]), action):
                self.duplicated += 1
            elif i in self._pending:
                self.survived += self._pending.pop(i)
        self._counts[env_ids] = observations
        self._flags[:, env_ids] = flags

    @staticmethod
    def _fits(info: Mapping[str, Any], count: int, action: int) -> bool:
        """Return whether the info belongs to the same transition."""
        belongs = info.get("count", count) == count and info.get("action", action) == action
        return belongs and "fault" not in info

    def _examine(
        self, i: int, count: int, reward: float, flags: Array, info: Mapping[str, Any]
    ) -> None:
        """Count an unexpected row: a fault, or a lost or duplicated transition."""
        last, over = int(self._counts[i]), bool(self._flags[:, i].any())
        fault = info.get("fault")
        cut = count == last and reward == 0.0 and flags.tolist() == [False, True]
        if fault is not None and cut:
            self._see(i, fault)
        elif count == last and bool((flags == self._flags[:, i]).all()):
            self.duplicated += 1
        elif over and count:
            self.lost += count
        elif count > last + 1:
            self.lost += count - last - 1
        elif count == 0 and reward == 0.0 and not over:
            self.lost += 1  # the end of an episode
        else:
            self.duplicated += 1

    def _see(self, i: int, fault: Fault | None) -> None:
        if fault is not None:
            self.faults[fault.kind] += 1
            self.bystanders += fault.culprit not in (None, i)
