"""Acrobot-v1: swing up a chain of two links by a torque between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.gymnasium_pictures import gymnasium_picture

GYMNASIUM = "gymnasium.envs.classic_control.acrobot:AcrobotEnv"

# Seconds per step, with its half and its sixth for the Runge-Kutta method.
TIME_STEP, HALF_STEP, SIXTH = 0.2, 0.1, 0.2 / 6.0

# Radians per second.
FASTEST_1, FASTEST_2 = 4 * math.pi, 9 * math.pi

TWO_PI = 2 * math.pi
HIGH = np.array([1, 1, 1, 1, FASTEST_1, FASTEST_2], np.float32)


class Acrobot:
    """Gymnasium's ``Acrobot-v1``.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(Acrobot, 4, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4, 6)

    Action: 0, 1 or 2 for a torque of -1, 0 or 1 between the links. Observation: cosine and sine of
    the first link's angle, and of the second link's angle relative to the first, and both angular
    velocities, ``float32[6]``. Reward: -1 per step, and 0 when the tip is above the line.

    From R. S. Sutton, "Generalization in Reinforcement Learning: Successful Examples Using Sparse
    Coarse Coding" (1996), as in ``gymnasium/envs/classic_control/acrobot.py``.
    """

    state = np.dtype([("angle_1", float), ("angle_2", float), ("spin_1", float), ("spin_2", float)])
    observation_space = spaces.Box(-HIGH, HIGH, dtype=np.float32)
    action_space = spaces.Discrete(3)
    max_episode_steps = 500
    reward_threshold = -100.0
    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.angle_1 = rng.uniform(-0.1, 0.1)
        state.angle_2 = rng.uniform(-0.1, 0.1)
        state.spin_1 = rng.uniform(-0.1, 0.1)
        state.spin_2 = rng.uniform(-0.1, 0.1)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        move(state, action - 1.0)
        above = -math.cos(state.angle_1) - math.cos(state.angle_1 + state.angle_2) > 1.0
        return 0.0 if above else -1.0, above

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = math.cos(state.angle_1)
        out[1] = math.sin(state.angle_1)
        out[2] = math.cos(state.angle_2)
        out[3] = math.sin(state.angle_2)
        out[4] = state.spin_1
        out[5] = state.spin_2

    @staticmethod
    def render(state: Any) -> Any:
        drawn = state.angle_1, state.angle_2, state.spin_1, state.spin_2
        return gymnasium_picture(GYMNASIUM, "rgb_array", {"state": drawn})


def move(state: Any, torque: float) -> None:
    """Move the links by a step, with the fourth-order Runge-Kutta method.

    ``a`` to ``d`` are the four evaluations: accelerations ``a1``, ``a2`` at spins ``u1``, ``u2``,
    and so on.
    """
    angle_1, angle_2, u1, u2 = state.angle_1, state.angle_2, state.spin_1, state.spin_2
    a1, a2 = accelerations(torque, u1, u2, angle_1, angle_2)
    v1, v2 = u1 + HALF_STEP * a1, u2 + HALF_STEP * a2
    b1, b2 = accelerations(torque, v1, v2, angle_1 + HALF_STEP * u1, angle_2 + HALF_STEP * u2)
    w1, w2 = u1 + HALF_STEP * b1, u2 + HALF_STEP * b2
    c1, c2 = accelerations(torque, w1, w2, angle_1 + HALF_STEP * v1, angle_2 + HALF_STEP * v2)
    x1, x2 = u1 + TIME_STEP * c1, u2 + TIME_STEP * c2
    d1, d2 = accelerations(torque, x1, x2, angle_1 + TIME_STEP * w1, angle_2 + TIME_STEP * w2)
    state.angle_1 = wrapped(angle_1 + SIXTH * (u1 + 2.0 * (v1 + w1) + x1))
    state.angle_2 = wrapped(angle_2 + SIXTH * (u2 + 2.0 * (v2 + w2) + x2))
    spin_1 = u1 + SIXTH * (a1 + 2.0 * (b1 + c1) + d1)
    spin_2 = u2 + SIXTH * (a2 + 2.0 * (b2 + c2) + d2)
    state.spin_1 = min(max(spin_1, -FASTEST_1), FASTEST_1)
    state.spin_2 = min(max(spin_2, -FASTEST_2), FASTEST_2)


def accelerations(
    torque: float, spin_1: float, spin_2: float, angle_1: float, angle_2: float
) -> tuple[float, float]:
    """Return the angular accelerations of both links.

    They solve the linear equations ``[[3.5 + cos_2, mixed], [mixed, 1.25]] @ accelerations ==
    [-load_1, load_2]``, whose determinant is ``2.8125 - 0.25 * cos_2 ** 2``. The coefficients are
    Gymnasium's for links of mass, length and moment of inertia 1. This form needs one division
    instead of four.
    """
    sin_1, cos_1 = math.sin(angle_1), math.cos(angle_1)
    sin_2, cos_2 = math.sin(angle_2), math.cos(angle_2)
    mixed = 1.25 + 0.5 * cos_2
    weight_2 = 4.9 * (sin_1 * cos_2 + cos_1 * sin_2)
    load_1 = weight_2 + 14.7 * sin_1 - (0.5 * spin_2 + spin_1) * spin_2 * sin_2
    load_2 = torque - 0.5 * spin_1 * spin_1 * sin_2 - weight_2
    scale = 1.0 / (2.8125 - 0.25 * cos_2 * cos_2)
    return (
        -(1.25 * load_1 + mixed * load_2) * scale,
        ((3.5 + cos_2) * load_2 + mixed * load_1) * scale,
    )


def wrapped(angle: float) -> float:
    """Return an angle between -pi and pi."""
    while angle > math.pi:
        angle -= TWO_PI
    while angle < -math.pi:
        angle += TWO_PI
    return angle
