"""``agym.plan``: what ``backend="auto"`` would choose for measured environments, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agym.api.auto.choosing import plan_for
from agym.api.auto.cluster import with_cluster
from agym.api.auto.probing import measure_apart, measure_here
from agym.api.auto.transport import this_machine
from agym.api.options.build import build
from agym.api.options.names import NESTED, check_option_names
from agym.api.options.options import OPTION_NAMES, Options
from agym.api.sync import Envs
from agym.backends.options import SPECS, BackendSpec, LoopSpec, Ray
from agym.errors import UsageError
from agym.hosts.base import Factory
from agym.hosts.factories import EnvLike, find_spec, is_vector, make_factories
from agym.planning.caching import recall_profile, remember_profile
from agym.planning.model import Candidate, Requirements
from agym.planning.plans import Plan, readable
from agym.planning.sampling import CHEAP_SECONDS, is_known
from agym.protocol.arguments import check_count, check_flag

# For how many seconds a candidate is tried, and for at least how many batches.
VERIFY_SECONDS = 0.5
VERIFY_BATCHES = 5

# Random actions are sampled beforehand and reused, so that sampling is not timed.
ACTION_BATCHES = 16

# Options of :func:`agym.make` that do not affect a plan, or that the plan chooses.
NOT_PLANNED = {
    **dict.fromkeys(
        (name for name in (*OPTION_NAMES, *NESTED) if name not in ("num_envs", "workers")),
        "it does not change a plan: leave it out",
    ),
    "address": "take cluster=agym.backends.Ray(address=...)",
}

OTHER_GAMES = "other games from the same seed: take it by name"


def plan(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    blocking: bool = True,
    workers: int | None = None,
    max_concurrency: int | None = None,
    verify: bool = False,
    cluster: bool | Ray = False,
    on_candidate: Callable[[Candidate], None] | None = None,
    **env_kwargs: Any,
) -> Plan:
    """Measure one environment, predict each backend's time per batch, and choose.

    Example:
        >>> import agym
        >>> agym.plan("CartPole-v1", 1).backend
        'serial'

    The environment is constructed once (again only if that takes under 50 ms), reset, and stepped
    with random actions for some 20 ms. Unless its code is Gymnasium's, ALE's or agym's, this
    happens in a separate process, which contains crashes and hangs, and in a temporary folder. Its
    profile is then kept on disk until its code changes, and ``backend="auto"`` uses it. Measuring
    this machine's own costs takes two more seconds, once. For the prediction see
    :func:`agym.planning.model.predict`.

    Args:
        env: As for :func:`make`.
        num_envs: Number of environments, 1 by default; not needed for a list.
        blocking: ``False`` for the async API, whose event loop must not be blocked.
        workers: Number of workers; ``None`` to choose it too.
        max_concurrency: How many coroutine environments of one loop may be busy at once.
        verify: Also make and step all environments on every candidate, and show the measured times.
            Each candidate constructs its own ``num_envs``, some of them in this process.
        cluster: Also consider a Ray cluster, or the one that an :class:`agym.backends.Ray` names.
            It is joined, and the cost of messages to actors is measured with environments that do
            nothing, which takes some ten seconds.
        on_candidate: Called with each candidate that ``verify`` is about to try.
        **env_kwargs: For the environment, as in ``gymnasium.make``.

    Returns:
        The plan, with ``backend`` and ``workers`` for :func:`make`; ``print`` shows it as a table.

    Raises:
        UsageError: An argument is invalid; or the environment ended the process that measured it,
            took too long, or cannot be sent there.
        Exception: The environment raised it.
    """
    check_option_names(env_kwargs, OPTION_NAMES, where="agym.plan", instead=NOT_PLANNED, env=env)
    if is_vector(env):
        raise UsageError("a VectorEnv runs only on backend='native': there is no choice")
    check_flag("blocking", blocking)
    check_flag("verify", verify)
    factories = make_factories(env, num_envs, env_kwargs)
    if workers is not None:
        workers = check_count("workers", workers)
    if max_concurrency is not None:
        max_concurrency = check_count("max_concurrency", max_concurrency)
    needs = Requirements(len(factories), workers, blocking, max_concurrency=max_concurrency)
    made = _plan_measured(factories, needs)
    if not isinstance(cluster, bool | Ray):
        raise UsageError(f"cluster={cluster!r} must be True, False or an agym.backends.Ray")
    ray = Ray() if cluster is True else cluster or None
    if ray is not None and made.profile is not None:
        made = with_cluster(made, made.profile, needs, ray)
    if isinstance(env, str) and find_spec(env).vector_entry_point is not None:
        native = Candidate("native", None, None, OTHER_GAMES)
        made = replace(made, candidates=(*made.candidates, native))
    return verified(made, factories, max_concurrency, on_candidate, ray) if verify else made


def _plan_measured(factories: list[Factory], needs: Requirements) -> Plan:
    factory = factories[0]
    profile = recall_profile(factory)
    if profile is None:
        known = is_known(factory)
        profile, file = measure_here(factory) if known else measure_apart(factory)
        if not known or profile.construction > CHEAP_SECONDS:
            remember_profile(factory, profile, file)
    return plan_for(profile, factories, needs, this_machine())


def verified(
    made: Plan,
    factories: list[Factory],
    max_concurrency: int | None = None,
    on_candidate: Callable[[Candidate], None] | None = None,
    ray: Ray | None = None,
) -> Plan:
    """Try every candidate of a plan in turn, and add the measured times."""
    tried = []
    for candidate in made.candidates:
        if candidate.predicted is None or (candidate.backend == "process" and candidate.remark):
            tried.append(candidate)
            continue
        if on_candidate is not None:
            on_candidate(candidate)
        spec = ray if candidate.backend == "ray" and ray else SPECS[candidate.backend]()
        if max_concurrency is not None and isinstance(spec, LoopSpec):
            spec = replace(spec, max_concurrency=max_concurrency)
        seconds = try_out(replace(spec, workers=candidate.workers), factories)
        tried.append(replace(candidate, measured=seconds))
    chosen = tried[made.candidates.index(made.chosen)]
    best = min((one for one in tried if one.measured), key=lambda one: one.measured or 0.0)
    why = f"{made.why} Measured: {chosen.name} took {readable(chosen.measured)}"
    why += ", the quickest." if best is chosen else f", {best.name} {readable(best.measured)}."
    return replace(made, candidates=tuple(tried), chosen=chosen, why=why)


def try_out(spec: BackendSpec, factories: list[Factory]) -> float:
    """Step environments on a backend with random actions; return seconds per batch."""
    envs: Envs[Any, Any] = Envs(build(factories, None, {}, Options(spec)), "array")
    with envs:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        actions = [envs.action_space.sample() for _ in range(ACTION_BATCHES)]
        times: list[float] = []
        end = time.perf_counter() + VERIFY_SECONDS
        while time.perf_counter() < end or len(times) < VERIFY_BATCHES:
            begun = time.perf_counter()
            envs.step(actions[len(times) % ACTION_BATCHES])
            times.append(time.perf_counter() - begun)
    # Without the first batch and the slowest ones, which other programs interrupted.
    usual = sorted(times[1:])
    usual = usual[: len(usual) - len(usual) // 16]
    return sum(usual) / len(usual)
