"""Pendulum-v1: swing up a pendulum by a torque, and hold it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.classic.precision import single
from agym.envs.gymnasium_pictures import gymnasium_picture

GYMNASIUM = "gymnasium.envs.classic_control.pendulum:PendulumEnv"

FASTEST, STRONGEST, TIME_STEP = 8.0, 2.0, 0.05

TWO_PI, PER_TURN = 2 * math.pi, 1 / (2 * math.pi)
HIGH = np.array([1, 1, FASTEST], np.float32)


class Pendulum:
    """Gymnasium's ``Pendulum-v1``.

    Example:
        >>> import agym
        >>> envs = agym.vectorize(Pendulum, 4, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4, 3)

    Action: the torque, -2 to 2, ``float32[1]``. Observation: cosine and sine of the angle, which is
    0 upright, and the angular velocity, ``float32[3]``. Reward: minus the squares of the angle, of
    the angular velocity (a tenth) and of the torque (a thousandth). ``g`` is the acceleration of
    gravity.

    As in ``gymnasium/envs/classic_control/pendulum.py``.
    """

    # The last torque is only for rendering.
    state = np.dtype([("angle", float), ("spin", float), ("torque", float), ("g", float)])
    observation_space = spaces.Box(-HIGH, HIGH, dtype=np.float32)
    action_space = spaces.Box(-STRONGEST, STRONGEST, (1,), np.float32)
    parameters = {"g": 10.0}  # noqa: RUF012
    max_episode_steps = 200
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.angle = rng.uniform(-math.pi, math.pi)
        state.spin = rng.uniform(-1.0, 1.0)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        angle, spin = state.angle, state.spin
        torque = min(max(action[0], -STRONGEST), STRONGEST)
        off = angle - TWO_PI * math.floor((angle + math.pi) * PER_TURN)
        cost = off * off + 0.1 * (spin * spin) + 0.001 * (torque * torque)
        # Gymnasium multiplies actions in single precision.
        spin += (1.5 * state.g * math.sin(angle) + single(3.0 * torque)) * TIME_STEP
        spin = min(max(spin, -FASTEST), FASTEST)
        state.angle = angle + spin * TIME_STEP
        state.spin = spin
        state.torque = torque
        return -cost, False

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = math.cos(state.angle)
        out[1] = math.sin(state.angle)
        out[2] = state.spin

    @staticmethod
    def render(state: Any) -> Any:
        drawn = {"state": (state.angle, state.spin), "last_u": state.torque or None}
        return gymnasium_picture(GYMNASIUM, "rgb_array", drawn)
