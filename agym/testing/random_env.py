"""An environment with any spaces, whose every value is a function of its seed and actions."""

from __future__ import annotations

import copy
import threading
from typing import Any

import gymnasium
from gymnasium import Space


class RandomEnv(gymnasium.Env[Any, Any]):
    """Samples observations from its space; a function of its seed and actions only.

    The info of every step echoes the action. Rewards are normally distributed. Episodes end at
    random, after eleven steps on average but never with the first step: terminated if the number of
    steps is even, truncated if it is odd. Only the thread that made the environment can use it.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        render_mode: str | None = "ansi",
    ) -> None:
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space
        self.render_mode = render_mode
        self.steps = 0
        self.thread = threading.get_ident()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the info echoes the options."""
        self._check_thread()
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {} if options is None else {"options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Sample a transition, whatever the action.

        Raises:
            ValueError: The action is not in the space.
        """
        self._check_thread()
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.steps += 1
        done = bool(self.np_random.random() < 0.1) and self.steps > 1
        terminated, truncated = done and self.steps % 2 == 0, done and self.steps % 2 == 1
        reward = float(self.np_random.normal())
        return self._observe(), reward, terminated, truncated, {"action": copy.deepcopy(action)}

    def render(self) -> str:
        self._check_thread()
        return f"step {self.steps}"

    def close(self) -> None:
        self._check_thread()

    def _observe(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def _check_thread(self) -> None:
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in one thread, used in another")
