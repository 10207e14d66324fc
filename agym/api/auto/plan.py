"""``agym.plan``: what ``backend="auto"`` would choose for measured environments, and why."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import Any

from gymnasium.envs.registration import EnvSpec

from agym.api.auto.probing import measure_apart, measure_here
from agym.api.options.build import build
from agym.api.options.environments import EnvLike, find_spec, is_vector, make_factories, same_games
from agym.api.options.names import NESTED, check_option_names
from agym.api.options.options import OPTION_NAMES, Options
from agym.api.sync import Envs
from agym.core.backends.options import SPECS, BackendSpec
from agym.core.hosts.factories import Factory
from agym.core.planning.caching import recall_profile, remember_measured, remember_profile
from agym.core.planning.choice import decide, explain
from agym.core.planning.choosing import plan_for
from agym.core.planning.model import Candidate, Requirements
from agym.core.planning.plans import Plan
from agym.core.planning.sampling import CHEAP_SECONDS, is_trusted
from agym.core.protocol.arguments import check_count, check_flag
from agym.errors import UsageError

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
    **dict.fromkeys(("cluster", "address"), "a plan is for this machine: name backend='ray'"),
    "overlap": "a plan compares batches alone: where you compute meanwhile, name backend='process'",
}

OTHER_GAMES = "plays other games from the same seed: choose it with backend='vector'"


def plan(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    blocking: bool = True,
    workers: int | None = None,
    verify: bool = False,
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
    profile is then kept on disk until its code changes, and ``backend="auto"`` uses it. For the
    prediction see :func:`agym.core.planning.model.predict`, for the rule
    :mod:`agym.core.planning.choice`.

    Args:
        env: As for :func:`make`.
        num_envs: Number of environments, 1 by default; not needed for a list.
        blocking: ``False`` for the async API, whose event loop must not be blocked.
        workers: Number of workers; ``None`` to choose it too.
        verify: Also make and step all environments on every candidate, and choose by the measured
            times, which ``backend="auto"`` uses for a day. Each candidate constructs its own
            ``num_envs``, some of them in this process.
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
        raise UsageError("a VectorEnv runs only on backend='vector': there is no choice")
    check_flag("blocking", blocking)
    check_flag("verify", verify)
    factories = make_factories(env, num_envs, env_kwargs)
    if workers is not None:
        workers = check_count("workers", workers)
    factory = factories[0]
    profile = recall_profile(factory)
    if profile is None:
        known = is_trusted(factory)
        profile, file = measure_here(factory) if known else measure_apart(factory)
        if not known or profile.construction > CHEAP_SECONDS:
            remember_profile(factory, profile, file)
    made = plan_for(profile, factories, Requirements(len(factories), workers, blocking), factory)
    if verify:
        made = verified(made, factories, workers_wanted=workers is not None)
    if isinstance(env, str | EnvSpec) and find_spec(env).vector_entry_point is not None:
        made = _with_native(made, same=len(factories) > 1 and same_games(env, env_kwargs))
    return made


def _with_native(made: Plan, *, same: bool) -> Plan:
    """Add the vector environment that an id has; it is chosen if it plays the ``same`` games."""
    vector = Candidate("vector", None, remark="" if same else OTHER_GAMES)
    made = replace(made, candidates=(*made.candidates, vector))
    if not same or made.chosen.workers is not None:
        return made
    why = "vector: it steps all games at once, and plays the same games as single environments."
    return replace(made, chosen=vector, why=why)


def verified(made: Plan, factories: list[Factory], *, workers_wanted: bool) -> Plan:
    """Try every candidate of a plan that can be chosen, and choose by the measured times."""
    found = tuple(
        one if one.backend == "process" and one.remark
        else replace(one, measured=try_out(SPECS[one.backend](workers=one.workers), factories))
        for one in made.candidates
    )  # fmt: skip
    took = {one.name: one.measured for one in found if one.measured is not None}
    remember_measured(factories[0], len(factories), took)
    chosen, reason = decide(found, workers_wanted=workers_wanted)
    why = f"{explain(chosen, found)}. {reason} The prediction was {made.chosen.name}."
    return replace(made, candidates=found, chosen=chosen, why=why)


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
    return median(times[1:])
