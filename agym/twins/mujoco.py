"""Twins of Gymnasium's MuJoCo environments, version 5.

The rewards, observations and infos are those of ``gymnasium/envs/mujoco``, computed for all
environments in the same order of operations, so that they are equal in every bit.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar

import mujoco
import numpy as np

from agym.core.protocol.typing import Array
from agym.twins.engine import Advanced, Columns, Rows
from agym.twins.mujoco_batch import Mujoco


def norm(vectors: Array) -> Any:
    """Return the lengths of vectors; as ``np.linalg.norm`` of each, by the dot product of BLAS."""
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)))


def squares(rows: Array) -> Array:
    """Return the sum of squares of each row."""
    return np.asarray(np.square(rows).reshape(len(rows), -1).sum(1))


def total(columns: Columns) -> Array:
    """Add columns, without a 0 that would change the sign of another."""
    return reduce(np.add, columns.values())


def power(values: Array, exponent: float) -> Array:
    """Return powers of numbers, each by the C library; ``values**2`` multiplies instead."""
    return np.power(values, np.full_like(values, exponent))


class Walking(Mujoco):
    """Environments whose reward is their speed: ``HalfCheetah-v5`` and others.

    Attributes:
        axes: The number of axes along which they move, whose positions are not observed.
    """

    axes: ClassVar[int] = 1
    observed: ClassVar[tuple[str, ...]] = ()

    def place(self) -> Any:
        return self.qpos[:, : self.axes].copy()

    def healthy(self, rows: Rows) -> Array | None:
        """Return which environments go on; ``None`` if all do, always."""
        return None

    def costs(self, rows: Rows, actions: Array) -> Columns:
        return {"reward_ctrl": -(self.original._ctrl_cost_weight * squares(actions))}

    def velocities(self, rows: Rows) -> Array:
        return self.qvel[rows]

    def observe(self, rows: Rows) -> Array:
        skipped = self.axes * self.original._exclude_current_positions_from_observation
        parts = [self.qpos[rows, skipped:], self.velocities(rows)]
        for name in self.observed:
            if getattr(self.original, f"_include_{name}_in_observation") is True:
                first = 6 if name == "qfrc_actuator" else 1
                parts.append(getattr(self, name)[rows, first:].reshape(len(parts[0]), -1))
        return np.concatenate(parts, axis=1)

    def score(self, rows: Rows, actions: Array, before: Any) -> Advanced:
        env, healthy = self.original, self.healthy(rows)
        moved = ((self.place()[rows] - before[rows]) / env.dt).T
        velocity = dict(zip(("x_velocity", "y_velocity"), moved, strict=False))
        gains = {"reward_forward": env._forward_reward_weight * velocity["x_velocity"]}
        terminated: Any = False
        if healthy is not None:
            gains["reward_survive"] = healthy * env._healthy_reward
            terminated = ~healthy & env._terminate_when_unhealthy
        costs = self.costs(rows, actions)
        rewards = total(gains) + total(costs)
        return Advanced(rewards, terminated, {**self.infos(rows), **velocity, **gains, **costs})

    def infos(self, rows: Rows) -> Columns:
        place = self.qpos[rows, : self.axes].copy()
        infos = dict(zip(("x_position", "y_position"), place.T, strict=False))
        return infos if self.axes == 1 else {**infos, "distance_from_origin": norm(place)}


class HalfCheetah(Walking):
    """``HalfCheetah-v5``."""

    normal = True


class Walker2d(Walking):
    """``Walker2d-v5``."""

    def velocities(self, rows: Rows) -> Any:
        return np.clip(self.qvel[rows], -10, 10)

    def healthy(self, rows: Rows) -> Array:
        env, (_, z, angle) = self.original, self.qpos[rows, :3].T
        (low, high), (least, most) = env._healthy_z_range, env._healthy_angle_range
        return (low < z) & (z < high) & (least < angle) & (angle < most)

    def infos(self, rows: Rows) -> Columns:
        height = self.qpos[rows, 1] - self.original.init_qpos[1]
        return {**super().infos(rows), "z_distance_from_origin": height}


class Hopper(Walker2d):
    """``Hopper-v5``."""

    def healthy(self, rows: Rows) -> Array:
        low, high = self.original._healthy_state_range
        state = np.concatenate((self.qpos[rows, 2:], self.qvel[rows]), axis=1)
        return super().healthy(rows) & ((low < state) & (state < high)).all(1)


class Swimmer(Walking):
    """``Swimmer-v5``."""

    axes = 2


class Touching(Walking):
    """Environments that observe contact forces.

    Gymnasium computes them from the data that the last stage of the integrator leaves, which only
    a persistent batch keeps.

    Attributes:
        ncon: The number of contacts of each environment.
        cfrc_ext: The forces on the bodies of each environment.
    """

    ncon: Array
    axes = 2
    persistent = True
    observed: ClassVar[tuple[str, ...]] = ("cfrc_ext",)

    def __init__(self, original: Any, num_envs: int, random: Any) -> None:
        super().__init__(original, num_envs, random)
        self._data = mujoco.MjData(original.model)
        self.cfrc_ext = np.zeros((num_envs, *self._data.cfrc_ext.shape))

    def begin(self, rows: Rows) -> None:
        super().begin(rows)
        self.cfrc_ext[rows] = 0.0

    def advance(self, rows: Rows, actions: Array) -> Advanced:
        before = self.place()
        self.step(rows, actions)
        model, ids = self.original.model, np.arange(self.num_envs)[rows]
        self.cfrc_ext[rows] = 0.0  # only contacts and equality constraints exert forces
        for i in ids[(self.ncon[rows] > 0) | (model.neq > 0)].tolist():
            self.batch.get_data(i, self._data)
            mujoco.mj_rnePostConstraint(model, self._data)
            self.cfrc_ext[i] = self._data.cfrc_ext
        self.cfrc_ext[rows] = self.clipped(self.cfrc_ext[rows])
        return self.score(rows, actions, before)

    def clipped(self, forces: Array) -> Array:
        return forces

    @property
    def columns(self) -> list[Array]:
        return [*super().columns, self.cfrc_ext]


class Ant(Touching):
    """``Ant-v5``."""

    fields = ("ncon", "xpos")
    normal = True

    def place(self) -> Any:
        body = self.original.data.body(self.original._main_body).id
        return self.xpos[:, body, :2].copy()

    def clipped(self, forces: Array) -> Array:
        return np.clip(forces, *self.original._contact_force_range)

    def healthy(self, rows: Rows) -> Array:
        z, (low, high) = self.qpos[rows, 2], self.original._healthy_z_range
        finite = np.isfinite(self.qpos[rows]).all(1) & np.isfinite(self.qvel[rows]).all(1)
        return finite & (low <= z) & (z <= high)

    def costs(self, rows: Rows, actions: Array) -> Columns:
        contact = self.original._contact_cost_weight * squares(self.cfrc_ext[rows])
        return {**super().costs(rows, actions), "reward_contact": -contact}


class Humanoid(Touching):
    """``Humanoid-v5``."""

    fields = ("ncon", "cinert", "cvel", "qfrc_actuator", "xipos", "ten_length", "ten_velocity")
    observed = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")

    def place(self) -> Any:
        mass = self.original.model.body_mass
        return (np.einsum("b,nbj->nj", mass, self.xipos) / mass.sum())[:, :2]

    def healthy(self, rows: Rows) -> Array:
        z, (low, high) = self.qpos[rows, 2], self.original._healthy_z_range
        return (low < z) & (z < high)

    def costs(self, rows: Rows, actions: Array) -> Columns:
        contact = self.original._contact_cost_weight * squares(self.cfrc_ext[rows])
        contact = np.clip(contact, *self.original._contact_cost_range)
        return {**super().costs(rows, self.ctrl[rows]), "reward_contact": -contact}

    def infos(self, rows: Rows) -> Columns:
        tendons = {
            "tendon_length": self.ten_length[rows].copy(),
            "tendon_velocity": self.ten_velocity[rows].copy(),
        }
        return {**super().infos(rows), **tendons}


class HumanoidStandup(Humanoid):
    """``HumanoidStandup-v5``."""

    def place(self) -> Any:
        return None

    def score(self, rows: Rows, actions: Array, before: Any) -> Advanced:
        env = self.original
        up = (self.qpos[rows, 2] - 0) / env.model.opt.timestep
        control = env._ctrl_cost_weight * squares(self.ctrl[rows])
        impact = env._impact_cost_weight * squares(self.cfrc_ext[rows])
        impact = np.clip(impact, *env._impact_cost_range)
        terms = {"reward_linup": up, "reward_quadctrl": -control, "reward_impact": -impact}
        return Advanced(total(terms) + 1, False, {**self.infos(rows), **terms})

    def infos(self, rows: Rows) -> Columns:
        infos = super().infos(rows)
        del infos["distance_from_origin"]
        height = self.qpos[rows, 2] - self.original.init_qpos[2]
        return {**infos, "z_distance_from_origin": height}


class Reacher(Mujoco):
    """``Reacher-v5``."""

    fields = ("xpos",)

    def draw(self, random: np.random.Generator) -> tuple[Array, Array]:
        env = self.original
        qpos = random.uniform(-0.1, 0.1, env.model.nq) + env.init_qpos
        goal = np.array([1.0, 1.0])
        while np.linalg.norm(goal) >= 0.2:
            goal = random.uniform(-0.2, 0.2, 2)
        qpos[-2:] = goal
        qvel = env.init_qvel + random.uniform(-0.005, 0.005, env.model.nv)
        qvel[-2:] = 0
        return qpos, qvel

    def between(self, rows: Rows, first: str, second: str) -> Array:
        """Return the vectors from the second body to the first."""
        a, b = (self.original.model.body(name).id for name in (first, second))
        return self.xpos[rows, a] - self.xpos[rows, b]

    def observe(self, rows: Rows) -> Array:
        angles, distance = self.qpos[rows, :2], self.between(rows, "fingertip", "target")
        return np.concatenate(
            (
                np.cos(angles), np.sin(angles), self.qpos[rows, 2:], self.qvel[rows, :2],
                distance[:, :2],
            ),
            axis=1,
        )  # fmt: skip

    def score(self, rows: Rows, actions: Array, before: Any) -> Advanced:
        env = self.original
        distance = -norm(self.between(rows, "fingertip", "target")) * env._reward_dist_weight
        control = -squares(actions) * env._reward_control_weight
        return Advanced(
            distance + control, False, {"reward_dist": distance, "reward_ctrl": control}
        )


class Pusher(Reacher):
    """``Pusher-v5``."""

    def draw(self, random: np.random.Generator) -> tuple[Array, Array]:
        env = self.original
        qpos, place = env.init_qpos.copy(), np.zeros(2)
        while np.linalg.norm(place) <= 0.17:
            place = np.concatenate((random.uniform(-0.3, 0, 1), random.uniform(-0.2, 0.2, 1)))
        qpos[-4:-2], qpos[-2:] = place, 0
        qvel = env.init_qvel + random.uniform(-0.005, 0.005, env.model.nv)
        qvel[-4:] = 0
        return qpos, qvel

    def observe(self, rows: Rows) -> Array:
        bodies = [self.original.model.body(name).id for name in ("tips_arm", "object", "goal")]
        places = [self.xpos[rows, body] for body in bodies]
        return np.concatenate((self.qpos[rows, :7], self.qvel[rows, :7], *places), axis=1)

    def score(self, rows: Rows, actions: Array, before: Any) -> Advanced:
        env = self.original
        near = -norm(self.between(rows, "object", "tips_arm")) * env._reward_near_weight
        distance = -norm(self.between(rows, "object", "goal")) * env._reward_dist_weight
        control = -squares(actions) * env._reward_control_weight
        infos = {"reward_dist": distance, "reward_ctrl": control, "reward_near": near}
        return Advanced(distance + control + near, False, infos)


class InvertedPendulum(Mujoco):
    """``InvertedPendulum-v5``."""

    def observe(self, rows: Rows) -> Array:
        return np.concatenate((self.qpos[rows], self.qvel[rows]), axis=1)

    def score(self, rows: Rows, actions: Array, before: Any) -> Advanced:
        observations = self.observe(rows)
        terminated = ~np.isfinite(observations).all(1) | (np.abs(observations[:, 1]) > 0.2)
        rewards = (~terminated).astype(int)
        return Advanced(rewards, terminated, {"reward_survive": rewards})


class InvertedDoublePendulum(Mujoco):
    """``InvertedDoublePendulum-v5``."""

    fields = ("site_xpos", "qfrc_constraint")
    normal = True

    def observe(self, rows: Rows) -> Array:
        angles = self.qpos[rows, 1:]
        return np.concatenate(
            (
                self.qpos[rows, :1], np.sin(angles), np.cos(angles),
                np.clip(self.qvel[rows], -10, 10),
                np.clip(self.qfrc_constraint[rows], -10, 10)[:, :1],
            ),
            axis=1,
        )  # fmt: skip

    def score(self, rows: Rows, actions: Array, before: Any) -> Advanced:
        (x, _, y), (_, v1, v2) = self.site_xpos[rows, 0].T, self.qvel[rows, :3].T
        terminated = y <= 1
        distance = 0.01 * power(x, 2) + power(y - 2, 2)
        velocity = 1e-3 * power(v1, 2) + 5e-3 * power(v2, 2)
        bonus = self.original._healthy_reward * (~terminated).astype(int)
        infos = {
            "reward_survive": bonus, "distance_penalty": -distance, "velocity_penalty": -velocity,
        }  # fmt: skip
        return Advanced(bonus - distance - velocity, terminated, infos)
