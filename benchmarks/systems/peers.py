"""Runners of other projects, a small class each; they take part if they are installed.

No extra of agym includes them: ``pip install`` them separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agym.core._system.extras import installed, require
from benchmarks.measuring.workloads import Actions, Workload
from benchmarks.systems.base import System
from benchmarks.systems.runners import fork_server

# Seconds for which PufferLib's idle workers keep spinning, on cores that the others need.
PUFFER_SPINS = 0.6


class Peer(System):
    """A runner of another project; ``package`` names its package and its module."""

    package: ClassVar[str]

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        if not installed(cls.package):
            return f"{cls.package} is not installed: pip install {cls.package}"
        return super().why_not(work)


class TianshouDummy(Peer):
    """Tianshou's loop over environments; the caller resets, as its collector does."""

    name = "Tianshou Dummy"
    package = "tianshou"
    runner = "DummyVectorEnv"

    def make(self, work: Workload, workers: int) -> Any:
        venvs = import_module("tianshou.env")
        return getattr(venvs, self.runner)([work.factory] * work.num_envs)

    def reset(self) -> None:
        self._envs.reset(seed=0)

    def step(self, actions: Any) -> None:
        _, _, terminated, truncated, _ = self._envs.step(actions)
        over = np.flatnonzero(terminated | truncated)
        if len(over):
            self._envs.reset(over)


class TianshouShmem(TianshouDummy):
    """Tianshou's process per environment with observations in shared memory."""

    name = "Tianshou Shmem"
    process_per_env = True
    runner = "ShmemVectorEnv"


class TorchRLSerial(Peer):
    """TorchRL's loop over environments."""

    name = "TorchRL Serial"
    package = "torchrl"

    def make(self, work: Workload, workers: int) -> Any:
        return require("torchrl.envs", "torchrl").SerialEnv(work.num_envs, self.creator(work))

    def creator(self, work: Workload) -> Callable[[], Any]:
        return partial(wrap_for_torchrl, work.factory)

    def choose(self, actions: Actions) -> list[Any]:
        as_tensor = require("torch", "torchrl").as_tensor
        return [as_tensor(batch) for batch in actions.batches]

    def reset(self) -> None:
        torch = require("torch", "torchrl")
        torch.set_num_threads(1)  # as in its workers, which need the other cores
        self._envs.set_seed(0)
        self._latest = self._envs.reset()

    def step(self, actions: Any) -> None:
        self._latest["action"] = actions
        _, self._latest = self._envs.step_and_maybe_reset(self._latest)


class TorchRLParallel(TorchRLSerial):
    """TorchRL's process per environment, each of which imports torch."""

    name = "TorchRL Parallel"
    process_per_env = True
    max_processes = 8

    def make(self, work: Workload, workers: int) -> Any:
        return require("torchrl.envs", "torchrl").ParallelEnv(
            work.num_envs, self.creator(work), mp_start_method=fork_server()
        )


def wrap_for_torchrl(factory: Callable[[], gymnasium.Env[Any, Any]]) -> Any:
    """Make an environment wrapped for TorchRL."""
    wrapper = require("torchrl.envs", "torchrl").GymWrapper
    return wrapper(factory(), categorical_action_encoding=True)


class PufferSerial(Peer):
    """PufferLib's loop over environments."""

    name = "PufferLib Serial"
    package = "pufferlib"
    backend = "Serial"

    def make(self, work: Workload, workers: int) -> Any:
        vector = import_module("pufferlib.vector")
        return vector.make(
            partial(wrap_for_puffer, work.factory), num_envs=work.num_envs,
            backend=getattr(vector, self.backend), **self.spread(work, workers),
        )  # fmt: skip

    def spread(self, work: Workload, workers: int) -> dict[str, Any]:
        return {}


class PufferMultiprocessing(PufferSerial):
    """PufferLib's worker processes."""

    name = "PufferLib Multiprocessing"
    backend = "Multiprocessing"

    def run(self, seconds: float) -> float:
        rate = super().run(seconds)
        time.sleep(PUFFER_SPINS)
        return rate

    def spread(self, work: Workload, workers: int) -> dict[str, Any]:
        return {"num_workers": min(workers, work.num_envs)}


def wrap_for_puffer(
    factory: Callable[[], gymnasium.Env[Any, Any]], *, buf: Any = None, seed: int = 0
) -> Any:
    """Make an environment wrapped for PufferLib."""
    emulation = import_module("pufferlib.emulation")
    return emulation.GymnasiumPufferEnv(env_creator=factory, buf=buf, seed=seed)


PEERS: tuple[type[System], ...] = (
    TianshouDummy, TianshouShmem, TorchRLSerial, TorchRLParallel,
    PufferSerial, PufferMultiprocessing,
)  # fmt: skip
