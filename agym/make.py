"""Wiring: from what the caller names to factories, executor, engine and face."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import multiprocessing
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import gymnasium.error
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from agym.core.async_env import AsyncEnv
from agym.core.autoreset import parse_mode
from agym.core.engine import Engine
from agym.core.making import Factory, is_coroutine_env
from agym.core.recovery import FaultPolicy
from agym.core.recycling import RecyclePolicy
from agym.errors import UsageError
from agym.executors.base import Executor, Placement
from agym.executors.coroutine import AsyncioExecutor
from agym.executors.process import ProcessExecutor
from agym.executors.serial import SerialExecutor
from agym.executors.thread import ThreadExecutor
from agym.faces.aio import AsyncEnvs
from agym.faces.base import Face, Output
from agym.faces.sync import Envs

AnyEnv = gymnasium.Env[Any, Any] | AsyncEnv[Any, Any]
EnvLike = str | EnvSpec | Callable[..., AnyEnv] | Sequence[Callable[..., AnyEnv]]
Backend = str | Callable[[Placement], Executor]

BACKENDS: dict[str, Callable[[Placement], Executor]] = {
    "auto": SerialExecutor,
    "serial": SerialExecutor,
    "thread": ThreadExecutor,
    "asyncio": AsyncioExecutor,
    "process": ProcessExecutor,
}

ON_FAULT = ("raise", "restart", "replay")

# Packages that register environments when they are imported, by the namespace of these.
PROVIDERS = {"ALE": "ale_py"}

AnyFace = TypeVar("AnyFace", bound=Face)


def make(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: Backend = "auto",
    workers: int | None = None,
    autoreset: str | AutoresetMode = "disabled",
    output: Output = "list",
    copy: bool = True,
    timeout: float | None = None,
    on_fault: str = "raise",
    max_restarts: int = 10,
    restart_window: float = 60.0,
    replay_limit: int = 10_000,
    capsule_dir: str | os.PathLike[str] | None = None,
    recycle_episodes: int | None = None,
    recycle_rss_mb: float | None = None,
    start_method: str = "spawn",
    max_concurrency: int | None = None,
    **env_kwargs: Any,
) -> Envs:
    """Make many environments with the Gym API in batches, for scripts without asyncio.

    Args:
        env: An id, an ``EnvSpec``, a factory, or a list of factories.
        num_envs: How many; not needed for a list. 1 by default.
        backend: Where environments live: ``"serial"``, ``"thread"``, ``"process"``,
            ``"asyncio"`` (coroutine environments), ``"auto"`` (for now the same as
            ``"serial"``, or ``"asyncio"`` for a class of coroutine environments), or an
            :class:`~agym.executors.base.Executor` class.
        workers: Worker processes or threads; environments are dealt to them in contiguous
            ranges. By default as many processes as there are cores, and a thread for each of
            up to 256 environments.
        autoreset: ``"disabled"`` (a finished environment holds still until it is reset),
            ``"next_step"`` or ``"same_step"``, as in Gymnasium.
        output: ``"list"`` or ``"array"`` (stacked NumPy arrays). Infos are dicts in both.
        copy: ``False`` for views that stay valid until the next but one full batch.
        timeout: Deadline of one operation, in seconds. What misses it is ended: a worker process is
            killed and replaced, a thread left behind and replaced, a coroutine cancelled and its
            environment made anew. A ``"serial"`` step cannot be ended. The first construction
            has no deadline; a later one has ten, and ten seconds at least.
        on_fault: ``"raise"`` what goes wrong; ``"restart"`` what died, hangs or raised in a step or
            reset, and go on: its row comes back truncated, with reward 0 and a
            :class:`~agym.Fault` as ``info["fault"]``; or ``"replay"``, the same, but
            environments that only shared the worker are brought back to where they were.
        max_restarts: How often a worker, or an environment that raises, is replaced within
            ``restart_window`` before it is given up.
        restart_window: In seconds.
        replay_limit: How many actions of an episode are kept for a replay, per environment.
        capsule_dir: A folder for a small file per fault, from which ``agym replay FILE`` does
            it again.
        recycle_episodes: Replace a worker process, at ends of episodes and without a stall, once
            one of its environments has had so many.
        recycle_rss_mb: Likewise once it takes so many megabytes of memory.
        start_method: How worker processes start: ``"spawn"``, ``"forkserver"`` or ``"fork"``.
        max_concurrency: How many coroutine environments of one loop may be busy at once.
        **env_kwargs: For the environment, as in ``gymnasium.make``.

    Returns:
        The environments, made and ready for ``reset``.

    Raises:
        UsageError: An argument cannot work.
        EnvError: A constructor raised.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 3) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     len(observations)
        3
    """
    return _make(Envs, **locals())


def make_async(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: Backend = "auto",
    workers: int | None = None,
    autoreset: str | AutoresetMode = "next_step",
    output: Output = "array",
    copy: bool = True,
    timeout: float | None = None,
    on_fault: str = "raise",
    max_restarts: int = 10,
    restart_window: float = 60.0,
    replay_limit: int = 10_000,
    capsule_dir: str | os.PathLike[str] | None = None,
    recycle_episodes: int | None = None,
    recycle_rss_mb: float | None = None,
    start_method: str = "spawn",
    max_concurrency: int | None = None,
    **env_kwargs: Any,
) -> AsyncEnvs:
    """Make many environments for async code.

    The arguments are those of :func:`make`; the defaults are arrays and Gymnasium's next-step
    autoreset.

    Returns:
        The environments, to be opened by ``async with`` or ``await``.

    Raises:
        UsageError: An argument cannot work.
    """
    return _make(AsyncEnvs, **locals())


OPTIONS = tuple(
    name for name, value in inspect.signature(make).parameters.items()
    if value.kind is inspect.Parameter.KEYWORD_ONLY
)  # fmt: skip


def _make(
    face: type[AnyFace],
    env: EnvLike,
    num_envs: int | None,
    *,
    backend: Backend,
    workers: int | None,
    autoreset: str | AutoresetMode,
    output: Output,
    copy: bool,
    timeout: float | None,
    start_method: str,
    max_concurrency: int | None,
    env_kwargs: dict[str, Any],
    recycle_episodes: int | None,
    recycle_rss_mb: float | None,
    **fault_options: Any,
) -> AnyFace:
    recycle = _recycle_policy(recycle_episodes, recycle_rss_mb)
    policy = _fault_policy(**fault_options)
    mode = parse_mode(autoreset)
    if output not in ("list", "array"):
        raise UsageError(f"output={output!r} is unknown: take 'list' or 'array'")
    if workers is not None:
        workers = _check_count("workers", workers)
    if max_concurrency is not None:
        max_concurrency = _check_count("max_concurrency", max_concurrency)
    if start_method not in multiprocessing.get_all_start_methods():
        methods = ", ".join(multiprocessing.get_all_start_methods())
        raise UsageError(f"start_method={start_method!r} is unknown here: take one of {methods}")
    if timeout is not None:
        _check_seconds("timeout", timeout)
    for name in env_kwargs:
        for option in difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.85):
            raise UsageError(
                f"unknown option {name!r}: did you mean {option!r}? If it is for the environment,"
                f" pass a factory: lambda: gymnasium.make(..., {name}=...)"
            )
    if backend == "auto" and is_coroutine_env(_class_of(env)):
        backend = "asyncio"
    executor_class = BACKENDS.get(backend) if isinstance(backend, str) else backend
    if not callable(executor_class):
        raise UsageError(f"backend={backend!r} is unknown: take one of {', '.join(BACKENDS)}")
    factories = make_factories(env, num_envs, env_kwargs)
    blocking = face is not AsyncEnvs
    watched = policy.tolerant or policy.logged or timeout is not None
    executor = executor_class(
        Placement(
            factories, mode, workers, start_method, max_concurrency, blocking, watched,
            policy.logged or recycle is not None,
        )
    )  # fmt: skip
    if recycle is not None and not executor.recyclable:
        raise UsageError(
            f"recycle_episodes and recycle_rss_mb replace worker processes, and backend={backend!r}"
            " has none: take backend='process'"
        )
    engine = Engine(
        executor, len(factories), autoreset=mode, timeout=timeout, copy=copy, policy=policy,
        recycle=recycle,
    )  # fmt: skip
    return face(engine, executor, output)


def _class_of(env: Any) -> Any:
    """What a factory calls, as far as it can be told without calling it."""
    if isinstance(env, list | tuple) and env:
        env = env[0]
    while isinstance(env, partial):
        env = env.func
    return env


def _fault_policy(
    *,
    on_fault: str,
    max_restarts: int,
    restart_window: float,
    replay_limit: int,
    capsule_dir: str | os.PathLike[str] | None,
) -> FaultPolicy:
    if on_fault not in ON_FAULT:
        raise UsageError(f"on_fault={on_fault!r} is unknown: take one of {', '.join(ON_FAULT)}")
    max_restarts = _check_count("max_restarts", max_restarts, least=0)
    replay_limit = _check_count("replay_limit", replay_limit)
    _check_seconds("restart_window", restart_window)
    if capsule_dir is not None:
        capsule_dir = os.fspath(capsule_dir)
        if Path(capsule_dir).exists() and not Path(capsule_dir).is_dir():
            raise UsageError(f"capsule_dir={capsule_dir!r} is no folder")
    return FaultPolicy(on_fault, max_restarts, restart_window, replay_limit, capsule_dir)


def _recycle_policy(episodes: int | None, rss_mb: float | None) -> RecyclePolicy | None:
    if episodes is None and rss_mb is None:
        return None
    if episodes is not None:
        episodes = _check_count("recycle_episodes", episodes)
    if rss_mb is not None and not (isinstance(rss_mb, int | float) and rss_mb > 0):
        raise UsageError(f"recycle_rss_mb={rss_mb!r} must be a positive number of megabytes")
    return RecyclePolicy(episodes, rss_mb)


def _check_seconds(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise UsageError(f"{name}={value!r} must be a positive number of seconds")


def _check_count(name: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        what = "a positive integer" if least else "an integer that is not negative"
        raise UsageError(f"{name}={value!r} must be {what}")
    return int(value)


def make_factories(env: EnvLike, num_envs: int | None, env_kwargs: dict[str, Any]) -> list[Factory]:
    """One function per environment that makes it; nothing is made here.

    Raises:
        UsageError: ``env`` is none of what it may be, or a list of another length than asked.
    """
    if num_envs is not None:
        num_envs = _check_count("num_envs", num_envs)
    if isinstance(env, Sequence) and not isinstance(env, str):
        if not env or not all(callable(factory) for factory in env):
            raise UsageError("a list for env must hold factories: functions that make environments")
        if num_envs not in (None, len(env)):
            raise UsageError(f"num_envs={num_envs} contradicts the list of {len(env)} factories")
        return [partial(factory, **env_kwargs) if env_kwargs else factory for factory in env]
    n = num_envs or 1
    if isinstance(env, str | EnvSpec):
        first = partial(gymnasium.make, find_spec(env), **env_kwargs)
        # Gymnasium's checker looks at the first steps of one; the others are built alike.
        other = partial(first, **{"disable_env_checker": True, **env_kwargs})
        return [first, *[other] * (n - 1)]
    if not callable(env):
        raise UsageError(
            f"env={env!r} must be an id, an EnvSpec, a factory, or a list of factories"
        )
    return [partial(env, **env_kwargs) if env_kwargs else env] * n


def find_spec(env: str | EnvSpec) -> EnvSpec:
    """Look an id up here, so that workers need not have what the caller's script registered.

    Raises:
        UsageError: There is no such environment; the cause is Gymnasium's own error.
    """
    if isinstance(env, EnvSpec):
        return env
    provider = PROVIDERS.get(env.partition("/")[0])
    if provider is not None and env not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            importlib.import_module(provider)
    try:
        return gymnasium.spec(env)
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(f"env={env!r} cannot be found: {error}") from error
