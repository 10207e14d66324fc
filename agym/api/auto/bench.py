"""Environments that do nothing but compute or wait for a given time, to time backends with."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agym.api.sync import Envs
from agym.backends.base import Backend, BackendOptions
from agym.backends.options import BackendSpec, Ray
from agym.engine.engine import Engine

# Seconds of one measurement of a constant cost, and the most batches of it.
SECONDS, MOST_BATCHES = 0.03, 400


class Idle(gymnasium.Env[Any, Any]):
    """Does nothing; or waits, or computes, for a while.

    Attributes:
        seconds: How long a step waits.
        turns: How often a step does a piece of work.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, size: int = 16) -> None:
        """Take the size of observations in bytes."""
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self._observation = np.zeros(size, np.uint8)
        self._info: dict[str, Any] = {}
        self._state = np.zeros(4)
        self.seconds = 0.0
        self.turns = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation, self._info

    def step(self, action: Any) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        for _ in range(self.turns):
            self._work()
        return self._observation, 0.0, False, False, self._info

    def _work(self) -> None:
        """Compute some microseconds as simple environments do: floats, and a small array."""
        x, v, angle, turn = self._state
        force = math.sin(angle) * 9.8 + math.cos(angle) * turn
        self._state = np.array((x + 0.02 * v, v * 0.99, angle + 0.02 * turn, force * 0.1))


class IdleOnLoop:
    """Does nothing, as a coroutine environment."""

    action_space = Idle.action_space

    def __init__(self, size: int = 16) -> None:
        self._idle = Idle(size)
        self.observation_space = self._idle.observation_space

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._idle.reset()

    async def step(self, action: Any) -> Any:
        return self._idle.step(action)

    async def close(self) -> None:
        """Do nothing."""


class Bench:
    """Environments of :class:`Idle` on a backend, to be timed.

    Attributes:
        start: Seconds that they took to start.
    """

    def __init__(
        self,
        backend: type[Backend],
        num_envs: int = 1,
        workers: int | None = None,
        env: type[Idle | IdleOnLoop] = Idle,
        size: int = 16,
        cluster: Ray | None = None,
    ) -> None:
        mode = AutoresetMode.NEXT_STEP
        idle = [_Idle(env, size)] * num_envs
        spec = replace(cluster or BackendSpec(), workers=workers)
        begun = time.perf_counter()
        made = backend(BackendOptions(idle, mode, spec))
        self._envs: Envs[Any, Any] = Envs(Engine(made), "array")
        self._envs.reset()
        self.start = time.perf_counter() - begun
        self._actions = np.zeros(num_envs, np.int64)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._envs.close()

    def seconds(self, enough: float = SECONDS, least: int = 8) -> float:
        """Measure the seconds per batch: the median, for a caller that uses the observations."""
        envs, actions = self._envs, self._actions
        times: list[float] = []
        end = time.perf_counter() + enough
        while len(times) < MOST_BATCHES and (time.perf_counter() < end or len(times) < least):
            begun = time.perf_counter()
            observations, *_ = envs.step(actions)
            times.append(time.perf_counter() - begun)
            actions = (observations[:, 0] > 0).astype(np.int64)
        return median(times)

    def set(self, name: str, value: float) -> None:
        """Set an attribute of each environment."""
        self._envs.set_attr(name, value)


class _Idle:
    """A factory of idle environments, which can be pickled."""

    def __init__(self, env: type[Idle | IdleOnLoop], size: int) -> None:
        self._env = env
        self._size = size

    def __call__(self) -> Idle | IdleOnLoop:
        return self._env(self._size)
