"""Environments whose steps are nothing but waiting: what is left over is the runner's."""

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
    """A coroutine environment that waits in every step, as for a network.

    Args:
        delay: How long, in seconds.
    """

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._observation = np.zeros(4, np.float32)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, which has no end."""
        return self._observation, {}

    async def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Wait."""
        await asyncio.sleep(self._next_delay())
        return self._observation, 0.0, False, False, {}

    async def close(self) -> None:
        """Nothing is held."""

    def _next_delay(self) -> float:
        return self._delay


class StragglingEnv(WaitingEnv):
    """A coroutine environment that waits much longer in a few of its steps.

    Which steps these are is drawn from the seed of its reset.

    Args:
        delay: How long it mostly waits, in seconds.
        chance: The part of its steps that take longer, at random.
        times: How many times as long these take.
    """

    def __init__(self, delay: float, chance: float, times: float) -> None:
        super().__init__(delay)
        self._chance = chance
        self._times = times
        self._random = random.Random()

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, which has no end."""
        self._random.seed(seed)
        return await super().reset(seed=seed, options=options)

    def _next_delay(self) -> float:
        straggles = self._random.random() < self._chance
        return self._delay * self._times if straggles else self._delay


class SleepingEnv(gymnasium.Env[Observation, int]):
    """An ordinary environment that blocks its thread in every step, as by a synchronous client.

    Args:
        delay: How long, in seconds.
    """

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._observation = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, which has no end."""
        return self._observation, {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Block."""
        time.sleep(self._delay)
        return self._observation, 0.0, False, False, {}
