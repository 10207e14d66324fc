"""Exact rules of Gymnasium's classic control.

Each line computes in the order of ``gymnasium/envs/classic_control``, and calls NumPy's functions
where the original does. The first ``size`` fields of a state are the original's ``state``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.classic.precision import single
from agym.twins.numpy_functions import (
    GymnasiumRng,
    cos,
    cos_single,
    power,
    power_single,
    sin,
    sin_single,
)


def floats(*names: str) -> list[tuple[str, Any]]:
    """Return fields of numbers."""
    return [(name, float) for name in names]


class CartPole:
    """``CartPole-v1``."""

    rng, size = GymnasiumRng, 4
    state = np.dtype([*floats("x", "x_dot", "theta", "theta_dot"), ("sutton_barto_reward", bool)])
    parameters = {"sutton_barto_reward": False}
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(state: Any, rng: Any) -> None:
        state.x = rng.uniform(-0.05, 0.05)
        state.x_dot = rng.uniform(-0.05, 0.05)
        state.theta = rng.uniform(-0.05, 0.05)
        state.theta_dot = rng.uniform(-0.05, 0.05)

    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        x, x_dot, theta, theta_dot = state.x, state.x_dot, state.theta, state.theta_dot
        force = 10.0 if action == 1 else -10.0
        costheta, sintheta = cos(theta), sin(theta)
        temp = (force + POLE_MASS_LENGTH * (theta_dot * theta_dot) * sintheta) / TOTAL_MASS
        thetaacc = (9.8 * sintheta - costheta * temp) / (
            0.5 * (4.0 / 3.0 - 0.1 * (costheta * costheta) / TOTAL_MASS)
        )
        xacc = temp - POLE_MASS_LENGTH * thetaacc * costheta / TOTAL_MASS
        state.x = x + 0.02 * x_dot
        state.x_dot = x_dot + 0.02 * xacc
        state.theta = theta + 0.02 * theta_dot
        state.theta_dot = theta_dot + 0.02 * thetaacc
        terminated = (
            state.x < -2.4 or state.x > 2.4 or state.theta < -STEEPEST or state.theta > STEEPEST
        )
        if state.sutton_barto_reward:
            return -1.0 if terminated else 0.0, terminated
        return 1.0, terminated

    def observe(state: Any, out: Any) -> None:
        out[0], out[1], out[2], out[3] = state.x, state.x_dot, state.theta, state.theta_dot


TOTAL_MASS, POLE_MASS_LENGTH = 0.1 + 1.0, 0.1 * 0.5
STEEPEST = 12 * 2 * math.pi / 360


class Acrobot:
    """``Acrobot-v1``."""

    rng, size = GymnasiumRng, 4
    state = np.dtype([*floats("theta1", "theta2", "dtheta1", "dtheta2"), ("stepped", bool)])
    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(state: Any, rng: Any) -> None:
        state.theta1 = single(rng.uniform(-0.1, 0.1))
        state.theta2 = single(rng.uniform(-0.1, 0.1))
        state.dtheta1 = single(rng.uniform(-0.1, 0.1))
        state.dtheta2 = single(rng.uniform(-0.1, 0.1))

    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        t1, t2, u1, u2 = state.theta1, state.theta2, state.dtheta1, state.dtheta2
        torque = action - 1.0
        a1, a2, a3, a4 = derivatives(t1, t2, u1, u2, torque)
        b1, b2, b3, b4 = derivatives(
            t1 + 0.1 * a1, t2 + 0.1 * a2, u1 + 0.1 * a3, u2 + 0.1 * a4, torque
        )
        c1, c2, c3, c4 = derivatives(
            t1 + 0.1 * b1, t2 + 0.1 * b2, u1 + 0.1 * b3, u2 + 0.1 * b4, torque
        )
        d1, d2, d3, d4 = derivatives(
            t1 + 0.2 * c1, t2 + 0.2 * c2, u1 + 0.2 * c3, u2 + 0.2 * c4, torque
        )
        state.theta1 = wrapped(t1 + SIXTH * (a1 + 2 * b1 + 2 * c1 + d1))
        state.theta2 = wrapped(t2 + SIXTH * (a2 + 2 * b2 + 2 * c2 + d2))
        state.dtheta1 = bound(u1 + SIXTH * (a3 + 2 * b3 + 2 * c3 + d3), 4 * math.pi)
        state.dtheta2 = bound(u2 + SIXTH * (a4 + 2 * b4 + 2 * c4 + d4), 9 * math.pi)
        state.stepped = True
        terminated = -cos(state.theta1) - cos(state.theta2 + state.theta1) > 1.0
        return 0.0 if terminated else -1.0, terminated

    def observe(state: Any, out: Any) -> None:
        if state.stepped:
            out[0], out[1] = cos(state.theta1), sin(state.theta1)
            out[2], out[3] = cos(state.theta2), sin(state.theta2)
        else:  # the original begins in single precision
            out[0], out[1] = cos_single(state.theta1), sin_single(state.theta1)
            out[2], out[3] = cos_single(state.theta2), sin_single(state.theta2)
        out[4], out[5] = state.dtheta1, state.dtheta2


SIXTH = 0.2 / 6.0


def derivatives(
    theta1: float, theta2: float, dtheta1: float, dtheta2: float, torque: float
) -> tuple[float, float, float, float]:
    """Return the derivatives of both angles and both velocities."""
    d1 = 1.0 * 0.5**2 + 1.0 * (1.0**2 + 0.5**2 + 2 * 1.0 * 0.5 * cos(theta2)) + 1.0 + 1.0
    d2 = 1.0 * (0.5**2 + 1.0 * 0.5 * cos(theta2)) + 1.0
    phi2 = 1.0 * 0.5 * 9.8 * cos(theta1 + theta2 - math.pi / 2.0)
    phi1 = (
        -1.0 * 1.0 * 0.5 * power(dtheta2, 2.0) * sin(theta2)
        - 2 * 1.0 * 1.0 * 0.5 * dtheta2 * dtheta1 * sin(theta2)
        + (1.0 * 0.5 + 1.0 * 1.0) * 9.8 * cos(theta1 - math.pi / 2)
        + phi2
    )
    ddtheta2 = (
        torque + d2 / d1 * phi1 - 1.0 * 1.0 * 0.5 * power(dtheta1, 2.0) * sin(theta2) - phi2
    ) / (1.0 * 0.5**2 + 1.0 - power(d2, 2.0) / d1)
    ddtheta1 = -(d2 * ddtheta2 + phi1) / d1
    return dtheta1, dtheta2, ddtheta1, ddtheta2


def wrapped(angle: float) -> float:
    """Return an angle within half a turn."""
    while angle > math.pi:
        angle = angle - 2 * math.pi
    while angle < -math.pi:
        angle = angle + 2 * math.pi
    return angle


def bound(value: float, most: float) -> float:
    """Return a value, or the closest one within ``-most`` and ``most``."""
    return min(max(value, -most), most)


class MountainCar:
    """``MountainCar-v0``."""

    rng, size = GymnasiumRng, 2
    state = np.dtype(floats("position", "velocity", "goal_velocity"))
    parameters = {"goal_velocity": 0.0}
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(state: Any, rng: Any) -> None:
        state.position = rng.uniform(-0.6, -0.4)

    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        velocity = state.velocity + ((action - 1) * 0.001 + math.cos(3 * state.position) * -0.0025)
        velocity = bound(velocity, 0.07)
        position = min(max(state.position + velocity, -1.2), 0.6)
        if position == -1.2 and velocity < 0:
            velocity = 0.0
        state.position, state.velocity = position, velocity
        return -1.0, position >= 0.5 and velocity >= state.goal_velocity

    def observe(state: Any, out: Any) -> None:
        out[0], out[1] = state.position, state.velocity


class MountainCarContinuous:
    """``MountainCarContinuous-v0``, which keeps positions and velocities in single precision.

    Before the first step, they are in double precision. A step computes in the action's precision.
    A clipped action becomes a Python float, which adopts the precision of the other operand.
    """

    rng, size = GymnasiumRng, 2
    flags = [("stepped", bool), ("precise", bool)]
    state = np.dtype([*floats("position", "velocity", "goal_velocity"), *flags])
    parameters = {"goal_velocity": 0.0}
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(state: Any, rng: Any) -> None:
        state.position = rng.uniform(-0.6, -0.4)

    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        force = min(max(action[0], -1.0), 1.0)
        position, velocity, stepped = state.position, state.velocity, state.stepped
        clipped, precise = force != action[0], state.precise
        slope = 0.0025 * math.cos(single(3 * position) if stepped else 3 * position)
        push = force * 0.0015 - slope
        if not clipped and not precise:
            push = single(single(force * single(0.0015)) - single(slope))
        rounded = stepped and (clipped or not precise)
        velocity = single(velocity + single(push)) if rounded else velocity + push
        if abs(velocity) > 0.07:  # clipped, too
            velocity, rounded = bound(velocity, 0.07), stepped
        position = single(position + single(velocity)) if rounded else position + velocity
        position = min(max(position, -1.2), 0.6)
        if position == -1.2 and velocity < 0:
            velocity = 0.0
        goal, least = 0.45, state.goal_velocity
        if rounded and velocity != 0.07:  # compared in single precision
            least = single(least)
        terminated = position >= (single(goal) if rounded else goal) and velocity >= least
        reward = (100.0 if terminated else 0.0) - power(action[0], 2.0) * 0.1
        state.position, state.velocity, state.stepped = single(position), single(velocity), True
        return reward, terminated

    def observe(state: Any, out: Any) -> None:
        out[0], out[1] = state.position, state.velocity


class Pendulum:
    """``Pendulum-v1``, which computes with the torque in the precision of the action."""

    rng, size = GymnasiumRng, 2
    state = np.dtype([*floats("theta", "thetadot", "last_u", "g"), ("precise", bool)])
    parameters = {"g": 10.0}
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(state: Any, rng: Any) -> None:
        state.theta = rng.uniform(-math.pi, math.pi)
        state.thetadot = rng.uniform(-1.0, 1.0)
        state.last_u = math.nan

    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        theta, thetadot = state.theta, state.thetadot
        u = state.last_u = min(max(action[0], -2.0), 2.0)
        effort, torque = 0.001 * power(u, 2.0), 3.0 * u
        if not state.precise:
            effort, torque = single(single(0.001) * power_single(u, 2.0)), single(torque)
        normal = ((theta + math.pi) % (2 * math.pi)) - math.pi
        costs = power(normal, 2.0) + 0.1 * power(thetadot, 2.0) + effort
        newthdot = thetadot + (3 * state.g / (2 * 1.0) * sin(theta) + torque) * 0.05
        newthdot = bound(newthdot, 8.0)
        state.theta = theta + newthdot * 0.05
        state.thetadot = newthdot
        return -costs, False

    def observe(state: Any, out: Any) -> None:
        out[0], out[1], out[2] = cos(state.theta), sin(state.theta), state.thetadot
