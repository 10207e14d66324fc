"""Environments whose steps take no time, or a given time, so that the rest is the runner's."""

from __future__ import annotations

import time
from itertools import repeat
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from benchmarks.measuring.waiting_envs import ACTIONS, OBSERVATIONS, Observation

# Loop iterations for measuring the loop's speed, and how often that is repeated.
CALIBRATION, TRIES = 20_000, 5


class BusyEnv(gymnasium.Env[Observation, int]):
    """Keeps its core busy in every step.

    Args:
        turns: Iterations of an empty loop per step. Unlike watching a clock, counting takes no
            longer while another process has the core.
    """

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, turns: int = 0) -> None:
        self._turns = turns
        self._observation = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        return self._observation, {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        for _ in repeat(None, self._turns):
            pass
        return self._observation, 0.0, False, False, {}


class NullEnv(BusyEnv):
    """Does nothing in a step."""

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        return self._observation, 0.0, False, False, {}


class StillEnv(NullEnv):
    """Renders a constant picture of CartPole's size."""

    def __init__(self) -> None:
        super().__init__()
        self.render_mode = "rgb_array"
        self.picture = np.zeros((400, 600, 3), np.uint8)

    def render(self) -> np.ndarray[Any, Any]:
        return self.picture


def turns_for(seconds: float) -> int:
    """Return about how many loop iterations take ``seconds`` on this machine."""
    best = float("inf")
    for _ in range(TRIES):
        started = time.perf_counter()
        for _ in repeat(None, CALIBRATION):
            pass
        best = min(best, time.perf_counter() - started)
    return round(seconds * CALIBRATION / best)


def probe(env_id: str, entry_point: str, **kwargs: Any) -> EnvSpec:
    """Return the spec of an environment that is not registered and has no wrappers."""
    return EnvSpec(
        env_id, entry_point=entry_point, kwargs=kwargs,
        disable_env_checker=True, order_enforce=False,
    )  # fmt: skip


def busy_spec(turns: int) -> EnvSpec:
    """Return the spec of an environment with ``turns`` loop iterations per step; 0 does nothing."""
    return probe("Busy-v0", f"{__name__}:BusyEnv", turns=turns) if turns else PROBES["Null-v0"]


# Ids that can be measured besides those registered with Gymnasium.
PROBES = {
    spec.id: spec
    for spec in (
        probe("Null-v0", f"{__name__}:NullEnv"),
        probe("Still-v0", f"{__name__}:StillEnv"),
        probe("Waiting1ms-v0", "benchmarks.measuring.waiting_envs:SleepingEnv", delay=0.001),
        probe("Informing-v0", "benchmarks.soak.probes:CounterEnv", informs=True),
    )
}
