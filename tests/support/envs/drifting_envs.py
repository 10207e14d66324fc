"""Environments that drift at random, for snapshots: as plain ones and as coroutines."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Drifting(gymnasium.Env[Any, Any]):
    """Random, with episodes of random length, texts among its observations, and options."""

    observation_space = spaces.Dict(
        at=spaces.Box(-np.inf, np.inf, (3,), np.float64), word=spaces.Text(20)
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=3) + (options or {}).get("from", 0.0)
        return self.show(), {"began": True}

    def step(self, action: Any) -> Any:
        self.at += self.np_random.normal(size=3) * (1 + action)
        ended = self.np_random.random(2) < 0.05
        info = {"norm": float(np.abs(self.at).max()), "words": self.show()["word"].split(".")}
        return self.show(), float(self.at[0]), bool(ended[0]), bool(ended[1]), info

    def show(self) -> Any:
        return {"at": self.at, "word": f"{self.at[1]:.6f}"}  # the array is used again


class Cornered(Drifting):
    """The same, whose state cannot be copied."""

    def __init__(self) -> None:
        self.secret = (number for number in range(9))


def play(envs: Any, steps: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [envs.step(rng.integers(2, size=len(envs)).tolist()) for _ in range(steps)]
