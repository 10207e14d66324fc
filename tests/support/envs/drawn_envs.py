"""Environments that draw all they return, and assert that one thread or task calls them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tests.support.envs.plain_envs import Result


class Drawn(gym.Env[Any, Any]):
    """Draws all that it returns, and how long its episodes are; all of it follows from the seed.

    One thread makes, uses and closes it, which its methods assert.
    """

    observation_space = spaces.Box(0, 1, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.left = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert threading.get_ident() == self.thread
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 5))
        return self.np_random.random(2), {}

    def step(self, action: Any) -> Result:
        assert threading.get_ident() == self.thread
        self.left -= 1
        return self.np_random.random(2), self.np_random.random(), self.left <= 0, False, {}

    def close(self) -> None:
        assert threading.get_ident() == self.thread


class AsyncDrawn:
    """The coroutine environment that does the same; all its methods run in one task."""

    observation_space = Drawn.observation_space
    action_space = Drawn.action_space

    def __init__(self) -> None:
        self.inner = Drawn()
        self.task: asyncio.Task[Any] | None = None

    def _same_task(self) -> None:
        self.task = self.task or asyncio.current_task()
        assert asyncio.current_task() is self.task

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._same_task()
        await asyncio.sleep(0)
        return self.inner.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Result:
        self._same_task()
        await asyncio.sleep(0)
        return self.inner.step(action)

    async def close(self) -> None:
        self._same_task()
