"""The compared runners, a small class each, and the list of all systems."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from agym import make, make_async, plan
from agym.core._system.extras import installed, require
from agym.core.backends.options import SPECS, BackendName
from benchmarks.measuring.computing_envs import PROBES
from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.workloads import Workload
from benchmarks.systems.base import System
from benchmarks.systems.baseline import Bare, BareAtOnce, BareLoop


class GymnasiumSync(System):
    """Gymnasium's loop over environments."""

    name = "Gymnasium Sync"

    def make(self, work: Workload, workers: int) -> Any:
        return SyncVectorEnv([work.factory] * work.num_envs)


class GymnasiumAsync(System):
    """Gymnasium's process per environment."""

    name = "Gymnasium Async"
    process_per_env = True

    def make(self, work: Workload, workers: int) -> Any:
        return AsyncVectorEnv([work.factory] * work.num_envs, context=fork_server())


class SB3Dummy(System):
    """Stable-Baselines3's loop over environments."""

    name = "SB3 Dummy"
    extra = "sb3", "stable_baselines3"

    def make(self, work: Workload, workers: int) -> Any:
        vec_env = require("stable_baselines3.common.vec_env", "sb3")
        return vec_env.DummyVecEnv([work.factory] * work.num_envs)

    def reset(self) -> None:
        self._envs.seed(0)
        self._envs.reset()


class SB3Subproc(SB3Dummy):
    """Stable-Baselines3's process per environment."""

    name = "SB3 Subproc"
    process_per_env = True

    def make(self, work: Workload, workers: int) -> Any:
        vec_env = require("stable_baselines3.common.vec_env", "sb3")
        return vec_env.SubprocVecEnv([work.factory] * work.num_envs, start_method=fork_server())


class AgymSB3(SB3Dummy):
    """agym's worker processes through its Stable-Baselines3 API."""

    name = "agym sb3 process"
    backend: ClassVar[BackendName] = "process"

    def make(self, work: Workload, workers: int) -> Any:
        vec_env = require("agym.api.sb3.vec_env", "sb3").AgymVecEnv
        factories = [work.factory] * work.num_envs
        return vec_env(factories, backend=self.backend, workers=self.count(workers))

    def count(self, workers: int) -> int | None:
        return workers


class AgymSB3OneProcess(AgymSB3):
    """agym's Stable-Baselines3 API with a single worker process."""

    name = "agym sb3 process, 1 worker"

    def count(self, workers: int) -> int | None:
        return 1


class Agym(System):
    """agym's sync API, with arrays."""

    backend: ClassVar[BackendName]
    options: ClassVar[Mapping[str, Any]] = {}

    def make(self, work: Workload, workers: int) -> Any:
        return make(
            work.factory, work.num_envs, backend=self.backend, workers=self.count(workers),
            output="array", autoreset="next_step", **self.options,
        )  # fmt: skip

    def count(self, workers: int) -> int | None:
        return workers


class AgymAuto(Agym):
    """agym choosing the backend and the workers, as its users call it."""

    name = "agym auto"
    backend = "auto"

    def make(self, work: Workload, workers: int) -> Any:
        if work.env_id in PROBES:  # a user's environment, which only a plan may step
            plan(work.factory, work.num_envs)
            env: Any = work.factory
        else:
            env = work.spec
        envs = make(env, work.num_envs, output="array", autoreset="next_step")
        workers = len(envs.stats().workers)
        self.choice = (
            envs.backend if envs.backend in ("serial", "twin") else f"{envs.backend} ×{workers}"
        )
        return envs

    def count(self, workers: int) -> int | None:
        return None


class AgymOther(Agym):
    """agym with the choice of ``backend="auto"`` in another checkout of agym."""

    name = "agym, the other auto"
    checkout: ClassVar[Path]

    def make(self, work: Workload, workers: int) -> Any:
        asked = subprocess.run(
            [sys.executable, "-c", ASK, work.env_id, str(work.num_envs)], cwd=self.checkout,
            env={**os.environ, "PYTHONPATH": str(self.checkout)}, text=True, check=True,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self.choice = asked.stdout.splitlines()[-1]
        backend, _, count = self.choice.partition(" ×")
        spec = SPECS[backend](workers=int(count) if count else None)
        return make(
            work.factory, work.num_envs, backend=spec, output="array", autoreset="next_step"
        )


# Makes the choice in a process with the other checkout, and prints it.
ASK = """
import sys
from benchmarks.measuring.workloads import Workload
from benchmarks.systems.runners import AgymAuto
auto = AgymAuto.__new__(AgymAuto)
auto.make(Workload(sys.argv[1], int(sys.argv[2])), 2).close()
print(auto.choice)
"""


class AgymSerial(Agym):
    """agym in the caller's thread."""

    name = "agym serial"
    backend = "serial"

    def count(self, workers: int) -> int | None:
        return None


class AgymProcess(Agym):
    """agym's worker processes."""

    name = "agym process"
    backend = "process"


class AgymOneProcess(AgymProcess):
    """agym with a single worker process."""

    name = "agym process, 1 worker"

    def count(self, workers: int) -> int | None:
        return 1


class AgymThread(Agym):
    """agym's threads."""

    name = "agym thread"
    backend = "thread"


class AgymThreads(AgymThread):
    """agym's threads, one per environment."""

    name = "agym thread each"

    def count(self, workers: int) -> int | None:
        return None


class AgymProcessAsync(System):
    """agym's worker processes through its async API; the loop does not run between two calls."""

    name = "agym process async"
    backend: ClassVar[BackendName] = "process"

    def make(self, work: Workload, workers: int) -> Any:
        self._runner = new_runner()
        count = workers if self.backend == "process" else None
        envs = make_async(work.factory, work.num_envs, backend=self.backend, workers=count)

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
        started = time.perf_counter()
        while elapsed < seconds:
            await envs.step(next(actions))
            batches += 1
            elapsed = time.perf_counter() - started
        return batches * self._num_envs / elapsed

    def close(self) -> None:
        self._runner.run(self._envs.aclose())
        self._runner.close()


SYSTEMS: tuple[type[System], ...] = (
    Bare, BareLoop, BareAtOnce, GymnasiumSync, GymnasiumAsync, SB3Dummy, SB3Subproc,
    AgymSerial, AgymProcess, AgymProcessAsync,
)  # fmt: skip


def fork_server() -> str:
    """Return the start method for processes per environment, which preloads their imports.

    It affects their start, which is not measured, and not their steps.
    """
    modules = ["__main__", "benchmarks.measuring.workloads", "gymnasium.vector.async_vector_env"]
    if installed("stable_baselines3"):
        modules.append("stable_baselines3.common.vec_env.subproc_vec_env")
    multiprocessing.set_forkserver_preload(modules)
    return "forkserver"
