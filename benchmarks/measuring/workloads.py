"""Workloads: environments of one kind, and the actions that all systems get."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import batch_space, iterate

from agym.api.options.environments import find_spec
from agym.core._system.extras import how_to_get, installed
from agym.errors import UsageError
from benchmarks.measuring.computing_envs import PROBES, busy_spec, turns_for

# Batches of actions, sampled beforehand and reused.
ACTION_BATCHES = 64


@dataclass(frozen=True)
class Workload:
    """Environments of one kind."""

    env_id: str
    num_envs: int

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.env_id} ×{self.num_envs}"

    @property
    def spec(self) -> EnvSpec:
        return PROBES.get(self.env_id) or find_spec(self.env_id)

    @property
    def factory(self) -> Callable[[], gymnasium.Env[Any, Any]]:
        return partial(make_env, self.spec)

    def missing(self) -> str | None:
        """Return how to install the environment's package if it is missing."""
        module, extra = PACKAGES.get(self.env_id, ("gymnasium", ""))
        return None if installed(module) else how_to_get(module, extra)


@dataclass(frozen=True)
class BusyWorkload(Workload):
    """Environments whose steps keep a core busy for ``turns`` iterations of a loop."""

    microseconds: float = 0.0
    turns: int = 0

    @classmethod
    def of(cls, microseconds: float, num_envs: int) -> BusyWorkload:
        """Determine the number of loop iterations on this machine."""
        return cls("Busy-v0", num_envs, microseconds, turns_for(microseconds / 1e6))

    @property
    def name(self) -> str:
        return f"steps of {self.microseconds:g} µs ×{self.num_envs}"

    @property
    def spec(self) -> EnvSpec:
        return busy_spec(self.turns)


WORKLOADS = (
    Workload("CartPole-v1", 8),
    Workload("CartPole-v1", 64),
    Workload("CartPole-v1", 1024),
    Workload("Acrobot-v1", 64),
    Workload("ALE/Pong-v5", 8),
    Workload("ALE/Pong-v5", 16),
    Workload("HumanoidStandup-v5", 16),
)

# Environments that need more than Gymnasium: the module, and agym's extra with it.
PACKAGES = {
    "ALE/Breakout-v5": ("ale_py", "atari"),
    "ALE/Pong-v5": ("ale_py", "atari"),
    "HalfCheetah-v5": ("mujoco", "mujoco"),
    "HumanoidStandup-v5": ("mujoco", "mujoco"),
}


def make_env(spec: EnvSpec, **options: Any) -> gymnasium.Env[Any, Any]:
    """Call ``gymnasium.make`` without the banner that ALE prints for every environment."""
    if spec.namespace == "ALE":
        ale = importlib.import_module("ale_py")
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    return gymnasium.make(spec, **options)


def parse_work(text: str) -> Workload:
    """Parse ``"CartPole-v1:8"``.

    Raises:
        UsageError: The text is not of that form, or the environment does not exist.
    """
    env_id, colon, count = text.rpartition(":")
    if not colon or not count.isdecimal() or int(count) < 1:
        raise UsageError(f"{text!r} is not a workload: write ID:N, such as CartPole-v1:8")
    return check_work(Workload(env_id, int(count)))


def check_work(work: Workload) -> Workload:
    """Return a workload after checking that its environment exists.

    Raises:
        UsageError: The environment does not exist.
    """
    if work.missing() is None:
        _ = work.spec
    return work


@dataclass(frozen=True)
class Actions:
    """The same random actions in both forms that systems take.

    Attributes:
        batches: Arrays with a row per environment, for vector environments.
        rows: The same batches as lists of single actions.
    """

    batches: list[Any]
    rows: list[list[Any]]


def sample_actions(work: Workload) -> Actions:
    """Sample batches of actions from the action space of one environment.

    Raises:
        UsageError: The environment cannot be made.
    """
    try:
        env = work.factory()
    except Exception as error:
        raise UsageError(f"{work.env_id} cannot be made: {error}") from error
    space = batch_space(env.action_space, work.num_envs)
    env.close()
    space.seed(0)
    batches = [space.sample() for _ in range(ACTION_BATCHES)]
    return Actions(batches, [list(iterate(space, batch)) for batch in batches])
