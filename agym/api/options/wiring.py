"""Wiring: from what the caller asks for to an engine on a backend; an API goes on top."""

from __future__ import annotations

import inspect
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv

from agym.api.auto.choosing import choose_backend
from agym.api.options.names import check_option_names
from agym.backends.asyncio import AsyncioBackend
from agym.backends.base import Backend, BackendOptions
from agym.backends.cluster_options import ClusterOptions
from agym.backends.process.backend import ProcessBackend
from agym.backends.ray.backend import RayBackend
from agym.backends.serial import SerialBackend
from agym.backends.thread import ThreadBackend
from agym.backends.vector import NativeBackend
from agym.engine.engine import Engine
from agym.engine.faults.recovery import FaultPolicy
from agym.engine.faults.recycling import RecyclePolicy
from agym.errors import UsageError
from agym.hosts.base import Factory, innermost, is_coroutine_env
from agym.hosts.episode import parse_mode
from agym.hosts.factories import EnvLike, is_vector, make_factories, make_vector_factories
from agym.planning.model import Requirements
from agym.protocol.arguments import check_count, check_flag, check_seconds
from agym.protocol.infos.policy import INFOS, InfoPolicy

BackendLike = str | Callable[[BackendOptions], Backend]

BACKENDS: dict[str, Callable[[BackendOptions], Backend]] = {
    "serial": SerialBackend,
    "thread": ThreadBackend,
    "asyncio": AsyncioBackend,
    "process": ProcessBackend,
    "native": NativeBackend,
    "ray": RayBackend,
}

# What ``backend`` may be called.
NAMES = ("auto", *BACKENDS)

ON_FAULT = ("raise", "restart", "replay")


def wire(
    env: EnvLike,
    num_envs: int | None,
    env_kwargs: dict[str, Any],
    *,
    blocking: bool = True,
    backend: BackendLike = "auto",
    workers: int | None = None,
    pin: bool = False,
    autoreset: str | AutoresetMode = "next_step",
    copy: bool = True,
    timeout: float | None = None,
    start_method: str = "spawn",
    max_concurrency: int | None = None,
    recycle_episodes: int | None = None,
    recycle_rss_mb: float | None = None,
    on_fault: str = "raise",
    max_restarts: int = 10,
    restart_window: float = 60.0,
    replay_limit: int = 10_000,
    capsule_dir: str | os.PathLike[str] | None = None,
    infos: str = "all",
    episode_stats: bool = False,
    resources: Mapping[str, float] | None = None,
    placement: str = "spread",
    runtime_env: Mapping[str, Any] | None = None,
    address: str | None = None,
    workers_per_node: int | None = None,
) -> tuple[Engine, Backend]:
    """Check the options, which are those of :func:`agym.make`; nothing is made yet.

    ``env_kwargs`` go to the environment. Without ``blocking`` the caller's thread runs an event
    loop while it waits.

    Raises:
        UsageError: An option cannot work.
    """
    recycle = _recycle_policy(recycle_episodes, recycle_rss_mb)
    policy = _fault_policy(on_fault, max_restarts, restart_window, replay_limit, capsule_dir)
    telling = _info_policy(infos, episode_stats)
    cluster = ClusterOptions.of(resources, placement, runtime_env, address, workers_per_node)
    if cluster.given and isinstance(backend, str) and backend != "ray":
        _refuse_cluster(cluster.given[0], backend)
    for name, flag in {"copy": copy, "pin": pin}.items():
        check_flag(name, flag)
    mode = parse_mode(autoreset)
    if workers is not None:
        workers = check_count("workers", workers)
    if max_concurrency is not None:
        max_concurrency = check_count("max_concurrency", max_concurrency)
    if start_method not in multiprocessing.get_all_start_methods():
        methods = ", ".join(multiprocessing.get_all_start_methods())
        raise UsageError(f"start_method={start_method!r} is unknown here: take one of {methods}")
    if timeout is not None:
        check_seconds("timeout", timeout)
    if backend == "auto" and is_coroutine_env(_class_of(env)):
        backend = "asyncio"
    if is_vector(env) and backend in NAMES and backend != "native":
        if backend != "auto":
            raise UsageError(
                f"{_name_of(env)} is a VectorEnv, many environments in one program, which"
                f" backend={backend!r} cannot run: take backend='native'"
            )
        backend = "native"
    if not callable(backend) and backend not in NAMES:
        raise UsageError(f"backend={backend!r} is unknown: take one of {', '.join(NAMES)}")
    watched = policy.tolerant or policy.logged or timeout is not None
    native = backend == "native" or backend is NativeBackend
    check_option_names(env_kwargs, OPTIONS, env=env, program=native)
    factories: Sequence[Factory]
    if native:
        _check_native(env, policy, telling)
        factories = make_vector_factories(env, num_envs, env_kwargs, workers)
    else:
        factories = make_factories(env, num_envs, env_kwargs)
    if backend == "auto":
        processes = recycle is not None or pin
        ask = Requirements(len(factories), workers, blocking, watched, processes, max_concurrency)
        placed = choose_backend(factories, ask)
        factories, backend, workers = placed.factories, placed.plan.backend, placed.plan.workers
    backend_class = BACKENDS[backend] if isinstance(backend, str) else backend
    if recycle is not None and not getattr(backend_class, "recyclable", False):
        raise UsageError(
            f"recycle_episodes and recycle_rss_mb replace worker processes, and backend={backend!r}"
            " has none: take backend='process'"
        )
    asked = BackendOptions(
        factories, mode, workers, start_method, max_concurrency, blocking, watched,
        policy.logged or recycle is not None, pin, telling, cluster=cluster,
    )  # fmt: skip
    made = backend_class(asked)
    if pin:
        _check_pin(made, backend)
    engine = Engine(
        made, len(factories), autoreset=mode, timeout=timeout, copy=copy, policy=policy,
        recycle=recycle,
    )  # fmt: skip
    return engine, made


