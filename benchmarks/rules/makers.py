"""``makers``: the cost that each of agym's functions adds to a step of a rule book's VectorEnv.

All functions make the same games, which step in turns. The last workload is a VectorEnv of NumPy
arrays that returns infos, as JAX suites do.
"""

from __future__ import annotations

from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import agym
from benchmarks.measuring.workloads import Workload
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Settings
from benchmarks.rules.comparison import Extra, run_games, show_games
from benchmarks.systems.base import System

EXAMPLES = """Examples:

python -m benchmarks makers

python -m benchmarks makers --repeats 21 --json makers.json
"""

INFO_ENV = "benchmarks/Infos-v0"
COUNT = 4096


class InfoEnv(VectorEnv[Any, Any, Any]):
    """Adds up actions, and returns four infos in vector form; episodes have 100 steps."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._sums = np.zeros((num_envs, 4), np.float32)
        self._steps = np.arange(num_envs) % 100

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._sums[:] = 0
        return self._sums.copy(), {}

    def step(self, actions: Any) -> Any:
        self._sums += np.asarray(actions)[:, None]
        self._steps += 1
        over = self._steps % 100 == 0
        known = np.ones(self.num_envs, bool)
        infos = {"discount": 1.0 - over, "steps": self._steps.copy(), "lives": over, "mean": known}
        infos |= {f"_{key}": known for key in infos}
        return self._sums.copy(), self._sums[:, 0].astype(float), over, np.zeros_like(over), infos


class Own(System):
    """The VectorEnv alone."""

    name = "gymnasium.make_vec"

    def make(self, work: Workload, workers: int) -> Any:
        return gymnasium.make_vec(work.env_id, work.num_envs)


class Default(System):
    """``agym.make_vec`` by default."""

    name = "agym.make_vec"

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        if work.env_id == INFO_ENV:
            return "agym.make_vec skipped for other VectorEnvs, which need backend='vector'"
        return super().why_not(work)

    def make(self, work: Workload, workers: int) -> Any:
        return agym.make_vec(work.env_id, work.num_envs)


class NativeVec(System):
    """``agym.make_vec`` on its vector backend."""

    name = "agym.make_vec, vector"

    def make(self, work: Workload, workers: int) -> Any:
        return agym.make_vec(work.env_id, work.num_envs, backend="vector")


class NativeArrays(System):
    """``agym.make`` with arrays, on its vector backend."""

    name = "agym.make, vector, arrays"

    def make(self, work: Workload, workers: int) -> Any:
        return agym.make(
            work.env_id, work.num_envs, backend="vector", output="array", autoreset="next_step"
        )


WORKS = (
    Workload("agym/CartPole-v1", 64),
    Workload("agym/CartPole-v1", 1024),
    Workload(INFO_ENV, COUNT),
)
MAKERS = (Own, Default, NativeVec, NativeArrays)
TARGETS = (
    Extra("agym/CartPole-v1 ×64", Default, Own, 15.0),
    Extra("agym/CartPole-v1 ×1024", Default, Own, 40.0),
)


def makers(
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each function.")
    ] = 0.3,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each function.")] = 15,
    json: JsonFile = None,
) -> None:
    """Measure the cost that agym's functions add to a step of a VectorEnv, in turns."""
    check_writable(json)
    # The single environment is only asked for its actions.
    single = "gymnasium.envs.classic_control:CartPoleEnv"
    program: Any = InfoEnv
    gymnasium.register(INFO_ENV, entry_point=single, vector_entry_point=program)
    try:
        report = run_games(WORKS, Settings(seconds, repeats), MAKERS, TARGETS)
    finally:
        gymnasium.registry.pop(INFO_ENV)
    deliver(show_games(report), report.to_json(), json)
