"""Probes: environments that show what a runner does to them."""

from __future__ import annotations

import copy
import threading
from typing import Any

import gymnasium
from gymnasium import Space


class RandomEnv(gymnasium.Env[Any, Any]):
    """Samples everything from its spaces, and is a function of its seed and actions alone.

    The info of every step echoes the action, rewards are normally distributed, and an episode
    ends at random after ten steps on average, terminated and truncated in turn. It insists on
    living in one thread.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        render_mode: str | None = "ansi",
    ) -> None:
        """Take any spaces."""
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space
        self.render_mode = render_mode
        self.steps = 0
        self.thread = threading.get_ident()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the info echoes the options."""
        self._check_thread()
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {} if options is None else {"options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go on, whatever the action is, as long as it is one.

        Raises:
            ValueError: The action is not in the space.
        """
        self._check_thread()
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.steps += 1
        done = bool(self.np_random.random() < 0.1)
        terminated, truncated = done and self.steps % 2 == 0, done and self.steps % 2 == 1
        reward = float(self.np_random.normal())
        return self._observe(), reward, terminated, truncated, {"action": copy.deepcopy(action)}

    def render(self) -> str:
        """Tell the number of steps in this episode."""
        self._check_thread()
        return f"step {self.steps}"

    def close(self) -> None:
        """Check the thread once more."""
        self._check_thread()

    def _observe(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def _check_thread(self) -> None:
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in one thread, used in another")


class FaultyEnv(gymnasium.Env[Any, Any]):
    """Observes its own step count, and raises where it is told to."""

    observation_space = gymnasium.spaces.Discrete(1_000_000)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fail_in: str | None = None) -> None:
        """Name the operation that raises: ``make``, ``reset``, ``step``, ``render``, ``close``."""
        self.fail_in = fail_in
        self.steps = 0
        self._do("make")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Begin again at 0."""
        super().reset(seed=seed)
        self._do("reset")
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Count; action 1 raises."""
        self._do("step")
        if action == 1:
            raise RuntimeError("told to fail")
        self.steps += 1
        return self.steps, 1.0, False, False, {}

    def render(self) -> Any:
        """Give nothing."""
        self._do("render")

    def close(self) -> None:
        """Close."""
        self._do("close")

    def _do(self, operation: str) -> None:
        if operation == self.fail_in:
            raise RuntimeError(f"told to fail in {operation}")
