"""CartPole-v1: keep a pole upright on a cart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.gymnasium_pictures import gymnasium_picture

GYMNASIUM = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"

# Units are kilogram, metre and second.
GRAVITY, FORCE, TIME_STEP = 9.8, 10.0, 0.02
POLE_MASS, TOTAL_MASS, HALF_LENGTH = 0.1, 1.1, 0.5

# Derived constants of the equations of motion.
PER_MASS = 1.0 / TOTAL_MASS
POLE_MOMENT = POLE_MASS * HALF_LENGTH * PER_MASS
INERTIA, INERTIA_LESS = HALF_LENGTH * 4.0 / 3.0, HALF_LENGTH * POLE_MASS * PER_MASS

# The limits of position and angle; an episode ends beyond them.
FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360

INFINITE = math.inf
HIGH = np.array([2 * FARTHEST, INFINITE, 2 * STEEPEST, INFINITE], np.float32)


class CartPole:
    """Gymnasium's ``CartPole-v1``.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(CartPole, 4, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4, 4)

    Action: 0 pushes the cart to the left, 1 to the right. Observation: position and velocity of the
    cart, angle and angular velocity of the pole, ``float32[4]``. Reward: 1 per step; with
    ``sutton_barto_reward``, 0 per step and -1 for the last.

    The equations are those of R. V. Florian, "Correct equations for the dynamics of the cart-pole
    system" (2007), as in ``gymnasium/envs/classic_control/cartpole.py``.
    """

    state = np.dtype(
        [
            ("position", float), ("velocity", float), ("angle", float), ("spin", float),
            ("sutton_barto_reward", bool),
        ]
    )  # fmt: skip
    observation_space = spaces.Box(-HIGH, HIGH, dtype=np.float32)
    action_space = spaces.Discrete(2)
    parameters = {"sutton_barto_reward": False}  # noqa: RUF012
    max_episode_steps = 500
    reward_threshold = 475.0
    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.position = rng.uniform(-0.05, 0.05)
        state.velocity = rng.uniform(-0.05, 0.05)
        state.angle = rng.uniform(-0.05, 0.05)
        state.spin = rng.uniform(-0.05, 0.05)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        angle, spin = state.angle, state.spin
        cos, sin = math.cos(angle), math.sin(angle)
        push = (2.0 * action - 1.0) * FORCE * PER_MASS + POLE_MOMENT * spin * spin * sin
        turn = (GRAVITY * sin - cos * push) / (INERTIA - INERTIA_LESS * cos * cos)
        acceleration = push - POLE_MOMENT * turn * cos
        position = state.position + TIME_STEP * state.velocity
        angle += TIME_STEP * spin
        state.position = position
        state.velocity += TIME_STEP * acceleration
        state.angle = angle
        state.spin = spin + TIME_STEP * turn
        fallen = abs(position) > FARTHEST or abs(angle) > STEEPEST
        reward = 1.0
        if state.sutton_barto_reward:
            reward = -1.0 if fallen else 0.0
        return reward, fallen

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.position
        out[1] = state.velocity
        out[2] = state.angle
        out[3] = state.spin

    @staticmethod
    def render(state: Any) -> Any:
        drawn = state.position, state.velocity, state.angle, state.spin
        return gymnasium_picture(GYMNASIUM, "rgb_array", {"state": drawn})
