"""The systems that are compared, a small class each: make, step for a while, close.

All get the same factories and actions, give arrays, and reset a finished environment at its
next step, which counts as a step. Stable-Baselines3 knows only a reset within the last step.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from abc import ABC, abstractmethod
from itertools import cycle
from typing import Any, ClassVar

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from agym.bench.extras import how_to_get, installed, require
from agym.bench.results import BARE
from agym.bench.works import Actions, Work
from agym.executors.supervisor import new_loop
from agym.make import make, make_async

# More processes than this for one system are not worth the wait.
MAX_PROCESSES = 64


class System(ABC):
    """One way to run environments; by default around a vector environment of Gymnasium's form.

    Attributes:
        name: Its row in tables.
        process_per_env: Whether each environment costs a process.
        extra: The extra of agym that brings it, and its module, if it is optional.
    """

    name: ClassVar[str]
    process_per_env: ClassVar[bool] = False
    extra: ClassVar[tuple[str, str] | None] = None

    def __init__(self, work: Work, actions: Actions, workers: int) -> None:
        """Make the environments."""
        self._num_envs = work.num_envs
        self._actions = cycle(self.choose(actions))
        self._envs = self.make(work, workers)

    @classmethod
    def why_not(cls, work: Work) -> str | None:
        """Say why it cannot be measured on some work, ``None`` if it can."""
        if cls.extra is not None and not installed(cls.extra[1]):
            return how_to_get(cls.extra[1], cls.extra[0])
        if cls.process_per_env and work.num_envs > MAX_PROCESSES:
            return f"skipped, for it takes a process per environment (over {MAX_PROCESSES})"
        return None

    @abstractmethod
    def make(self, work: Work, workers: int) -> Any:
        """Make what is stepped."""

    def choose(self, actions: Actions) -> list[Any]:
        """The form of actions that it takes."""
        return actions.batches

    def reset(self) -> None:
        """Reset all environments."""
        self._envs.reset(seed=0)

    def step(self, actions: Any) -> None:
        """Step every environment once."""
        self._envs.step(actions)

    def run(self, seconds: float) -> float:
        """Step for so long; gives steps of environments per second."""
        step, actions, batches, elapsed = self.step, self._actions, 0, 0.0
        begun = time.perf_counter()
        while elapsed < seconds:
            step(next(actions))
            batches += 1
            elapsed = time.perf_counter() - begun
        return batches * self._num_envs / elapsed

    def close(self) -> None:
        """Close the environments and end what runs them."""
        self._envs.close()


class Bare(System):
    """A plain loop over one environment: what one core can do."""

    name = BARE
    _over = False

    def make(self, work: Work, workers: int) -> gymnasium.Env[Any, Any]:
        return work.factory()

    def choose(self, actions: Actions) -> list[Any]:
        return actions.rows

    def step(self, actions: Any) -> None:
        env, over = self._envs, self._over
        for action in actions:
            if over:
                env.reset()
                over = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
        self._over = over


class GymnasiumSync(System):
    """Gymnasium's loop over environments."""

    name = "Gymnasium Sync"

    def make(self, work: Work, workers: int) -> Any:
        return SyncVectorEnv([work.factory] * work.num_envs)


class GymnasiumAsync(System):
    """Gymnasium's process per environment."""

    name = "Gymnasium Async"
    process_per_env = True

    def make(self, work: Work, workers: int) -> Any:
        return AsyncVectorEnv([work.factory] * work.num_envs, context=_fork_server())


class SB3Dummy(System):
    """Stable-Baselines3's loop over environments."""

    name = "SB3 Dummy"
    extra = "sb3", "stable_baselines3"

    def make(self, work: Work, workers: int) -> Any:
        vec_env = require("stable_baselines3.common.vec_env", "sb3")
        return vec_env.DummyVecEnv([work.factory] * work.num_envs)

    def reset(self) -> None:
        self._envs.seed(0)
        self._envs.reset()


class SB3Subproc(SB3Dummy):
    """Stable-Baselines3's process per environment."""

    name = "SB3 Subproc"
    process_per_env = True

    def make(self, work: Work, workers: int) -> Any:
        vec_env = require("stable_baselines3.common.vec_env", "sb3")
        return vec_env.SubprocVecEnv([work.factory] * work.num_envs, start_method=_fork_server())


class AgymSerial(System):
    """agym in the caller's thread, by its sync face."""

    name = "agym serial"
    backend = "serial"

    def make(self, work: Work, workers: int) -> Any:
        return make(
            work.factory, work.num_envs, backend=self.backend, output="array",
            autoreset="next_step", workers=None if self.backend == "serial" else workers,
        )  # fmt: skip


class AgymProcess(AgymSerial):
    """agym's worker processes, by its sync face."""

    name = "agym process"
    backend = "process"


class AgymProcessAsync(System):
    """agym's worker processes, by its async face; the loop stands still between two runs."""

    name = "agym process async"

    def make(self, work: Work, workers: int) -> Any:
        self._runner = asyncio.Runner(loop_factory=new_loop)
        envs = make_async(work.factory, work.num_envs, backend="process", workers=workers)

        async def open_all() -> None:
            await envs

        self._runner.run(open_all())
        return envs

    def reset(self) -> None:
        self._runner.run(self._envs.reset(seed=0))

    def run(self, seconds: float) -> float:
        return self._runner.run(self._run(seconds))

    async def _run(self, seconds: float) -> float:
        envs, actions, batches, elapsed = self._envs, self._actions, 0, 0.0
        begun = time.perf_counter()
        while elapsed < seconds:
            await envs.step(next(actions))
            batches += 1
            elapsed = time.perf_counter() - begun
        return batches * self._num_envs / elapsed

    def close(self) -> None:
        self._runner.run(self._envs.aclose())
        self._runner.close()


SYSTEMS: tuple[type[System], ...] = (
    Bare, GymnasiumSync, GymnasiumAsync, SB3Dummy, SB3Subproc,
    AgymSerial, AgymProcess, AgymProcessAsync,
)  # fmt: skip


def _fork_server() -> str:
    """The start method for processes per environment: what they import is imported once.

    It changes how long they take to start, which is not measured, and not how they step.
    """
    modules = ["__main__", "gymnasium.vector.async_vector_env"]
    if installed("stable_baselines3"):
        modules.append("stable_baselines3.common.vec_env.subproc_vec_env")
    multiprocessing.set_forkserver_preload(modules)
    return "forkserver"
