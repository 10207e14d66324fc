"""Your own environment class in worker processes: python examples/own_env.py.

Any ``gymnasium.Env`` runs, with the arguments and the wrappers that you give it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

import agym


class Corridor(gymnasium.Env[int, int]):
    """Walk to the last room of a corridor. The floor is slippery: some steps go the other way."""

    action_space = spaces.Discrete(2)  # to the left, to the right

    def __init__(self, rooms: int, slippery: float = 0.0) -> None:
        self.observation_space = spaces.Discrete(rooms)
        self.rooms, self.slippery = rooms, slippery
        self.room = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = 0
        return self.room, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        right = (action == 1) != (self.np_random.random() < self.slippery)
        self.room = max(0, self.room + (1 if right else -1))
        reached = self.room == self.rooms - 1
        return self.room, float(reached), reached, False, {}


# A class and its arguments make environments that are all the same ...
with agym.make(Corridor, 4, rooms=10, backend="process", workers=2, output="array") as envs:
    observations, infos = envs.reset(seed=0)
    observations, rewards, terminated, truncated, infos = envs.step([1, 1, 0, 0])
    print("rooms after a step:", observations)


# ... and a list of functions makes environments that differ, here with a wrapper around each.
def make_corridor(slippery: float) -> gymnasium.Env[int, int]:
    return TimeLimit(Corridor(10, slippery), max_episode_steps=50)


slipperiness = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
factories = [partial(make_corridor, slippery) for slippery in slipperiness]
options = {"backend": "process", "workers": 2, "output": "array", "autoreset": "next_step"}
with agym.make(factories, **options) as envs:
    envs.reset(seed=0)
    reached, late = 0, 0
    for _ in range(1000):
        observations, rewards, terminated, truncated, infos = envs.step([1] * len(envs))
        reached, late = reached + terminated, late + truncated
for i, slippery in enumerate(slipperiness):
    print(
        f"environment {i}, {slippery:.0%} slippery: the agent reached the last room in"
        f" {reached[i]} of {reached[i] + late[i]} episodes"
    )
