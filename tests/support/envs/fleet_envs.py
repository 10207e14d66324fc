"""Environments for tests of fleets: which can be told apart, and are fussy about who calls them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tests.support.envs.plain_envs import Result


class Drawn(gym.Env[Any, Any]):
    """Draws all that it returns, and how long its episodes are; all of it follows from the seed.

    One thread makes, uses and closes it, which its methods assert. Resets take up to ``delay``
    seconds, differently each time.
    """

    observation_space = spaces.Box(0, 1, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, number: int = 0, delay: float = 0.0) -> None:
        self.number = number
        self.delay = delay
        self.thread = threading.get_ident()
        self.left = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert threading.get_ident() == self.thread
        super().reset(seed=seed)
        if self.delay:
            time.sleep(np.random.default_rng().random() * self.delay)
        self.left = int(self.np_random.integers(1, 5))
        return self.np_random.random(2), self._info(seed=seed, options=options)

    def step(self, action: Any) -> Result:
        assert threading.get_ident() == self.thread
        self.left -= 1
        return self.np_random.random(2), self.np_random.random(), self.left <= 0, False, {}

    def get_state(self) -> Any:
        return self.np_random.bit_generator.state, self.left

    def set_state(self, state: Any) -> None:
        self.np_random.bit_generator.state, self.left = state

    def close(self) -> None:
        assert threading.get_ident() == self.thread

    def _info(self, **more: Any) -> dict[str, Any]:
        return {"number": self.number, **more}


class AsyncDrawn:
    """The coroutine environment that does the same; all its methods run in one task."""

    observation_space = Drawn.observation_space
    action_space = Drawn.action_space

    def __init__(self, number: int = 0, delay: float = 0.0) -> None:
        self.inner = Drawn(number)
        self.number = number
        self.delay = delay
        self.task: asyncio.Task[Any] | None = None

    def _same_task(self) -> None:
        self.task = self.task or asyncio.current_task()
        assert asyncio.current_task() is self.task

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._same_task()
        await asyncio.sleep(np.random.default_rng().random() * self.delay)
        return self.inner.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Result:
        self._same_task()
        await asyncio.sleep(0)
        return self.inner.step(action)

    async def snapshot(self) -> Any:
        return self.inner.np_random.bit_generator.state, self.inner.left

    async def restore(self, state: Any) -> None:
        self.inner.np_random.bit_generator.state, self.inner.left = state

    async def close(self) -> None:
        self._same_task()


class Numbered:
    """A factory that gives each environment its number, from 1, in each process by itself."""

    def __init__(self, env: Callable[..., Any], **keywords: Any) -> None:
        self.env = env
        self.keywords = keywords
        self.made = 0

    def __call__(self) -> Any:
        self.made += 1
        return self.env(self.made, **self.keywords)


class LastFails(Drawn):
    """Environments beyond the first ``good`` ones fail in ``reset``, each in the way of ``how``."""

    def __init__(self, number: int, good: int, how: str) -> None:
        super().__init__(number)
        self.good, self.how = good, how

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.number > self.good:
            fail(self.how)
        return super().reset(seed=seed, options=options)


class AsyncLastFails(AsyncDrawn):
    """The coroutine environment that does the same, and can hang."""

    def __init__(self, number: int, good: int, how: str) -> None:
        super().__init__(number)
        self.good, self.how = good, how

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.number > self.good:
            if self.how == "hang":
                await asyncio.Event().wait()
            fail(self.how)
        return await super().reset(seed=seed, options=options)


def fail(how: str) -> None:
    """Raise, or end the process."""
    if how == "raise":
        raise ValueError("boom")
    if how == "exit":
        raise SystemExit("boom")
    if how == "die":
        os._exit(3)
