"""Engines of rule books, and other systems that run the same games."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from agym.api.options.environments import find_spec
from agym.core._system.extras import how_to_get, installed, require
from benchmarks.measuring.workloads import ACTION_BATCHES, Actions, Workload, make_env
from benchmarks.systems.base import System

ALE_ID = "ALE/Pong-v5"

# Number of actions of ALE's Pong.
BUTTONS = 6

# Maximum number of ALE's environments, because making them is slow.
MAX_ALE = 256


class Engine(System):
    """A batch of agym's games, played by one of its engines."""

    engine: ClassVar[str]

    def make(self, work: Workload, workers: int) -> Any:
        return gymnasium.make_vec(
            work.env_id, work.num_envs, engine=self.engine, copy=False,
            vectorization_mode="vector_entry_point",
        )  # fmt: skip


class Python(Engine):
    """The rules as they are written, one game after the other."""

    name = "python"
    engine = "python"


class Compiled(Engine):
    """The rules, compiled."""

    name = "compiled, 1 core"
    engine = "compiled"
    extra = ("vectorize", "numba")


class CompiledCopies(Compiled):
    """The compiled rules with new arrays for each step, which is the default."""

    name = "compiled, new arrays"

    def make(self, work: Workload, workers: int) -> Any:
        return gymnasium.make_vec(
            work.env_id, work.num_envs, engine=self.engine, vectorization_mode="vector_entry_point"
        )


class Kernel(Compiled):
    """The compiled loops alone, without a VectorEnv around them."""

    name = "compiled, loops alone"

    def reset(self) -> None:
        super().reset()
        self._loops = self._envs.unwrapped.loops
        self._out = self._loops.outputs()

    def step(self, actions: Any) -> None:
        self._loops.play(actions)
        self._loops.show(self._out)

    def choose(self, actions: Actions) -> list[Any]:
        return [
            np.asarray(batch, np.float64 if batch.dtype.kind == "f" else np.int64)
            for batch in actions.batches
        ]


class Parallel(Engine):
    """The compiled rules on all cores."""

    name = "compiled, all cores"
    engine = "parallel"
    extra = ("vectorize", "numba")


class Cuda(Engine):
    """The compiled rules on a CUDA device, where the results stay."""

    name = "cuda"
    engine = "cuda"
    extra = ("vectorize", "numba")

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        reason = super().why_not(work)
        if reason is None and not require("numba.cuda", "vectorize").is_available():
            reason = "there is no NVIDIA GPU with its driver"
        return reason


class EnvPool(System):
    """EnvPool's C++, with a thread per core, on Gymnasium's environment of the same name."""

    name = "EnvPool"

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        return None if installed("envpool") else how_to_get("envpool", "envpool")

    def make(self, work: Workload, workers: int) -> Any:
        envpool = require("envpool", "envpool")
        with warnings.catch_warnings(action="ignore"):  # of its spaces
            return envpool.make_gymnasium(
                work.env_id.removeprefix("agym/"), num_envs=work.num_envs, num_threads=workers
            )

    def reset(self) -> None:
        self._envs.reset()


class Sync(System):
    """Gymnasium's SyncVectorEnv over its own environments."""

    name = "SyncVectorEnv"

    def make(self, work: Workload, workers: int) -> Any:
        return gymnasium.make_vec(
            work.env_id.removeprefix("agym/"), work.num_envs, vectorization_mode="sync"
        )


class AlePong(System):
    """One environment for any number of games: its cost does not depend on the number."""

    name = ALE_ID
    extra = ("atari", "ale_py")
    _over = False

    def make(self, work: Workload, workers: int) -> Any:
        self._num_envs = 1
        return make_env(find_spec(ALE_ID))

    def choose(self, actions: Actions) -> list[Any]:
        space = Discrete(BUTTONS, seed=0)
        return [space.sample() for _ in range(ACTION_BATCHES)]

    def step(self, actions: Any) -> None:
        if self._over:
            self._envs.reset()
            self._over = False
        else:
            _, _, terminated, truncated, _ = self._envs.step(actions)
            self._over = terminated or truncated


class AleVector(System):
    """ALE's own batches, with a thread per core; pictures are 84 × 84 and grey."""

    name = "ALE AtariVectorEnv"
    extra = ("atari", "ale_py")

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        if work.num_envs > MAX_ALE:
            return f"skipped, because making them takes long (over {MAX_ALE})"
        return super().why_not(work)

    def make(self, work: Workload, workers: int) -> Any:
        ale = require("ale_py", "atari")
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
        vector = require("ale_py.vector_env", "atari")
        return vector.AtariVectorEnv("pong", num_envs=work.num_envs)

    def choose(self, actions: Actions) -> list[Any]:
        space = MultiDiscrete([BUTTONS] * len(actions.batches[0]), seed=0)
        return [space.sample() for _ in range(ACTION_BATCHES)]


PLAYERS: tuple[type[System], ...] = (
    AlePong, AleVector, Python, Compiled, CompiledCopies, Kernel, Parallel, Cuda,
)  # fmt: skip

RUNNERS: tuple[type[System], ...] = (
    Sync, EnvPool, Compiled, CompiledCopies, Kernel, Parallel, Cuda,
)  # fmt: skip
