"""Environments that simulate one model of MuJoCo, by ``mujoco.batch`` on several threads."""

from __future__ import annotations

import ctypes
import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from weakref import WeakSet

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from agym.core._system.cpus import available_cores
from agym.core.protocol.typing import Array
from agym.twins.engine import Advanced, Columns, Family, Rows

_running: WeakSet[Mujoco] = WeakSet()


def restart_threads() -> None:
    """Start threads in a forked child, which has none of its parent's."""
    for family in _running:
        parents = family.batch
        # Never freed, because that would wait for the parent's threads.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(parents._b))
        family.start()
        family.batch.state[:] = parents.state


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=restart_threads)


class Mujoco(Family):
    """Environments that simulate one model.

    Attributes:
        fields: The derived fields that the family reads; each is an attribute with a row each.
        persistent: Whether each environment needs an ``MjData`` of its own.
        normal: Whether the noise of velocities is from a normal distribution.
        qpos: Positions of the joints.
        qvel: Velocities of the joints.
        ctrl: The controls.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    persistent: ClassVar[bool] = False
    normal: ClassVar[bool] = False
    qpos: Array
    qvel: Array
    ctrl: Array

    def __getattr__(self, name: str) -> Any:
        """Return the rows of a derived field."""
        if name not in self.fields:
            raise AttributeError(name)
        return self.copies[name]

    def __init__(self, original: Any, num_envs: int, random: Any) -> None:
        super().__init__(original, num_envs, random)
        self.start()
        self.copies = {name: column.copy() for name, column in self.bound.items()}
        _running.add(self)

    def start(self) -> None:
        """Start the threads."""
        threads = self.threads(self.num_envs)
        self.batch = Batch(self.original.model, self.num_envs, threads, self.persistent)
        for name in ("qpos", "qvel", "ctrl"):
            setattr(self, name, self.batch.bind(name))
        self.bound = {name: self.batch.bind(name) for name in self.fields}
        self.blank = self.batch.state[0].copy()

    @staticmethod
    @contextmanager
    def quiet() -> Iterator[None]:
        """Keep MuJoCo from printing warnings, such as those about old models."""
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda message: None)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)

    @staticmethod
    def threads(num_envs: int) -> int:
        """Return the number of threads, of which the caller's is one."""
        return min(available_cores(), num_envs)

    @classmethod
    def how(cls, num_envs: int) -> str:
        threads = cls.threads(num_envs)
        return f"mujoco.batch, {threads} thread{'s' if threads > 1 else ''}"

    def close(self) -> None:
        _running.discard(self)
        self.batch = None

    def read(self, rows: Rows) -> None:
        """Copy the derived fields, which a call for other environments would not keep."""
        for name, column in self.bound.items():
            self.copies[name][rows] = column[rows]

    def begin(self, rows: Rows) -> None:
        ids = np.arange(self.num_envs)[rows]
        self.batch.state[ids] = self.blank  # as ``batch.reset``, which takes longer
        for i in ids.tolist():
            self.qpos[i], self.qvel[i] = self.draw(self.random[i])
        self.batch.forward(ids)
        self.read(rows)

    def draw(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Return the positions and velocities at the beginning of an episode."""
        env, scale = self.original, self.original._reset_noise_scale
        qpos = env.init_qpos + random.uniform(-scale, scale, env.model.nq)
        if self.normal:
            return qpos, env.init_qvel + scale * random.standard_normal(env.model.nv)
        return qpos, env.init_qvel + random.uniform(-scale, scale, env.model.nv)

    def advance(self, rows: Rows, actions: Array) -> Advanced:
        before = self.place()
        self.step(rows, actions)
        return self.score(rows, actions, before)

    def step(self, rows: Rows, actions: Array) -> None:
        """Simulate a step."""
        self.ctrl[rows] = actions
        try:
            self.batch.step(None if isinstance(rows, slice) else rows, self.original.frame_skip)
        except SimulationError as error:
            failed = error.ids.tolist()
            self.failures = {i: RuntimeError(self.batch.error(i)) for i in failed}
        self.read(rows)

    def place(self) -> Any:
        """Return where the environments are before a step."""
        return None

    @abstractmethod
    def score(self, rows: Rows, actions: Array, before: Any) -> Advanced:
        """Return rewards, flags and infos after a step."""

    def infos(self, rows: Rows) -> Columns:
        return {}

    def pose(self, i: int) -> None:
        env = self.original
        self.batch.get_data(i, env.data)
        mujoco.mj_forward(env.model, env.data)

    @property
    def columns(self) -> list[Array]:
        """All arrays with a row for each environment; together, a row each is the state."""
        return [self.batch.state, *self.copies.values()]

    def get_state(self, i: int) -> list[Array]:
        return [column[i].copy() for column in self.columns]

    def set_state(self, i: int, state: list[Array]) -> None:
        for column, row in zip(self.columns, state, strict=True):
            column[i] = row
