"""``agym.plan``: measures environments, and explains the choice of ``backend="auto"``.

Environments with unknown code are measured in a separate process. An environment that crashes,
hangs or exits under random actions affects only that process. Files that it writes with relative
paths go to a temporary folder.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from agym.api.options.build import build
from agym.api.options.environments import EnvLike, find_spec, is_vector, make_factories
from agym.api.options.names import NESTED, check_option_names
from agym.api.options.native import Native, native_for_auto
from agym.api.options.options import OPTION_NAMES, Options
from agym.api.sync import Envs
from agym.core.backends.options import SPECS, BackendSpec, Process
from agym.core.backends.pool import open_pool
from agym.core.backends.port import BackendOptions
from agym.core.engine.engine import Engine
from agym.core.hosts.factories import Factory, innermost, is_coroutine_env, released
from agym.core.hosts.vector.twins import NO_TWIN
from agym.core.planning.caching import (
    recall_profile,
    remember_measured,
    remember_profile,
    source_file,
)
from agym.core.planning.choice import Plan, decide, explain
from agym.core.planning.choosing import plan_for
from agym.core.planning.model import Candidate, Profile, Requirements
from agym.core.planning.sampling import (
    CHEAP_SECONDS,
    is_trusted,
    make_sample,
    measure,
    measure_on_loop,
    name_of,
    obstacle,
)
from agym.core.protocol.arguments import check_count, check_flag
from agym.errors import EnvError, StepTimeout, UsageError, WorkerDied

# How many seconds a candidate is tried for, and the minimum number of batches.
VERIFY_SECONDS = 0.5
VERIFY_BATCHES = 5

# Random actions are sampled beforehand and reused, so that sampling is not timed.
ACTION_BATCHES = 16

# Options of :func:`agym.make` that a plan does not depend on, or that it chooses.
NOT_PLANNED = {
    **dict.fromkeys(
        (name for name in (*OPTION_NAMES, *NESTED) if name not in ("num_envs", "workers")),
        "leave it out, since a plan doesn't depend on it",
    ),
    "backend": "leave it out, since the plan chooses the backend",
    **dict.fromkeys(("cluster", "address"), "a plan is for this machine, so use backend='ray'"),
    "overlap": (
        "a plan assumes that you compute nothing while a batch steps. If you do, use"
        " backend='process'"
    ),
}

OTHER_GAMES = "plays different games with the same seed; select it with backend='vector'"


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

    The environment is constructed once (or more often if that takes less than 50 ms), reset, and
    stepped with random actions for about 20 ms. Unless its code is Gymnasium's, ALE's or agym's,
    this happens in a separate process and a temporary folder, so that a crash, a hang or a file
    does no harm. The profile is kept on disk until the environment's code changes, and
    ``backend="auto"`` uses it: see :doc:`/explanation/auto`.

    Args:
        env: As for :func:`make`.
        num_envs: Number of environments, 1 by default; not needed for a list.
        blocking: ``False`` for the async API, whose event loop must not be blocked.
        workers: Number of workers; ``None`` to choose it, too.
        verify: Also run all environments on every candidate, and choose by the measured times,
            which ``backend="auto"`` uses for a day. Each candidate makes ``num_envs`` environments,
            some of them in this process.
        **env_kwargs: For the environment, as in ``gymnasium.make``.

    Returns:
        The plan, with ``backend`` and ``workers`` for :func:`make`; ``print`` shows it as a table.

    Raises:
        UsageError: An argument is invalid; or the environment ended the process that measured it,
            took too long, or cannot be sent to another process.
        Exception: The environment raised it.
    """
    check_option_names(env_kwargs, OPTION_NAMES, where="agym.plan", instead=NOT_PLANNED, env=env)
    if is_vector(env):
        raise UsageError("a VectorEnv runs only with backend='vector': there is no choice to plan")
    check_flag("blocking", blocking)
    check_flag("verify", verify)
    factories = make_factories(env, num_envs, env_kwargs)
    if workers is not None:
        workers = check_count("workers", workers)
    factory = factories[0]
    profile = recall_profile(factory)
    if profile is None:
        trusted = is_trusted(factory)
        profile, file = measure_here(factory) if trusted else measure_apart(factory)
        if not trusted or profile.construction > CHEAP_SECONDS:
            remember_profile(factory, profile, file)
    plan = plan_for(profile, factories, Requirements(len(factories), workers, blocking), factory)
    if verify:
        plan = verified(plan, factories, workers_wanted=workers is not None)
    native = Native(None)
    if len(factories) > 1 and workers is None:
        native, made = native_for_auto(env, env_kwargs, factories)
        for each in made:
            released(each)
    if native.is_twin or (native.why and not native.why.endswith(NO_TWIN)):
        plan = _with_twin(plan, native)
    elif isinstance(env, str | EnvSpec) and find_spec(env).vector_entry_point is not None:
        plan = _with_vector(plan, same=native.spec is not None)
    return plan


