"""PPO's rollouts between two updates, through Gymnasium's and Stable-Baselines3's APIs.

A rollout is a number of steps of all environments; observations, rewards and dones are stored. The
actions are precomputed, because a network costs the same with every runner; with ``ppo:``, the
rollout is Stable-Baselines3's, including the network::

    rollout:CartPole-v1:8    keep(step(given actions)), 2,048 times
    ppo:CartPole-v1:8        PPO(...).collect_rollouts(2,048 steps)
    ppo:ALE/Pong-v5:8        the same with Stable-Baselines3's wrappers for Atari games
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from agym import make_vec
from agym.backends import BackendName
from agym.core._system.extras import require
from benchmarks.measuring.workloads import Workload, make_env
from benchmarks.systems.base import Contest, System
from benchmarks.systems.runners import AgymSB3, GymnasiumAsync, GymnasiumSync, SB3Dummy, SB3Subproc

# Steps of a rollout, and of the warm-up.
STEPS, RUN_IN_STEPS = 2048, 128

# Steps of a rollout whose network sees pictures, which takes ten times as long.
PICTURE_STEPS = 256

# Bytes for observations; of large ones, only the latest steps are kept.
ROOM = 64 * 2**20


@dataclass(frozen=True)
class RolloutWorkload(Contest):
    """Environments of one kind, for rollouts.

    Attributes:
        network: Whether a network chooses the actions.
        wanted: With a network, the factor between ``auto`` and the better of SB3's own.
    """

    network: bool = False
    wanted: float = 1.0

    @property
    def name(self) -> str:
        return f"{'PPO ' if self.network else ''}rollout {super().name}"

    @property
    def factory(self) -> Callable[[], gymnasium.Env[Any, Any]]:
        if self.network and self.spec.namespace == "ALE":
            return partial(make_atari, self.spec)
        return super().factory

    @property
    def systems(self) -> tuple[type[System], ...]:
        return NETWORK_SYSTEMS if self.network else ROLLOUT_SYSTEMS


def make_atari(spec: EnvSpec) -> gymnasium.Env[Any, Any]:
    """Make an Atari game as Stable-Baselines3's ``make_atari_env`` does."""
    wrapper = require("stable_baselines3.common.atari_wrappers", "sb3").AtariWrapper
    wrapped: gymnasium.Env[Any, Any] = wrapper(make_env(spec, frameskip=1))
    return wrapped


class Collects(System):
    """A system whose slices are rollouts, whatever their duration."""

    def run(self, seconds: float) -> float:
        return self._rate(STEPS)

    def run_in(self, seconds: float) -> None:
        self.collect(RUN_IN_STEPS)

    def _rate(self, steps: int) -> float:
        started = time.perf_counter()
        self.collect(steps)
        return steps * self._num_envs / (time.perf_counter() - started)

    @abstractmethod
    def collect(self, steps: int) -> None:
        """Collect a rollout."""


class GymnasiumCollects(Collects):
    """Collects as CleanRL does."""

    def reset(self) -> None:
        self._latest, _ = self._envs.reset(seed=0)

    def collect(self, steps: int) -> None:
        kept, rewards, dones = buffers(self._latest.shape, self._latest.dtype)
        step, actions, latest = self._envs.step, self._actions, self._latest
        for t in range(steps):
            kept[t % len(kept)] = latest
            latest, rewards[t], terminated, truncated, _ = step(next(actions))
            dones[t] = terminated | truncated
        self._latest = latest


class SB3Collects(Collects):
    """Collects as Stable-Baselines3 does, without its network."""

    def reset(self) -> None:
        self._envs.seed(0)
        self._latest = self._envs.reset()

    def collect(self, steps: int) -> None:
        kept, rewards, dones = buffers(self._latest.shape, self._latest.dtype)
        step, actions, latest = self._envs.step, self._actions, self._latest
        for t in range(steps):
            kept[t % len(kept)] = latest
            latest, rewards[t], dones[t], _ = step(next(actions))
        self._latest = latest


