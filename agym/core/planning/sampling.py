"""Makes one environment for measurements, without side effects for the caller.

The environment is closed again. The caller gets a new environment, unaffected by the measurement.
The caller's random numbers (``random``, ``numpy.random``) and warnings do not change.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agym.core._system.isolation import undisturbed
from agym.core._system.pickling import dumps_by_value
from agym.core._system.platform import thread_usage
from agym.core.backends.process.worker_process import check_platform
from agym.core.hosts.factories import Factory, innermost, is_coroutine_env, needs_loop
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

    factory: Factory
    name: str

    def __call__(self) -> Any:
        return self.factory()


def is_trusted(factory: Any) -> bool:
    """Return whether a factory only runs code of Gymnasium, ALE and agym."""
    if isinstance(factory, TrustedFactory):
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
    if isinstance(factory, TrustedFactory):
        return factory.name
    spec = _spec_of(factory)
    if spec is not None:
        return str(spec.id)
    return str(getattr(innermost(factory), "__name__", type(factory).__name__))


def obstacle(factories: Sequence[Factory]) -> str:
    """Return why no worker processes can run the environments of factories; empty if they can."""
    if multiprocessing.current_process().daemon:
        return "cannot be started from a daemon process"
    try:
        check_platform()
    except UsageError:
        return "needs Linux or macOS"
    distinct = {id(factory): factory for factory in factories}
    try:
        for factory in distinct.values():
            dumps_by_value(factory)
    except Exception:
        return "cannot run factories that can't be pickled"
    return ""
