"""Measures one environment for some milliseconds, with random actions.

The duration of a step is its thread's CPU time, so that other programs on a busy machine do not
count. If the thread often yields its core, the environment itself waits, and wall time counts.
"""

from __future__ import annotations

import asyncio
import copy
import time
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium

from agym.core._system.isolation import undisturbed
from agym.core._system.platform import thread_usage
from agym.core.backends.process.worker_process import own_loop
from agym.core.hosts.async_env import AnySpace
from agym.core.hosts.factories import Factory
from agym.core.planning.model import Profile
from agym.core.planning.sampling import Sample, name_of

# Stepping ends after this time, or number of steps; the first round warms up the interpreter.
WARMING_SECONDS, WARMING_STEPS = 0.005, 128
STEPPING_SECONDS, STEPPING_STEPS = 0.015, 384

# If warming up takes this long, it is the measurement.
SLOW_SECONDS = 0.2

# A smaller share of waiting counts as zero.
MIN_WAITING_SHARE = 0.1


def measure(sample: Sample, factory: Factory) -> Profile:
    """Reset and step an environment; return its profile.

    Raises:
        Exception: The environment raised.
    """
    with undisturbed():
        return _measure(sample, factory)


def _measure(sample: Sample, factory: Factory) -> Profile:
    env = sample.env
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    started = time.perf_counter()
    env.reset()
    reset = time.perf_counter() - started
    step = _step(env, space)
    times = sample.construction, reset, step.seconds
    return Profile(name_of(factory), *times, step.waiting, step.infos)


class Steps(NamedTuple):
    """The results of some steps: total seconds, per step, the share of waiting; values per info."""

    took: float
    seconds: float
    waiting: float
    infos: float


class OnLoop:
    """A coroutine environment on a private loop, with the methods of an ordinary environment."""

    def __init__(self, factory: Factory, runner: asyncio.Runner) -> None:
        self._run = runner.run
        self.unwrapped = self._run(_call(factory))
        self.action_space = getattr(self.unwrapped, "action_space", AnySpace())

    def reset(self) -> Any:
        return self._run(self.unwrapped.reset())

    def step(self, action: Any) -> Any:
        return self._run(self.unwrapped.step(action))

    def close(self) -> None:
        self._run(self.unwrapped.close())


async def _call(factory: Factory) -> Any:
    return factory()


def measure_on_loop(factory: Factory) -> Profile:
    """Make a coroutine environment, and measure it on a loop.

    Raises:
        Exception: The environment raised, or has no space from which to sample actions.
    """
    with asyncio.Runner(loop_factory=own_loop) as runner, undisturbed():
        started = time.perf_counter()
        env = OnLoop(factory, runner)
        sample = Sample(env, time.perf_counter() - started, existing=True)  # closed below
        try:
            return replace(_measure(sample, factory), coroutine=True)
        finally:
            env.close()


def _run(env: Any, actions: list[Any], enough: float, most: int, least: int) -> Steps:
    """Step until a limit is reached, in seconds or steps."""
    times: list[float] = []
    values = 0
    resets = 0.0
    computed, yields = thread_usage()
    start = ended = time.perf_counter()
    while len(times) < most and (ended < start + enough or len(times) < least):
        started = time.perf_counter()
        _, _, terminated, truncated, info = env.step(actions[len(times) % len(actions)])
        ended = time.perf_counter()
        times.append(ended - started)
        values += len(info)
        if terminated or truncated:
            env.reset()
            resets += time.perf_counter() - ended
    nanoseconds, yielded = thread_usage()
    count, took = len(times), sum(times) + resets
    computing = min((nanoseconds - computed) / 1e9, took)
    waiting = 1.0 - computing / took
    # If it seldom yielded the core itself, other programs took it: that time does not count.
    if waiting < MIN_WAITING_SHARE or (yields >= 0 and yielded - yields < count / 2):
        return Steps(took, computing / count, 0.0, values / count)
    usual = sorted(times)[: count - count // 32]
    return Steps(took, sum(usual) / len(usual) + resets / count, waiting, values / count)


def _step(env: Any, space: gymnasium.Space[Any]) -> Steps:
    actions = [space.sample() for _ in range(16)]
    steps = _run(env, actions, WARMING_SECONDS, WARMING_STEPS, 1)
    if steps.took < SLOW_SECONDS:
        steps = _run(env, actions, STEPPING_SECONDS, STEPPING_STEPS, 2)
    return steps
