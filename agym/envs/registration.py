"""Registers agym's environments with Gymnasium; a module is imported when its game is made."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium


class Shipped(NamedTuple):
    """A rule book that comes with agym.

    Attributes:
        rules: Module and class of the rules.
        max_episode_steps: The rules' value, repeated here because the rules are imported later.
        reward_threshold: The rules' value.
    """

    rules: str
    max_episode_steps: int | None
    reward_threshold: float | None = None


SHIPPED = {
    "agym/CartPole-v1": Shipped("classic.cart_pole:CartPole", 500, 475.0),
    "agym/Acrobot-v1": Shipped("classic.acrobot:Acrobot", 500, -100.0),
    "agym/MountainCar-v0": Shipped("classic.mountain_car:MountainCar", 200, -110.0),
    "agym/MountainCarContinuous-v0": Shipped(
        "classic.mountain_car:MountainCarContinuous", 999, 90.0
    ),
    "agym/Pendulum-v1": Shipped("classic.pendulum:Pendulum", 200),
    "agym/FrozenLake-v1": Shipped("toy_text.frozen_lake:FrozenLake", 100, 0.70),
    "agym/FrozenLake8x8-v1": Shipped("toy_text.frozen_lake:FrozenLake8x8", 200, 0.85),
    "agym/CliffWalking-v1": Shipped("toy_text.cliff_walking:CliffWalking", None),
    "agym/Taxi-v4": Shipped("toy_text.taxi:Taxi", 200, 8.0),
    "agym/Pong-v0": Shipped("games.pong:Pong", 10_000),
    "agym/PongRally-v0": Shipped("games.pong:PongRally", 10_000),
    "agym/Breakout-v0": Shipped("games.breakout:Breakout", 20_000),
}

# The module in which Gymnasium looks up both classes of an environment.
HERE = "agym.envs.env_classes"


def register_games() -> None:
    """Register the rule books that come with agym."""
    for env_id, shipped in SHIPPED.items():
        name = shipped.rules.partition(":")[2]
        gymnasium.register(
            env_id,
            entry_point=f"{HERE}:{name}Env",
            vector_entry_point=f"{HERE}:{name}VectorEnv",
            max_episode_steps=shipped.max_episode_steps,
            reward_threshold=shipped.reward_threshold,
        )
