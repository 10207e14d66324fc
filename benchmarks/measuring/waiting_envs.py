"""Environments whose steps only wait, so that the rest of the time is the runner's."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete

OBSERVATIONS = Box(-1.0, 1.0, (4,), np.float32)
ACTIONS: Space[Any] = Discrete(2)

Observation = np.ndarray[Any, np.dtype[np.float32]]


class WaitingEnv:
    """A coroutine environment that waits ``delay`` seconds in every step, as for a network."""

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._observation = np.zeros(4, np.float32)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        return self._observation, {}

    async def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(self._next_delay())
        return self._observation, 0.0, False, False, {}

    async def close(self) -> None:
        """Do nothing."""

    def _next_delay(self) -> float:
        return self._delay


class StragglingEnv(WaitingEnv):
    """A coroutine environment that waits much longer in a few of its steps.

    The seed of its reset determines which steps.

    Args:
        delay: Seconds of most steps.
        chance: Share of slow steps.
        times: How many times as long slow steps take.
    """

    def __init__(self, delay: float, chance: float, times: float) -> None:
        super().__init__(delay)
        self._chance = chance
        self._times = times
        self._random = random.Random()

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self._random.seed(seed)
        return await super().reset(seed=seed, options=options)

    def _next_delay(self) -> float:
        straggles = self._random.random() < self._chance
        return self._delay * self._times if straggles else self._delay


class SleepingEnv(gymnasium.Env[Observation, int]):
    """A Gymnasium environment that blocks its thread in every step, as a blocking client does."""

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._observation = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        return self._observation, {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        time.sleep(self._delay)
        return self._observation, 0.0, False, False, {}