@lru_cache(maxsize=1)
def buffers(shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    """Return buffers of a rollout, shared by all systems: ``[T, n, ...]``, and twice ``[T, n]``."""
    rows = min(STEPS, max(1, ROOM // (int(np.prod(shape)) * np.dtype(dtype).itemsize)))
    return np.zeros((rows, *shape), dtype), np.zeros((STEPS, shape[0])), np.zeros((STEPS, shape[0]))


class SyncRollout(GymnasiumCollects, GymnasiumSync):
    """Gymnasium's loop."""


class AsyncRollout(GymnasiumCollects, GymnasiumAsync):
    """Gymnasium's processes."""


class VectorSerial(GymnasiumCollects):
    """agym's Gymnasium API, serially."""

    name = "agym make_vec serial"
    backend: ClassVar[BackendName] = "serial"

    def make(self, work: Workload, workers: int) -> Any:
        count = None if self.backend == "serial" else workers
        return make_vec(work.factory, work.num_envs, backend=self.backend, workers=count)


class VectorProcess(VectorSerial):
    """agym's Gymnasium API with worker processes."""

    name = "agym make_vec process"
    backend = "process"


class DummyRollout(SB3Collects, SB3Dummy):
    """Stable-Baselines3's loop."""


class SubprocRollout(SB3Collects, SB3Subproc):
    """Stable-Baselines3's processes."""


class VecEnvSerial(SB3Collects, AgymSB3):
    """agym's Stable-Baselines3 API, serially."""

    name = "agym sb3 serial"
    backend = "serial"

    def count(self, workers: int) -> int | None:
        return None


class VecEnvProcess(SB3Collects, AgymSB3):
    """agym's Stable-Baselines3 API with worker processes."""


class VecEnvAuto(SB3Collects, AgymSB3):
    """agym's Stable-Baselines3 API choosing the backend, as ``agym.sb3.make_vec_env`` does."""

    name = "agym sb3 auto"

    def make(self, work: Workload, workers: int) -> Any:
        vec_env = require("agym.api.sb3.vec_env", "sb3").AgymVecEnv
        envs = vec_env([work.factory] * work.num_envs, sample=work.factory)
        self.choice = envs.runner.backend
        return envs


class Network(SB3Collects):
    """Collects with Stable-Baselines3's own PPO and network."""

    def reset(self) -> None:
        super().reset()
        require("torch", "sb3").set_num_threads(1)  # the workers need the other cores
        ppo = require("stable_baselines3", "sb3").PPO
        pictures = len(self._envs.observation_space.shape) == 3
        self._steps = PICTURE_STEPS if pictures else STEPS
        self._model = ppo(
            "CnnPolicy" if pictures else "MlpPolicy", self._envs, n_steps=self._steps, device="cpu"
        )
        self._learning = self._model._setup_learn(self._steps)[1]

    def run(self, seconds: float) -> float:
        return self._rate(self._steps)

    def collect(self, steps: int) -> None:
        model = self._model
        model.collect_rollouts(model.env, self._learning, model.rollout_buffer, steps)


class DummyNetwork(Network, SB3Dummy):
    """Stable-Baselines3's loop."""


class SubprocNetwork(Network, SB3Subproc):
    """Stable-Baselines3's processes."""


class VecEnvSerialNetwork(Network, VecEnvSerial):
    """agym's Stable-Baselines3 API, serially."""


class VecEnvProcessNetwork(Network, VecEnvProcess):
    """agym's Stable-Baselines3 API with worker processes."""


class VecEnvAutoNetwork(Network, VecEnvAuto):
    """agym's Stable-Baselines3 API choosing the backend."""


ROLLOUT_SYSTEMS: tuple[type[System], ...] = (
    SyncRollout, AsyncRollout, VectorSerial, VectorProcess,
    DummyRollout, SubprocRollout, VecEnvSerial, VecEnvProcess, VecEnvAuto,
)  # fmt: skip
NETWORK_SYSTEMS: tuple[type[System], ...] = (
    DummyNetwork, SubprocNetwork, VecEnvSerialNetwork, VecEnvProcessNetwork, VecEnvAutoNetwork,
)  # fmt: skip

PPO_ROLLOUTS = (
    RolloutWorkload("CartPole-v1", 8, network=True),
    RolloutWorkload("CartPole-v1", 64, network=True),
    RolloutWorkload("Acrobot-v1", 64, network=True, wanted=1.2),
    RolloutWorkload("ALE/Pong-v5", 8, network=True, wanted=1.2),
)
ROLLOUTS = (
    RolloutWorkload("CartPole-v1", 8),
    RolloutWorkload("CartPole-v1", 64),
    RolloutWorkload("ALE/Pong-v5", 8),
    *PPO_ROLLOUTS,
)
