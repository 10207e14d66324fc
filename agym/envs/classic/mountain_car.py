"""MountainCar-v0 and MountainCarContinuous-v0: rock a weak car out of a valley."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.classic.precision import single
from agym.envs.gymnasium_pictures import gymnasium_picture

GYMNASIUM = "gymnasium.envs.classic_control.mountain_car:MountainCarEnv"
GYMNASIUM_CONTINUOUS = (
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv"
)

LEFT_END, RIGHT_END, FASTEST, GRAVITY = -1.2, 0.6, 0.07, 0.0025
GOAL, FORCE = 0.5, 0.001

# Gymnasium computes the continuous variant in single precision.
LEFT_END_32, RIGHT_END_32, FASTEST_32, GOAL_32, POWER_32 = (
    float(np.float32(value)) for value in (LEFT_END, RIGHT_END, FASTEST, 0.45, 0.0015)
)

LOW, HIGH = (
    np.array([end, speed], np.float32)
    for end, speed in ((LEFT_END, -FASTEST), (RIGHT_END, FASTEST))
)


class MountainCar:
    """Gymnasium's ``MountainCar-v0``.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(MountainCar, 4, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4, 2)

    Action: 0 accelerates to the left, 1 does not, 2 to the right. Observation: position and
    velocity, ``float32[2]``. Reward: -1 per step. The episode ends at the flag, at position 0.5,
    unless the car is slower than ``goal_velocity``.

    From A. W. Moore, "Efficient Memory-Based Learning for Robot Control" (1990), as in
    ``gymnasium/envs/classic_control/mountain_car.py``.
    """

    state = np.dtype([("position", float), ("velocity", float), ("goal_velocity", float)])
    observation_space = spaces.Box(LOW, HIGH, dtype=np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)
    parameters = {"goal_velocity": 0.0}  # noqa: RUF012
    max_episode_steps = 200
    reward_threshold = -110.0
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.position = rng.uniform(-0.6, -0.4)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        position = state.position
        velocity = state.velocity + ((action - 1) * FORCE - math.cos(3.0 * position) * GRAVITY)
        velocity = min(max(velocity, -FASTEST), FASTEST)
        position = min(max(position + velocity, LEFT_END), RIGHT_END)
        if position == LEFT_END and velocity < 0.0:
            velocity = 0.0
        state.position = position
        state.velocity = velocity
        return -1.0, position >= GOAL and velocity >= state.goal_velocity

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.position
        out[1] = state.velocity

    @staticmethod
    def render(state: Any) -> Any:
        drawn = state.position, state.velocity
        return gymnasium_picture(GYMNASIUM, "rgb_array", {"state": drawn})


class MountainCarContinuous(MountainCar):
    """Gymnasium's ``MountainCarContinuous-v0``.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(MountainCarContinuous, 4, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4, 2)

    Action: the force, -1 to 1, ``float32[1]``. Observation: position and velocity, ``float32[2]``.
    Reward: 100 at the flag, at position 0.45, minus a tenth of the squared force.

    As in ``gymnasium/envs/classic_control/continuous_mountain_car.py``, the state has single
    precision. Gymnasium does not round the state of the reset; here it is rounded, too, so that
    every state equals its observation.
    """

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 999
    reward_threshold = 90.0

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.position = single(rng.uniform(-0.6, -0.4))

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        force = action[0]
        pull = single(GRAVITY * math.cos(single(3.0 * state.position)))
        push = single(single(min(max(force, -1.0), 1.0) * POWER_32) - pull)
        velocity = min(max(single(state.velocity + push), -FASTEST_32), FASTEST_32)
        position = single(state.position + velocity)
        position = min(max(position, LEFT_END_32), RIGHT_END_32)
        if position == LEFT_END_32 and velocity < 0.0:
            velocity = 0.0
        state.position = position
        state.velocity = velocity
        at_goal = position >= GOAL_32 and velocity >= single(state.goal_velocity)
        return (100.0 if at_goal else 0.0) - force * force * 0.1, at_goal

    @staticmethod
    def render(state: Any) -> Any:
        drawn = np.array([state.position, state.velocity], np.float32)
        return gymnasium_picture(GYMNASIUM_CONTINUOUS, "rgb_array", {"state": drawn})
