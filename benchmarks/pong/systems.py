"""Engines that play Pong: agym's, and the Arcade Learning Environment's."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
from gymnasium.spaces import Discrete, MultiDiscrete

from agym._system.extras import require
from agym.hosts.factories import find_spec
from benchmarks.measuring.workloads import ACTION_BATCHES, Actions, Workload, make_env
from benchmarks.systems.base import System

ALE_ID = "ALE/Pong-v5"

# Number of actions of ALE's Pong.
BUTTONS = 6

# Maximum number of ALE's environments, which take long to make.
MAX_ALE = 256


class Engine(System):
    """A batch of agym's games, played by one of its engines."""

    engine: ClassVar[str]

    def make(self, work: Workload, workers: int) -> Any:
        return gymnasium.make_vec(
            work.env_id, work.num_envs, engine=self.engine, copy=False,
            vectorization_mode="vector_entry_point",
        )  # fmt: skip


class Scalar(Engine):
    """Plain Python, one game after the other."""

    name = "scalar"
    engine = "scalar"


class Numpy(Engine):
    """NumPy, all games at once."""

    name = "numpy"
    engine = "numpy"


class Compiled(Engine):
    """The plain Python engine, compiled."""

    name = "compiled, 1 core"
    engine = "compiled"
    extra = ("pong", "numba")


class Parallel(Engine):
    """The compiled engine on all cores."""

    name = "compiled, all cores"
    engine = "parallel"
    extra = ("pong", "numba")


class Cuda(Engine):
    """The compiled engine on a CUDA device, where the grids stay."""

    name = "cuda"
    engine = "cuda"
    extra = ("pong", "numba")

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        reason = super().why_not(work)
        if reason is None and not require("numba.cuda", "pong").is_available():
            reason = "there is no NVIDIA card with its driver"
        return reason

    def make(self, work: Workload, workers: int) -> Any:
        envs = super().make(work, workers)
        envs.unwrapped.fetch_cells(False)
        return envs


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
            return f"skipped, for they take long to make (over {MAX_ALE})"
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
    AlePong, AleVector, Scalar, Numpy, Compiled, Parallel, Cuda,
)  # fmt: skip
