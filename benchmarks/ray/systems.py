"""Baselines for ``backend="ray"``: hand-written loops over Ray actors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from agym.core._system.extras import require
from benchmarks.measuring.workloads import Workload
from benchmarks.systems.base import Contest, System
from benchmarks.systems.runners import Agym, AgymProcess

# A machine cannot hold many more processes; the cost per actor does not depend on their number.
MAX_ACTORS = 32


class LoopActor:
    """The usual actor: a list of environments, a loop over them, arrays as results."""

    def __init__(self, factories: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        self._envs = [factory() for factory in factories]
        self._over = [False] * len(factories)

    def reset(self, seed: int) -> Any:
        return np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self._envs)])

    def step(self, actions: Any) -> Any:
        """Step all environments, or reset those whose episode is over."""
        observations, terminated, truncated = [], [], []
        rewards: list[Any] = []
        reward: Any
        for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            if self._over[i]:
                observation, reward, ended, cut = env.reset()[0], 0.0, False, False
            else:
                observation, reward, ended, cut, _ = env.step(action)
            self._over[i] = ended or cut
            observations.append(observation)
            rewards.append(reward)
            terminated.append(ended)
            truncated.append(cut)
        flags = np.array(terminated), np.array(truncated)
        return np.stack(observations), np.array(rewards), *flags


class RayLoop(System):
    """A hand-written loop: actors with a share of the environments each, and ``ray.get``."""

    name = "Ray actor loop"
    extra = "ray", "ray"

    def make(self, work: Workload, workers: int) -> Any:
        self._ray = require("ray", "ray")
        self._parts = self.deal(work.num_envs, workers)
        actor_class = self._ray.remote(LoopActor)
        actors = [actor_class.remote([work.factory] * len(part)) for part in self._parts]
        self._num_envs = sum(map(len, self._parts))
        return actors

    def deal(self, num_envs: int, workers: int) -> list[range]:
        bounds = [num_envs * k // workers for k in range(workers + 1)]
        return [range(*bounds[k : k + 2]) for k in range(workers)]

    def reset(self) -> None:
        self._ray.get([actor.reset.remote(0) for actor in self._envs])

    def step(self, actions: Any) -> None:
        parts = zip(self._envs, self._parts, strict=True)
        asked = [actor.step.remote(actions[part.start : part.stop]) for actor, part in parts]
        columns = zip(*self._ray.get(asked), strict=True)
        _ = [np.concatenate(column) for column in columns]

    def close(self) -> None:
        for actor in self._envs:
            self._ray.kill(actor)


class RayActorEach(RayLoop):
    """A hand-written loop with an actor per environment, for as many as a machine can hold."""

    name = f"Ray actor per env, {MAX_ACTORS} of them"

    def deal(self, num_envs: int, workers: int) -> list[range]:
        return [range(i, i + 1) for i in range(min(num_envs, MAX_ACTORS))]


class AgymRay(Agym):
    """agym's Ray backend."""

    name = "agym ray"
    backend = "ray"
    extra = "ray", "ray"


class LoopsWorkload(Contest):
    """agym against hand-written loops."""

    @property
    def systems(self) -> Sequence[type[System]]:
        return RayActorEach, RayLoop, AgymRay


class LocalWorkload(Contest):
    """agym's Ray backend against its worker processes."""

    @property
    def systems(self) -> Sequence[type[System]]:
        return AgymProcess, AgymRay
