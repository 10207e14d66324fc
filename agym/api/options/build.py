"""Builds the backend and the engine that an API uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from agym.api.options.environments import (
    EnvLike,
    is_vector,
    make_factories,
    make_vector_factories,
)
from agym.api.options.names import check_option_names
from agym.api.options.native import (
    Found,
    Native,
    batch_seconds,
    find_native,
    native_for_auto,
)
from agym.api.options.options import OPTION_NAMES, Options
from agym.core.backends.options import (
    SPECS,
    Asyncio,
    Auto,
    BackendSpec,
    ProcessWithCaller,
    Twin,
    TwinInCaller,
    Vector,
)
from agym.core.backends.pool import open_pool
from agym.core.backends.port import BackendOptions
from agym.core.engine.calls.traffic import Traffic
from agym.core.engine.engine import Engine
from agym.core.engine.faults.fault_policy import FaultPolicy
from agym.core.hosts.factories import (
    Factories,
    Factory,
    innermost,
    is_coroutine_env,
    plain_factory,
    released,
)
from agym.core.hosts.rate_limit import RateLimiter, number_kinds
from agym.core.protocol.infos.policy import InfoPolicy
from agym.errors import UsageError

# A twin whose batch takes longer steps in a thread under the async API, so that its loop is free.
LOOP_SECONDS = 200e-6


def build(
    env: EnvLike,
    num_envs: int | None,
    env_kwargs: dict[str, Any],
    options: Options,
    *,
    blocking: bool = True,
    sample: Factory | None = None,
    vector_infos: bool = False,
    renders: bool = True,
    found: Found | None = None,
) -> Engine:
    """Build a backend and an engine; only ``backend="auto"`` may construct an environment here.

    Args:
        env: As for :func:`agym.make`.
        num_envs: As for :func:`agym.make`.
        env_kwargs: Keywords for the environment.
        options: All other options.
        blocking: Whether the caller may block its thread: no event loop runs in it.
        sample: Makes a similar environment, which ``backend="auto"`` may measure.
        vector_infos: Whether infos of steps are passed to the caller in Gymnasium's vector form.
        renders: Whether the caller may render all environments in every step.
        found: What :func:`find` has returned.

    Raises:
        UsageError: The environment and the options are incompatible.
    """
    spec, policy = options.spec, options.fault_policy
    learn: Callable[[Traffic], None] | None = None
    native, factories = found or find(env, num_envs, env_kwargs, options, renders=renders)
    track_running = policy.tolerant or policy.record_actions or options.timeout is not None
    if native.spec is not None:
        here = native.is_twin and spec.workers is None and not track_running
        spec = Twin(workers=spec.workers) if native.is_twin else Vector()
        _check_native(env, policy, options.info_policy, spec.name)
        factories = make_vector_factories(native.spec, len(factories), {}, spec.workers)
        if here and (blocking or batch_seconds(factories[0], len(factories)) < LOOP_SECONDS):
            spec = TwinInCaller()
        learn = partial(_tell, native.remark(len(factories)))
    elif isinstance(spec, Auto) and is_vector(env):
        spec = Vector(workers=spec.workers)
    elif isinstance(spec, Auto) and spec.workers is None and is_coroutine_env(_class_of(env)):
        spec = Asyncio()
    elif isinstance(spec, Auto):
        # An id has two factories, with and without Gymnasium's checker.
        one_kind = (
            isinstance(env, str | EnvSpec)
            or len({id(plain_factory(each)) for each in factories}) == 1
        )
        spec, factories, learn = _choose(
            factories, spec, blocking, track_running, sample,
            same_kind=sample is not None or one_kind, rate_limited=options.rate_limit is not None,
        )  # fmt: skip
    backend = open_pool(
        BackendOptions(
            factories,
            options.autoreset_mode,
            spec,
            blocking,
            track_running,
            policy.follow_episodes or getattr(spec, "recycle", None) is not None,
            options.info_policy,
            vector_infos,
            limiter=_limiter(options.rate_limit, spec, factories),
        )
    )
    engine = Engine(backend, timeout=options.timeout, copy=options.copy, policy=policy)
    if learn is not None:
        learn(engine.traffic)
    return engine


def find(
    env: EnvLike,
    num_envs: int | None,
    env_kwargs: dict[str, Any],
    options: Options,
    *,
    renders: bool = True,
) -> Found:
    """Check environments and their options; find their factories, and a vector environment.

    Raises:
        UsageError: They are invalid or incompatible, or there is no twin where one is wanted.
    """
    spec, vector = options.spec, is_vector(env)
    if vector and spec.name in SPECS and type(spec) not in (Auto, Vector):
        raise UsageError(
            f"{_name_of(env)} is a VectorEnv, which"
            f" backend={spec.name!r} cannot run: use backend='vector'"
        )
    vector = vector or type(spec) is Vector
    check_option_names(env_kwargs, OPTION_NAMES, env=env, is_vector=vector)
    if vector:
        _check_native(env, options.fault_policy, options.info_policy, "vector")
        return Native(None), make_vector_factories(env, num_envs, env_kwargs, spec.workers)
    factories: Factories = make_factories(env, num_envs, env_kwargs)
    if isinstance(spec, Twin):
        native, factories = find_native(env, env_kwargs, factories)
        if not native.is_twin:
            for factory in factories:
                released(factory)
            why = native.why or "it is a rule book, whose vector environment is backend='vector'"
            raise UsageError(f"backend='twin' can't run {_name_of(env)}: {why}")
        return native, [*map(released, factories)]
    plain = isinstance(spec, Auto) and spec.workers is None and not is_coroutine_env(_class_of(env))
    if len(factories) > 1 and plain and allows_native(options):
        native, factories = native_for_auto(env, env_kwargs, factories, renders=renders)
        return native, factories if native.spec is None else [*map(released, factories)]
    return Native(None), factories


def _tell(remark: str, traffic: Traffic) -> None:
    traffic.remark = remark


def _choose(
    factories: Factories,
    spec: Auto,
    blocking: bool,
    track_running: bool,
    sample: Factory | None,
    *,
    same_kind: bool,
    rate_limited: bool,
) -> tuple[BackendSpec, Factories, Callable[[Traffic], None] | None]:
    # Imported here, because only "auto" needs these modules, which import many others.
    from agym.core.planning.choosing import choose_backend, learn_from
    from agym.core.planning.model import Requirements

    needs = Requirements(len(factories), spec.workers, blocking, track_running)
    plan, factories_to_use = choose_backend(factories, needs, sample)
    if plan.backend not in ("serial", "asyncio"):  # workers make their own
        factories_to_use = [*map(released, factories_to_use)]
    kind = SPECS[plan.backend]
    # The caller's thread can't interrupt a step, can't wait for a rate limit while workers step,
    # and can't run coroutine environments, which only a measurement of the same kind rules out.
    known = same_kind and plan.profile is not None and not plan.profile.coroutine
    plain = blocking and not track_running and not rate_limited
    if plan.backend == "process" and plan.workers not in (None, 1) and known and plain:
        kind = ProcessWithCaller
    chosen = kind(workers=plan.workers)
    learn = partial(learn_from, plan, sample or plain_factory(factories[0])) if same_kind else None
    return chosen, factories_to_use, learn


def _limiter(rate: float | None, spec: BackendSpec, factories: Factories) -> RateLimiter | None:
    if rate is None:
        return None
    if spec.name not in ("serial", "thread", "asyncio", "process"):
        raise UsageError(
            f"rate_limit= doesn't work with backend={spec.name!r}: use backend='process', 'thread'"
            " or 'serial', or 'asyncio' for coroutine environments"
        )
    return RateLimiter(rate, number_kinds(factories))


def _class_of(env: Any) -> Any:
    """Return the class or function behind a factory, as far as known without calling it."""
    return innermost(env[0] if isinstance(env, list | tuple) and env else env)


def _name_of(env: Any) -> str:
    env = _class_of(env)
    return env if isinstance(env, str) else str(getattr(env, "__name__", type(env).__name__))


def allows_native(options: Options) -> bool:
    """Return whether a vector environment will do: no option is about single environments."""
    policy = options.fault_policy
    tolerant = policy.tolerant or policy.follow_episodes or options.timeout is not None
    return not (tolerant or options.info_policy.counts or options.rate_limit)


def _check_native(env: Any, policy: FaultPolicy, infos: InfoPolicy, backend: str) -> None:
    """Refuse options that need single environments, or a second instance of this one."""
    if infos.counts:
        option = "episode_stats" if infos.episode_stats else "infos='episode'"
        raise UsageError(
            f"{option} follows single environments, but backend={backend!r} runs one VectorEnv:"
            " wrap agym.make_vec in gymnasium.wrappers.vector.RecordEpisodeStatistics, wrap"
            " agym.sb3's in VecMonitor, or use backend='process'"
        )
    if policy.follow_episodes:
        option = "capsule_dir" if policy.capsule_dir is not None else f"retry={policy.retry}"
        option = "on_fault='replay'" if policy.mode == "replay" else option
        raise UsageError(
            f"{option} replays the episode of a single environment, but backend={backend!r} runs"
            " one VectorEnv: use on_fault='restart' alone, or backend='process'"
        )
    if policy.tolerant and isinstance(env, VectorEnv):
        raise UsageError(
            f"on_fault={policy.mode!r} replaces a {_name_of(env)} that fails by a new one, and"
            " can't make it from an instance: pass the class, or a factory with a num_envs="
            " parameter"
        )
