"""Measures one environment for some milliseconds, with random actions.

The duration of a step is its thread's CPU time, so that other programs on a busy machine do not
count. Only if the thread often yields its core, the environment itself waits, and wall time counts.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from agym._system.isolation import undisturbed
from agym._system.platform import thread_usage
from agym.backends.process.worker_process import own_loop
from agym.hosts.async_env import AnySpace
from agym.hosts.factories import Factory
from agym.planning.model import Profile
from agym.planning.sampling import Sample, name_of
from agym.protocol.infos.schema import signature_of
from agym.protocol.space_layout import Layout

# Stepping ends after this long, or so many steps; the first time it warms the interpreter up.
WARMING_SECONDS, WARMING_STEPS = 0.005, 128
STEPPING_SECONDS, STEPPING_STEPS = 0.015, 384

# If warming up takes this long, it is the measurement.
SLOW_SECONDS = 0.2

# A smaller share of waiting counts as none.
LEAST_WAITING = 0.1


def measure(sample: Sample, factory: Factory) -> Profile:
    """Reset and step an environment; return its profile.

    Raises:
        Exception: What it raised.
    """
    with undisturbed():
        return _measure(sample, factory)


def _measure(sample: Sample, factory: Factory) -> Profile:
    env = sample.env
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    begun = time.perf_counter()
    observation, _ = env.reset()
    reset = time.perf_counter() - begun
    steps = _step(env, space)
    seconds, waiting, infos = steps.seconds, steps.waiting, steps.infos
    layout = Layout(env.observation_space)
    size = sum(
        int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize
        for leaf in layout.leaves if leaf.dtype is not None
    )  # fmt: skip
    sent = [info for info in infos if info and signature_of(info) is None]
    info_bytes = sum(map(_pickled, sent)) // max(1, len(infos))
    if layout.objects:
        info_bytes += _pickled(observation)
    in_table = sum(1 for info in infos if info and signature_of(info) is not None)
    return Profile(
        name_of(factory), sample.construction, reset, seconds, waiting, size, info_bytes,
        table_infos=in_table / max(1, len(infos)),
    )  # fmt: skip


class OnLoop:
    """A coroutine environment on a loop of its own, with the methods of an ordinary one."""

    def __init__(self, factory: Factory, runner: asyncio.Runner) -> None:
        self._run = runner.run
        self.unwrapped = self._run(_call(factory))
        self.action_space = getattr(self.unwrapped, "action_space", AnySpace())
        self.observation_space = getattr(self.unwrapped, "observation_space", AnySpace())

    def reset(self) -> Any:
        return self._run(self.unwrapped.reset())

    def step(self, action: Any) -> Any:
        return self._run(self.unwrapped.step(action))

    def close(self) -> None:
        self._run(self.unwrapped.close())


async def _call(factory: Factory) -> Any:
    return factory()


def measure_on_loop(factory: Factory) -> Profile:
    """Make a coroutine environment, and measure it on a loop in a thread.

    Raises:
        Exception: What it raised, or that it has no space to sample actions from.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="agym-measure") as pool:
        return pool.submit(_measure_on_loop, factory).result()


def _measure_on_loop(factory: Factory) -> Profile:
    with asyncio.Runner(loop_factory=own_loop) as runner, undisturbed():
        begun = time.perf_counter()
        env = OnLoop(factory, runner)
        sample = Sample(env, time.perf_counter() - begun, existing=True)  # closed here
        try:
            return replace(_measure(sample, factory), coroutine=True)
        finally:
            env.close()


@dataclass
class StepTimes:
    """Measurements of some steps.

    Attributes:
        times: Seconds of each step.
        resets: Seconds of the resets between them.
        computed: Seconds in which this thread computed.
        waits: How often it yielded its core; -1 if unknown.
        infos: The last infos.
    """

    times: list[float]
    resets: float
    computed: float
    waits: int
    infos: list[dict[str, Any]]

    @property
    def waiting(self) -> float:
        """Share of the time that was spent waiting."""
        waiting = 1.0 - self.computed / (sum(self.times) + self.resets)
        # It seldom yielded the core by itself: other programs had it.
        if waiting < LEAST_WAITING or 0 <= self.waits < len(self.times) / 2:
            return 0.0
        return waiting

    @property
    def seconds(self) -> float:
        """Seconds of a step, with its share of the resets."""
        count = len(self.times)
        if not self.waiting:
            # Time that other programs took does not count.
            return min(self.computed, sum(self.times) + self.resets) / count
        usual = sorted(self.times)[: count - count // 32]
        return sum(usual) / len(usual) + self.resets / count


def _run(env: Any, actions: list[Any], enough: float, most: int, least: int) -> StepTimes:
    """Step until a limit is reached, in seconds or steps."""
    times: list[float] = []
    infos: list[dict[str, Any]] = []
    resets = 0.0
    computed, waits = thread_usage()
    start = time.perf_counter()
    end = start + enough
    ended = start
    while len(times) < most and (ended < end or len(times) < least):
        begun = time.perf_counter()
        _, _, terminated, truncated, info = env.step(actions[len(times) % len(actions)])
        ended = time.perf_counter()
        times.append(ended - begun)
        infos.append(info)
        if terminated or truncated:
            env.reset()
            resets += time.perf_counter() - ended
    nanoseconds, waited = thread_usage()
    waits = waited - waits if waits >= 0 else -1
    return StepTimes(times, resets, (nanoseconds - computed) / 1e9, waits, infos[-16:])


def _step(env: Any, space: gymnasium.Space[Any]) -> StepTimes:
    actions = [space.sample() for _ in range(16)]
    steps = _run(env, actions, WARMING_SECONDS, WARMING_STEPS, 1)
    if sum(steps.times) + steps.resets < SLOW_SECONDS:
        steps = _run(env, actions, STEPPING_SECONDS, STEPPING_STEPS, 2)
    return steps


def _pickled(value: Any) -> int:
    try:
        return len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) if value else 0
    except Exception:  # it is sent in another way, which is not cheaper
        return 1000
