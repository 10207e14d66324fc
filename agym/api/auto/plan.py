"""``agym.plan``: what ``backend="auto"`` would choose for measured environments, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gymnasium.envs.registration import EnvSpec

from agym.api.auto.choosing import plan_for
from agym.api.auto.cluster import with_cluster
from agym.api.auto.machine import this_machine
from agym.api.auto.measure_machine import Progress
from agym.api.auto.probing import measure_apart, measure_here
from agym.api.options.build import build
from agym.api.options.environments import EnvLike, find_spec, is_vector, make_factories, same_games
from agym.api.options.names import NESTED, check_option_names
from agym.api.options.options import OPTION_NAMES, Options
from agym.api.sync import Envs
from agym.backends.options import SPECS, BackendSpec, LoopSpec, Ray, check_overlap
from agym.errors import UsageError
from agym.hosts.factories import Factory
from agym.planning.caching import recall_profile, remember_measured, remember_profile
from agym.planning.choice import decide, explain
from agym.planning.model import Candidate, Requirements
from agym.planning.plans import Plan
from agym.planning.sampling import CHEAP_SECONDS, is_trusted
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
    "backend": "the plan chooses it: leave it out",
    "address": "use cluster=agym.backends.Ray(address=...)",
}

OTHER_GAMES = "plays other games from the same seed: choose it with backend='native'"


def plan(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    blocking: bool = True,
    workers: int | None = None,
    max_concurrency: int | None = None,
    overlap: float = 0.0,
    verify: bool = False,
    cluster: bool | Ray = False,
    on_candidate: Callable[[Candidate], None] | None = None,
    on_progress: Progress | None = None,
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
    this machine's own costs takes some more seconds, once. For the prediction see
    :func:`agym.planning.model.predict`, for the rule :mod:`agym.planning.choice`.

    Args:
        env: As for :func:`make`.
        num_envs: Number of environments, 1 by default; not needed for a list.
        blocking: ``False`` for the async API, whose event loop must not be blocked.
        workers: Number of workers; ``None`` to choose it too.
        max_concurrency: How many coroutine environments of one loop may be busy at once.
        overlap: Seconds for which the caller computes between a step's dispatch and its result,
            such as a gradient step. Predictions are then of both together.
        verify: Also make and step all environments on every candidate, and choose by the measured
            times, which ``backend="auto"`` uses for a day. Each candidate constructs its own
            ``num_envs``, some of them in this process.
        cluster: Also consider a Ray cluster, or the one that an :class:`agym.backends.Ray` names.
            It is joined, and the cost of messages to actors is measured with environments that do
            nothing, which takes some ten seconds.
        on_candidate: Called with each candidate that ``verify`` is about to try.
        on_progress: Called with the share of the machine's measurement that is done, if it has to
            be measured.
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
    check_overlap(overlap)
    needs = Requirements(
        len(factories), workers, blocking, max_concurrency=max_concurrency, overlap=float(overlap)
    )
    made = _plan_measured(factories, needs, on_progress)
    if not isinstance(cluster, bool | Ray):
        raise UsageError(f"cluster={cluster!r} must be True, False or an agym.backends.Ray")
    ray = Ray() if cluster is True else cluster or None
    if ray is not None and made.profile is not None:
        made = with_cluster(made, made.profile, needs, ray)
    if verify:
        made = verified(made, factories, needs, on_candidate, ray)
    if isinstance(env, str | EnvSpec) and find_spec(env).vector_entry_point is not None:
        made = _with_native(made, same=needs.num_envs > 1 and same_games(env, env_kwargs))
    return made


def _with_native(made: Plan, *, same: bool) -> Plan:
    """Add the vector environment that an id has; it is chosen if it plays the ``same`` games."""
    native = Candidate("native", None, remark="" if same else OTHER_GAMES)
    made = replace(made, candidates=(*made.candidates, native))
    if not same or made.chosen.workers is not None:
        return made
    why = "native: it steps all games at once, and plays the same games as single environments."
    return replace(made, chosen=native, why=why)


def _plan_measured(
    factories: list[Factory], needs: Requirements, on_progress: Progress | None
) -> Plan:
    factory = factories[0]
    profile = recall_profile(factory)
    if profile is None:
        known = is_trusted(factory)
        profile, file = measure_here(factory) if known else measure_apart(factory)
        if not known or profile.construction > CHEAP_SECONDS:
            remember_profile(factory, profile, file)
    return plan_for(profile, factories, needs, machine=this_machine(on_progress))


def verified(
    made: Plan,
    factories: list[Factory],
    needs: Requirements,
    on_candidate: Callable[[Candidate], None] | None = None,
    ray: Ray | None = None,
) -> Plan:
    """Try every candidate of a plan in turn, and choose by the measured times."""
    tried = []
    for candidate in made.candidates:
        if candidate.predicted is None or (candidate.backend == "process" and candidate.remark):
            tried.append(candidate)
            continue
        if on_candidate is not None:
            on_candidate(candidate)
        spec = ray if candidate.backend == "ray" and ray else SPECS[candidate.backend]()
        if needs.max_concurrency is not None and isinstance(spec, LoopSpec):
            spec = replace(spec, max_concurrency=needs.max_concurrency)
        seconds = try_out(replace(spec, workers=candidate.workers), factories, needs.overlap)
        tried.append(replace(candidate, measured=seconds))
    if needs.usual:
        took = {one.name: one.measured for one in tried if one.measured is not None}
        remember_measured(factories[0], needs.num_envs, took)
    decision = decide(tried, workers_wanted=needs.workers is not None)
    if decision.chosen is None:
        return replace(made, candidates=tuple(tried))
    why = explain(decision, tried, needs)
    before = made.chosen.name
    if decision.chosen.name != before:
        why += f" The prediction was {before}."
    return replace(made, candidates=tuple(tried), chosen=decision.chosen, why=why)


def try_out(spec: BackendSpec, factories: list[Factory], overlap: float = 0.0) -> float:
    """Step environments on a backend with random actions; return seconds per batch.

    Between dispatch and result, the caller computes for ``overlap`` seconds.
    """
    envs: Envs[Any, Any] = Envs(build(factories, None, {}, Options(spec)), "array")
    with envs:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        actions = [envs.action_space.sample() for _ in range(ACTION_BATCHES)]
        times: list[float] = []
        end = time.perf_counter() + VERIFY_SECONDS
        while time.perf_counter() < end or len(times) < VERIFY_BATCHES:
            begun = time.perf_counter()
            action = actions[len(times) % ACTION_BATCHES]
            if overlap:
                pending = envs._begin(envs._engine.step, action)
                _compute(overlap)
                envs._wait(pending)
                pending.result()
            else:
                envs.step(action)
            times.append(time.perf_counter() - begun)
    # Without the first batch and the slowest ones, which other programs interrupted.
    usual = sorted(times[1:])
    usual = usual[: len(usual) - len(usual) // 16]
    return sum(usual) / len(usual)


def _compute(seconds: float) -> None:
    """Keep this thread's core busy for some seconds of its own time, as a training loop does."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
