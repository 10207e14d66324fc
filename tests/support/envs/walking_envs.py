"""One random walk as a plain environment, as a coroutine environment and as a ``VectorEnv``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

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


class VectorWalk(VectorEnv[Any, Any, Any]):
    """The ``VectorEnv`` that does the same; an automatic reset repeats the options."""

    def __init__(
        self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    ) -> None:
        self.metadata = {
            "autoreset_mode": autoreset_mode, "reset_mask": True, "reset_seeds": "list",
        }  # fmt: skip
        self.resets_now = autoreset_mode is AutoresetMode.SAME_STEP
        self.num_envs = num_envs
        self.single_observation_space = Walk.observation_space
        self.single_action_space = Walk.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.walks = [Walk() for _ in range(num_envs)]
        self.options: list[Any] = [None] * num_envs
        self.over = np.zeros(num_envs, bool)
        self.observations = np.zeros((num_envs, 3))

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        options = dict(options or {})
        mask = options.pop("reset_mask", np.ones(self.num_envs, bool))
        if not isinstance(seed, list):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        for i in np.flatnonzero(mask).tolist():
            self.options[i] = options
            self._begin(i, seed[i])
        return self.observations.copy(), {}

    def _begin(self, i: int, seed: int | None = None) -> None:
        self.observations[i], _ = self.walks[i].reset(seed=seed, options=self.options[i])
        self.over[i] = False

    def step(self, actions: Any) -> Any:
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for i, walk in enumerate(self.walks):
            if self.over[i]:
                self._begin(i)
            else:
                row = walk.step(actions[i])
                self.observations[i], rewards[i], terminated[i], truncated[i], _ = row
        self.over = terminated | truncated
        info: dict[str, Any] = {}
        if self.resets_now and self.over.any():
            info = {"final_obs": self.observations.copy(), "_final_obs": self.over.copy()}
            for i in np.flatnonzero(self.over).tolist():
                self._begin(i)
        return self.observations.copy(), rewards, terminated, truncated, info

    def get_state(self, index: int) -> Any:
        return self.walks[index].get_state(), self.options[index], bool(self.over[index])

    def set_state(self, index: int, state: Any) -> None:
        walk, self.options[index], self.over[index] = state
        self.walks[index].set_state(walk)
