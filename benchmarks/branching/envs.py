"""The environments of the comparison, and a coroutine environment that can be copied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import agym
from agym.api.options.environments import find_spec
from agym.backends import BackendSpec
from agym.core._system.extras import how_to_get, installed
from benchmarks.branching.records import BackendName, Game
from benchmarks.measuring.workloads import make_env

Observation = np.ndarray[Any, np.dtype[np.float32]]


class WanderingEnv:
    """A coroutine environment: a random walk, whose random numbers are part of its snapshots.

    Episodes end by chance: terminated with one step in thirty, truncated after 60 steps.
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Discrete(3)

    def __init__(self) -> None:
        self._random = np.random.default_rng()
        self._place = np.zeros(3)
        self._steps = 0

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._place = self._random.normal(size=3)
        self._steps = 0
        return self._place.astype(np.float32), {}

    async def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(0)
        self._place[action] += self._random.normal()
        self._steps += 1
        terminated = bool(self._random.random() < 1 / 30)
        truncated = self._steps == 60 and not terminated
        info = {"steps": self._steps, "noise": self._random.random()}
        observation = self._place.astype(np.float32)
        return observation, float(self._place[action]), terminated, truncated, info

    async def close(self) -> None:
        """Do nothing."""

    async def snapshot(self) -> Any:
        return self._random.bit_generator.state, self._place.copy(), self._steps

    async def restore(self, state: Any) -> None:
        self._random.bit_generator.state, place, self._steps = state
        self._place = place.copy()


COROUTINE = Game(f"{__name__}:WanderingEnv")

PONG = Game("ALE/Pong-v5", {}, "ale_py", how_to_get("ale_py", "atari"))
ANT = Game("Ant-v5", {}, "mujoco", how_to_get("mujoco", "mujoco"))
BREAKOUT = Game("ALE/Breakout-v5", {}, PONG.module, PONG.remedy)
HUMANOID = Game("HumanoidStandup-v5", {}, ANT.module, ANT.remedy)

# A wet road and a passenger who changes their mind: steps are random.
TAXI = Game("Taxi-v4", {"is_rainy": True, "fickle_passenger": True})
CARTPOLE = Game("CartPole-v1")

GAMES = (
    CARTPOLE,
    Game("Acrobot-v1"),
    Game("Pendulum-v1"),
    Game("LunarLander-v3", {}, "Box2D", 'LunarLander needs: pip install "gymnasium[box2d]"'),
    Game("FrozenLake-v1"),
    TAXI,
    PONG,
    BREAKOUT,
    HUMANOID,
    ANT,
    Game(
        "minigrid:MiniGrid-DoorKey-6x6-v0", {}, "minigrid", "MiniGrid needs: pip install minigrid"
    ),
    COROUTINE,
)

# Their costs depend on sticky actions, which are the default.
PLAIN_PONG = Game(
    PONG.env_id, {"repeat_action_probability": 0.0}, PONG.module, PONG.remedy, " (not sticky)"
)

SIMULATORS = (PONG, PLAIN_PONG, BREAKOUT, ANT, HUMANOID)


def missing(game: Game) -> str | None:
    """Return how to install an environment's package if it is missing."""
    return None if installed(game.module) else game.remedy


def source_of(game: Game) -> str | Callable[[], Any]:
    """Return the environment for ``agym.make``."""
    return WanderingEnv if game is COROUTINE else game.env_id


def backend_of(game: Game, backend: BackendName, workers: int) -> BackendSpec:
    """Return a backend; for a coroutine environment, that of this process is its event loop."""
    if backend is BackendName.process:
        return agym.backends.Process(workers=workers)
    return agym.backends.Asyncio() if game is COROUTINE else agym.backends.Serial()


def make_baseline(game: Game) -> gymnasium.Env[Any, Any]:
    """Make an environment without agym."""
    return make_env(find_spec(game.env_id), **game.kwargs)
