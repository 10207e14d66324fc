"""One random walk as a plain environment, as a coroutine environment and as a ``VectorEnv``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.support.envs.plain_envs import Result

# The action that raises. It is not in the space, whose samples prove how to copy environments.
RAISES = 3


class Walk(gym.Env[Any, Any]):
    """Observes (position, steps, length of the episode), all of which follow from the seed.

    An episode of even length is terminated, one of odd length is truncated.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.length = (options or {}).get("length") or int(self.np_random.integers(3, 8))
        self.position, self.now = self.np_random.normal(), 0
        return self._observe(), {}

    def step(self, action: Any) -> Result:
        if action == RAISES:
            raise ValueError("boom")
        self.position += (1 + int(action)) * self.np_random.normal()
        self.now += 1
        over, even = self.now >= self.length, self.length % 2 == 0
        return self._observe(), self.position / 2, over and even, over and not even, {}

    def _observe(self) -> Any:
        return np.array([self.position, self.now, self.length], np.float64)

    def get_state(self) -> Any:
        return self.np_random.bit_generator.state, self.position, self.now, self.length

    def set_state(self, state: Any) -> None:
        self.np_random.bit_generator.state, self.position, self.now, self.length = state


class RepeatsOptions(Walk):
    """Repeats the options of its last reset in an automatic one, which has ``None``."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.options = self.options if options is None else options
        return super().reset(seed=seed, options=self.options)


class VectorWalk(SyncVectorEnv):
    """The ``VectorEnv`` that does the same; an automatic reset repeats the options."""

    def __init__(
        self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    ) -> None:
        super().__init__([RepeatsOptions] * num_envs, autoreset_mode=autoreset_mode)
        self.metadata |= {"reset_mask": True, "reset_seeds": "list"}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=dict(options or {}))

    def get_state(self, index: int) -> Any:
        env: Any = self.envs[index]
        return env.get_state(), env.options, self._autoreset_envs[index]

    def set_state(self, index: int, state: Any) -> None:
        env: Any = self.envs[index]
        walk, env.options, self._autoreset_envs[index] = state
        env.set_state(walk)
