"""Training loops with vector runners: a rollout, then learning, as in whole programs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

import agym
from agym.core._system.extras import require
from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.workloads import Workload, make_env
from benchmarks.waiting.learner import Learner


@dataclass(frozen=True)
class TrainingWorkload(Workload):
    """Environments to train on.

    Attributes:
        steps: Steps of each environment in a rollout.
        network: Description of the network, for tables.
        small: The network gains nothing from several threads of torch.
    """

    steps: int = 64
    network: str = "a small network"
    small: bool = True

    @property
    def name(self) -> str:
        return f"{super().name}, {self.network}"

    @property
    def factory(self) -> Callable[[], gymnasium.Env[Any, Any]]:
        return partial(make_game if self.spec.namespace == "ALE" else make_env, self.spec)


def make_game(spec: Any) -> gymnasium.Env[Any, Any]:
    """Make an Atari game with the usual preprocessing: four grey pictures of 84 by 84."""
    game = make_env(spec, frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(game, noop_max=30, frame_skip=4), 4)


class Trainer(ABC):
    """A runner in a training loop.

    Attributes:
        stepping: Seconds of the latest iteration in which the caller waited for steps, if known.
    """

    name: str
    stepping = 0.0

    def __init__(self, loop: TrainingWorkload) -> None:
        """Make and reset the environments, and make a learner."""
        self.loop = loop
        self.envs = self._open()
        spaces = self.envs.single_observation_space, self.envs.single_action_space
        self.learner = Learner(*spaces, (loop.steps, loop.num_envs))

    @abstractmethod
    def _open(self) -> Any:
        """Return the environments; ``self.obs`` are their first observations."""

    @abstractmethod
    def iterate(self) -> None:
        """Collect a rollout and learn from it."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments."""


class VectorTrainer(Trainer):
    """A Gymnasium vector environment, stepped and learned from in turns."""

    def _open(self) -> Any:
        envs = self._make([self.loop.factory] * self.loop.num_envs)
        self.obs, _ = envs.reset(seed=0)
        return envs

    @abstractmethod
    def _make(self, factories: list[Any]) -> Any: ...

    def iterate(self) -> None:
        self.stepping = 0.0
        for t in range(self.loop.steps):
            actions = self.learner.act(self.obs, t)
            started = time.perf_counter()
            self.obs, rewards, terminated, truncated, _ = self.envs.step(actions)
            self.stepping += time.perf_counter() - started
            self.learner.note(t, rewards, terminated | truncated)
        self.learner.learn(self.obs)

    def close(self) -> None:
        self.envs.close()


class SyncTrainer(VectorTrainer):
    """Gymnasium's plain loop."""

    name = "SyncVectorEnv"

    def _make(self, factories: list[Any]) -> Any:
        return SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP)


class AsyncTrainer(VectorTrainer):
    """Gymnasium's process for each environment."""

    name = "AsyncVectorEnv"

    def _make(self, factories: list[Any]) -> Any:
        return AsyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP)


class AgymTrainer(VectorTrainer):
    """agym's worker processes with the same API; the caller's thread is not a worker."""

    name = "AgymVectorEnv"

    def _make(self, factories: list[Any]) -> Any:
        return agym.make_vec(factories, backend="process", autoreset="same_step")


class OneGroupTrainer(Trainer):
    """``make_async``: groups that take turns with the learner, here one of all environments."""

    name, groups = "make_async, one group", 1

    def _open(self) -> Any:
        self._runner = new_runner()
        return self._runner.run(self._open_async())

    async def _open_async(self) -> Any:
        loop = self.loop
        made = agym.make_async(
            loop.factory, loop.num_envs, backend="process", autoreset="same_step"
        )
        envs = await made.__aenter__()
        self.obs, _ = await envs.reset(seed=0)
        self._parts = [*zip(envs.split(self.groups), self._ids(envs), strict=True)]
        return envs

    def _ids(self, envs: Any) -> list[Any]:
        return [slice(None)] if self.groups == 1 else [g.env_ids for g in envs.split(self.groups)]

    def iterate(self) -> None:
        self._runner.run(self._iterate())

    async def _iterate(self) -> None:
        learner, steps = self.learner, self.loop.steps
        pending: dict[int, Any] = {}
        for t in range(steps):
            for k, (part, ids) in enumerate(self._parts):
                if t > 0:
                    await self._take(pending[k], t - 1, ids)
                pending[k] = part.step(learner.act(self.obs[ids], t, ids))
        for k, (_, ids) in enumerate(self._parts):
            await self._take(pending[k], steps - 1, ids)
        learner.learn(self.obs)

    async def _take(self, step: Any, t: int, ids: Any) -> None:
        self.obs[ids], rewards, terminated, truncated, _ = await step
        self.learner.note(t, rewards, terminated | truncated, ids)

    def close(self) -> None:
        self._runner.run(self.envs.__aexit__(None, None, None))
        self._runner.close()


class TwoGroupsTrainer(OneGroupTrainer):
    """The same with two groups: the learner acts for one while the other steps."""

    name, groups = "make_async, two groups", 2


TRAINERS: tuple[type[Trainer], ...] = (
    SyncTrainer, AsyncTrainer, AgymTrainer, OneGroupTrainer, TwoGroupsTrainer
)  # fmt: skip
PEERS = (SyncTrainer.name, AsyncTrainer.name)


class TrainerSet:
    """One loop with all runners, in this process with torch and its threads."""

    def __init__(self, loop: TrainingWorkload, threads: int) -> None:
        """Make all runners, and play an iteration with each."""
        require("torch", "sb3").set_num_threads(threads)
        self._trainers = {kind.name: kind(loop) for kind in TRAINERS}
        for trainer in self._trainers.values():
            trainer.iterate()

    def iterate(self, name: str) -> tuple[float, float]:
        """Play an iteration with a runner; return its seconds, and those of the steps in it."""
        started = time.perf_counter()
        self._trainers[name].iterate()
        return time.perf_counter() - started, self._trainers[name].stepping

    def close(self) -> None:
        for trainer in self._trainers.values():
            trainer.close()