def _with_twin(plan: Plan, native: Native) -> Plan:
    """Add the twin of an environment, which is chosen, or the reason why there is none."""
    twin = Candidate("twin", None, remark="" if native.is_twin else native.why)
    plan = replace(plan, candidates=(*plan.candidates, twin))
    if not native.is_twin:
        return plan
    return replace(plan, chosen=twin, why=f"twin: {native.remark(plan.num_envs)}.")


def _with_vector(plan: Plan, *, same: bool) -> Plan:
    """Add the vector environment of an id; choose it if it plays the ``same`` games."""
    vector = Candidate("vector", None, remark="" if same else OTHER_GAMES)
    plan = replace(plan, candidates=(*plan.candidates, vector))
    if not same or plan.chosen.workers is not None:
        return plan
    why = "vector: it steps all games at once, and plays the same games as single environments."
    return replace(plan, chosen=vector, why=why)


def verified(plan: Plan, factories: list[Factory], *, workers_wanted: bool) -> Plan:
    """Try every candidate of a plan that can be chosen, and choose by the measured times."""
    candidates = tuple(
        c if c.backend == "process" and c.remark
        else replace(c, measured=try_out(SPECS[c.backend](workers=c.workers), factories))
        for c in plan.candidates
    )  # fmt: skip
    times = {c.name: c.measured for c in candidates if c.measured is not None}
    remember_measured(factories[0], len(factories), times)
    chosen, reason = decide(candidates, workers_wanted=workers_wanted)
    why = f"{explain(chosen, candidates)}. {reason} The prediction was {plan.chosen.name}."
    return replace(plan, candidates=candidates, chosen=chosen, why=why)


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
            started = time.perf_counter()
            envs.step(actions[len(times) % ACTION_BATCHES])
            times.append(time.perf_counter() - started)
    return median(times[1:])


# How many seconds making and measuring an environment may take.
PROBE_SECONDS = 60.0


class Probe(gymnasium.Env[Any, Any]):
    """Runs in a worker process, where it makes and measures the actual environment."""

    observation_space = action_space = spaces.Discrete(1)

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def measure(self, folder: str) -> tuple[Profile, str | None]:
        """Make the environment in a folder and measure it; see :func:`measure_here`."""
        with contextlib.suppress(FileNotFoundError), contextlib.chdir(folder):
            return measure_here(self._factory)
        return measure_here(self._factory)  # the environment reads files from the caller's folder


def measure_here(factory: Factory) -> tuple[Profile, str | None]:
    """Make an environment in this process and measure it.

    Returns:
        Its profile, and the file with its code.

    Raises:
        Exception: The environment raised it.
    """
    if is_coroutine_env(innermost(factory)):
        return measure_on_loop(factory), source_file(innermost(factory))
    sample = make_sample(factory)
    file = source_file(sample.env)
    if sample.coroutine:
        return measure_on_loop(lambda: sample.env), file
    try:
        return measure(sample, factory), file
    finally:
        sample.close()


def measure_apart(factory: Factory) -> tuple[Profile, str | None]:
    """Make an environment in a temporary worker process and measure it.

    Raises:
        UsageError: The factory cannot be sent there, or the process died or took too long.
        Exception: The environment raised it.
    """
    name = name_of(factory)
    instead = "name a backend, so that nothing is measured"
    if why := obstacle([factory]):
        raise UsageError(f"{name} must be measured in a separate process, which {why}: {instead}")
    mode = AutoresetMode.DISABLED
    probes, spec = [partial(Probe, factory)], Process(workers=1)
    backend = open_pool(BackendOptions(probes, mode, spec, track_running=True))
    engine = Engine(backend, timeout=PROBE_SECONDS)
    scratch = tempfile.TemporaryDirectory(prefix="agym-", ignore_cleanup_errors=True)
    try:
        with scratch as folder, Envs(engine, "list") as envs:
            ((profile, file),) = envs.call("measure", folder)
    except EnvError as error:
        exception = error.exception
        raise (exception if isinstance(exception, Exception) else error) from error
    except StepTimeout as error:
        raise UsageError(
            f"making and measuring {name} took more than {PROBE_SECONDS:g} s: {instead}"
        ) from error
    except WorkerDied as error:
        end = error.signal or f"exit code {error.exitcode}"
        raise UsageError(
            f"{name} ended its process ({end}) while it was measured with random actions:"
            " fix it, or use backend='process' with on_fault='restart'"
        ) from error
    return replace(profile, name=name), file