# What is no keyword of an environment.
OPTIONS = (
    "num_envs",
    "output",
    *(
        name for name, value in inspect.signature(wire).parameters.items()
        if value.kind is inspect.Parameter.KEYWORD_ONLY and name != "blocking"
    ),
)  # fmt: skip


def _class_of(env: Any) -> Any:
    """What a factory calls, as far as it can be told without calling it."""
    return innermost(env[0] if isinstance(env, list | tuple) and env else env)


def _name_of(env: Any) -> str:
    env = _class_of(env)
    return env.__name__ if isinstance(env, type) else type(env).__name__


def _check_native(env: Any, policy: FaultPolicy, telling: InfoPolicy) -> None:
    """Refuse what is about single environments, or about another in the place of this one."""
    if telling.counts:
        option = "episode_stats" if telling.episode_stats else "infos='episode'"
        raise UsageError(
            f"{option} follows single environments, and those of backend='native' are one program:"
            " put gymnasium.wrappers.vector.RecordEpisodeStatistics over make_vec, or VecMonitor"
            " over agym.sb3, or take backend='process'"
        )
    if policy.logged:
        option = "capsule_dir" if policy.on_fault != "replay" else "on_fault='replay'"
        raise UsageError(
            f"{option} plays the episode of one environment again, and those of backend='native'"
            " are one program: take on_fault='restart' without capsule_dir, or backend='process'"
        )
    if policy.tolerant and isinstance(env, VectorEnv):
        raise UsageError(
            f"on_fault={policy.on_fault!r} makes another {_name_of(env)} in the place of one that"
            " fails, and this one is made already: pass the class, or a factory that takes"
            " num_envs="
        )


def _refuse_cluster(option: str, backend: str) -> None:
    raise UsageError(
        f"{option}= is about a cluster, and backend={backend!r} has none: take backend='ray'. If it"
        f" is for the environment, pass a factory: lambda: gymnasium.make(..., {option}=...)"
    )


def _check_pin(made: Backend, backend: BackendLike) -> None:
    if not made.pinnable:
        raise UsageError(
            f"pin=True keeps worker processes on their cores, and backend={backend!r} has none:"
            " take backend='process'"
        )
    if not hasattr(os, "sched_setaffinity"):
        raise UsageError(
            "pin=True needs a system where processes can choose their cores, such as Linux: leave"
            " it out here"
        )


def _fault_policy(
    on_fault: str,
    max_restarts: int,
    restart_window: float,
    replay_limit: int,
    capsule_dir: str | os.PathLike[str] | None,
) -> FaultPolicy:
    if on_fault not in ON_FAULT:
        raise UsageError(f"on_fault={on_fault!r} is unknown: take one of {', '.join(ON_FAULT)}")
    max_restarts = check_count("max_restarts", max_restarts, least=0)
    replay_limit = check_count("replay_limit", replay_limit)
    check_seconds("restart_window", restart_window)
    if capsule_dir is not None:
        capsule_dir = os.fspath(capsule_dir)
        if Path(capsule_dir).exists() and not Path(capsule_dir).is_dir():
            raise UsageError(f"capsule_dir={capsule_dir!r} is no folder")
    return FaultPolicy(on_fault, max_restarts, restart_window, replay_limit, capsule_dir)


def _info_policy(infos: str, episode_stats: bool) -> InfoPolicy:
    if infos not in INFOS:
        raise UsageError(f"infos={infos!r} is unknown: take one of {', '.join(INFOS)}")
    check_flag("episode_stats", episode_stats)
    if episode_stats and infos == "none":
        raise UsageError("episode_stats are told in infos, and infos='none': take infos='episode'")
    return InfoPolicy(infos, episode_stats)


def _recycle_policy(episodes: int | None, rss_mb: float | None) -> RecyclePolicy | None:
    if episodes is None and rss_mb is None:
        return None
    if episodes is not None:
        episodes = check_count("recycle_episodes", episodes)
    if rss_mb is not None and not (isinstance(rss_mb, int | float) and rss_mb > 0):
        raise UsageError(f"recycle_rss_mb={rss_mb!r} must be a positive number of megabytes")
    return RecyclePolicy(episodes, rss_mb)
