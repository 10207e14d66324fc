"""Makes one environment and measures it, without side effects for the caller.

The environment is stepped for some milliseconds, with random actions, and closed again. The caller
gets a new environment, unaffected by the measurement. The caller's random numbers (``random``,
``numpy.random``) and warnings do not change.

The duration of a step is its thread's CPU time, so that other programs on a busy machine do not
count. If the thread often yields its core, the environment itself waits, and wall time counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agym.core._system.isolation import undisturbed
from agym.core._system.pickling import dumps_by_value
from agym.core._system.platform import thread_usage
from agym.core.backends.process.worker_process import check_platform, own_loop
from agym.core.hosts.async_env import AnySpace
from agym.core.hosts.factories import (
    Factories,
    Factory,
    innermost,
    is_coroutine_env,
    needs_loop,
    plain_factory,
)
from agym.core.planning.model import Profile
from agym.core.protocol.arguments import check_made
from agym.core.protocol.value_copies import is_plain
from agym.errors import UsageError

# An environment that takes longer to construct is not made a second time.
CHEAP_SECONDS = 0.05

# Modules whose environments may be stepped in the caller's process, because they only compute.
KNOWN = ("gymnasium.envs.", "ale_py.", "ale_py:", "agym.envs.")

# A faster factory may return an existing environment; a second call shows.
AT_ONCE_SECONDS = 1e-3


@dataclass
class Sample:
    """One environment, made for measurements.

    Attributes:
        env: The environment, ``None`` once it is closed.
        construction: Seconds to construct it.
        existing: The factory returns the same environment each time, so it must not be closed.
    """

    env: Any
    construction: float
    existing: bool = False

    @property
    def coroutine(self) -> bool:
        return is_coroutine_env(self.env)

    @property
    def shown(self) -> bool:
        """Whether it shows its episodes in a window, which would surprise the caller."""
        return getattr(self.env, "render_mode", None) == "human"

    def close(self) -> None:
        """Close the environment; errors are ignored."""
        env, self.env = self.env, None
        if env is not None and not self.existing and not is_coroutine_env(env):
            with undisturbed(), contextlib.suppress(Exception):
                env.close()


def make_sample(factory: Factory) -> Sample:
    """Make one environment.

    Raises:
        Exception: Its constructor raised.
    """
    try:
        return _make_sample(factory)
    except RuntimeError as error:
        if not needs_loop(error):
            raise
    env = factory()  # a coroutine environment whose constructor needs the caller's loop
    return Sample(env, 0.0)


def _make_sample(factory: Factory) -> Sample:
    spec = _spec_of(factory)
    with undisturbed():
        if spec is not None and spec.entry_point is not None:
            with contextlib.suppress(Exception):  # the factory raises the same again
                if isinstance(spec.entry_point, str):
                    load_env_creator(spec.entry_point)
        (computed, waits), started = thread_usage(), time.perf_counter()
        env = factory()
        check_made(env)
        seconds = time.perf_counter() - started
        nanoseconds, waited = thread_usage()
        # If a thread never yielded its core, its duration is its CPU time; other programs took the
        # rest. A constructor that waits, as for a simulator, computes little, but is not fast.
        if waited == waits >= 0:
            seconds = (nanoseconds - computed) / 1e9
        existing = False
        known = spec is not None or isinstance(innermost(factory), type) or is_coroutine_env(env)
        if seconds < AT_ONCE_SECONDS and not known:
            with contextlib.suppress(Exception):  # it may refuse a second call
                another = factory()
                existing = code_of(another) is code_of(env)
                if not existing:
                    another.close()
    return Sample(env, seconds, existing)


def code_of(env: Any) -> Any:
    """Return the innermost environment."""
    return getattr(env, "unwrapped", env)


def _spec_of(factory: Any) -> EnvSpec | None:
    """Return the spec, if a factory is ``gymnasium.make`` of a spec."""
    while isinstance(factory, partial):
        if factory.func is gymnasium.make and factory.args:
            return factory.args[0] if isinstance(factory.args[0], EnvSpec) else None
        factory = factory.func
    return None


def makes_sync(factory: Any) -> bool:
    """Return whether a factory certainly makes plain environments, without calling it."""
    made = innermost(factory)
    if isinstance(made, type):
        return not is_coroutine_env(made)
    return _spec_of(factory) is not None


@dataclass(frozen=True)
class TrustedFactory:
    """A factory of code that only computes, according to the caller."""

    factory: Callable[..., Any]
    name: str

    def __call__(self, **env_kwargs: Any) -> Any:
        return self.factory(**env_kwargs)


def is_trusted(factory: Any) -> bool:
    """Return whether a factory only runs code of Gymnasium, ALE, PettingZoo and agym."""
    if isinstance(innermost(factory), TrustedFactory):
        return True
    spec = _spec_of(factory)
    if spec is None or not isinstance(spec.entry_point, str) or spec.additional_wrappers:
        return False
    keywords = dict(spec.kwargs)
    while isinstance(factory, partial):
        keywords |= factory.keywords
        factory = factory.func
    return spec.entry_point.startswith(KNOWN) and is_plain(keywords)


def name_of(factory: Any) -> str:
    """Return a name for the environments of a factory."""
    trusted = innermost(factory)
    if isinstance(trusted, TrustedFactory):
        return trusted.name
    spec = _spec_of(factory)
    if spec is not None:
        return str(spec.id)
    return str(getattr(innermost(factory), "__name__", type(factory).__name__))


def obstacle(factories: Factories) -> str:
    """Return why no worker processes can run the environments of factories; empty if they can."""
    if multiprocessing.current_process().daemon:
        return "cannot be started from a daemon process"
    try:
        check_platform()
    except UsageError:
        return "needs Linux or macOS"
    distinct = {id(plain): plain for plain in map(plain_factory, factories)}
    try:
        for factory in distinct.values():
            dumps_by_value(factory)
    except Exception:
        return "cannot run factories that can't be pickled"
    return ""


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
