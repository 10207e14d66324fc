"""Chooses the backend for ``backend="auto"``, measuring one environment if necessary.

The cheapest rule that decides is used::

    faults must be handled                     -> process, and nothing is tried in this process
    one environment with the sync API          -> serial
    it was measured before                     -> the fastest, if it is clearly faster than serial
    its code is the user's                     -> serial, or thread if there is an event loop
    otherwise make one and measure it          -> the same

``planning/model.py`` predicts batch times, and ``planning/choice.py`` decides. Measurements of real
runs replace the predictions (:func:`learn_from`).

A user's environment is never stepped before the caller steps it: it may write files, move a robot,
or end this process. ``agym.plan`` measures it in a separate process, and stores the profile on disk
for the next choice.

A measured environment is closed and never returned to the caller, because its counters or random
numbers are no longer those of a new one. If construction is slow, it is measured only once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from statistics import median

from agym.core._system.cpus import available_cores, core_numbers
from agym.core._system.isolation import NoRunningLoop
from agym.core._system.load import Load
from agym.core.backends.registry import refuse_import
from agym.core.engine.calls.traffic import Traffic
from agym.core.hosts.factories import (
    Factories,
    Factory,
    OneShotFactory,
    describe_first,
    plain_factory,
    reraise,
)
from agym.core.planning.caching import (
    recall_measured,
    recall_profile,
    remember_measured,
    remember_profile,
    source_file,
)
from agym.core.planning.choice import Plan, decide, describe_basis, explain, readable
from agym.core.planning.model import Candidate, Profile, Requirements, candidates
from agym.core.planning.sampling import (
    CHEAP_SECONDS,
    is_trusted,
    make_sample,
    makes_sync,
    measure,
    name_of,
    obstacle,
)

# How many seconds to watch the cores for other programs.
LOOK_SECONDS = 0.06

# A choice is refuted if a batch takes this many times as long as predicted for the caller's thread.
REFUTED = 1.2

# If cores share an execution unit, a worker's step takes up to this many times as long.
SLOWED = 2.0


def choose_backend(
    factories: Factories, needs: Requirements, sample: Factory | None = None
) -> tuple[Plan, Factories]:
    """Choose a backend for environments.

    Args:
        factories: The factories of the environments; the first may be called here.
        needs: The caller's requirements.
        sample: Makes a similar environment, which is measured instead of the first.

    Returns:
        The plan; and the factories to use, the first of which may return an environment that
        already exists.
    """
    measured = sample or plain_factory(factories[0])
    name = name_of(measured)
    if needs.fault_tolerant:
        return _safe(name, factories, needs), factories
    if needs.num_envs == 1 and needs.blocking and needs.workers is None:
        why = "one environment gains nothing from workers"
        return _by_rule(name, needs, "serial", why), factories
    refuse_import()
    profile, why = recall_profile(measured), ""
    if profile is None:
        if sample is None and not is_trusted(measured):
            return _choose_unknown(name, factories, needs)
        profile, why = _measure(measured)
    if profile is None:
        return _unmeasured(name, factories, needs, why), factories
    return plan_for(profile, factories, needs, measured), factories


def _choose_unknown(name: str, factories: Factories, needs: Requirements) -> tuple[Plan, Factories]:
    """Choose for environments with unknown code that were not measured."""
    factory = factories[0]
    wants_processes = needs.workers is not None and not obstacle(factories)
    if wants_processes or makes_sync(factory):
        return _unmeasured(name, factories, needs), factories
    # An environment must be made, to know whether it is a coroutine environment.
    on_loop = _by_rule(name, needs, "asyncio", "it is a coroutine environment")
    if needs.blocking and needs.workers is None:
        with NoRunningLoop():
            coroutines, factories = describe_first(factories)
        return on_loop if coroutines else _unmeasured(name, factories, needs), factories
    try:
        sample = make_sample(factory)
    except (Exception, SystemExit) as error:
        # Let the backend raise the same error, where it is reported with its environment.
        failing = OneShotFactory(partial(reraise, error), factory)
        return _by_rule(name, needs, "serial", "it cannot be made"), [failing, *factories[1:]]
    plan = on_loop if sample.coroutine else _unmeasured(name, factories, needs)
    if sample.existing:
        plan = _by_rule(name, needs, "serial", "its factory returns the same environment each time")
    if plan.backend in ("serial", "asyncio"):
        env = sample.env
        return plan, [OneShotFactory(lambda: env, factory), *factories[1:]]
    sample.close()  # the thread makes its own
    return plan, factories


def _measure(factory: Factory) -> tuple[Profile | None, str]:
    """Make one environment, and measure it unless it shows a window.

    Returns:
        Its profile; or ``None``, and the reason.
    """
    try:
        with closing(make_sample(factory)) as sample:
            if sample.shown:
                return None, "it shows a window"
            profile = measure(sample, factory)
            if sample.construction > CHEAP_SECONDS:
                remember_profile(factory, profile, source_file(sample.env))
            return profile, ""
    except (Exception, SystemExit) as error:
        return None, f"it raised {type(error).__name__} when it was measured"


def plan_for(
    profile: Profile, factories: Factories, needs: Requirements, measured: Factory
) -> Plan:
    """Plan for measured environments.

    Args:
        profile: The profile of one environment.
        factories: The factories of all environments.
        needs: The caller's requirements.
        measured: The factory of the environment that was measured.
    """
    plan = _plan(profile, needs, measured)
    if plan.backend == "process" and not needs.obstacle:
        # Only now it matters whether worker processes can run them, and which cores are free.
        others = busy_cores() if needs.blocking else 0
        needs = replace(needs, others=others, obstacle=obstacle(factories))
        plan = _plan(profile, needs, measured)
    return plan


def _plan(profile: Profile, needs: Requirements, measured: Factory) -> Plan:
    took = recall_measured(measured, needs.num_envs)
    options = [replace(each, measured=took.get(each.name)) for each in candidates(profile, needs)]
    chosen, reason = decide(options, workers_wanted=needs.workers is not None)
    why = f"{explain(chosen, options)}. {reason} {describe_basis(profile, needs)}"
    return Plan(profile.name, needs.num_envs, tuple(options), chosen, why, profile)


def busy_cores() -> int:
    """Return how many of the cores for worker processes are busy while this thread waits.

    Other threads and other children of this program count like other programs.
    """
    load = Load()
    time.sleep(LOOK_SECONDS)
    use = load.read()
    cores = available_cores()
    # A CPU quota may be less than all cores: other programs can then use the rest.
    busy = round(use.program + use.workers + use.others) - (len(core_numbers()) - cores)
    return min(cores, max(0, busy))


def _unmeasured(
    name: str, factories: Factories, needs: Requirements, why: str = "it has not been measured yet"
) -> Plan:
    """Plan without a profile, so that an unknown environment cannot do harm."""
    if needs.workers is not None:
        return _by_rule(name, needs, "thread" if obstacle(factories) else "process", why)
    return _by_rule(name, needs, "serial" if needs.blocking else "thread", why)


def _safe(name: str, factories: Factories, needs: Requirements) -> Plan:
    """Plan for handling faults; environments that may hang or crash are not tried here."""
    why_not = obstacle(factories)
    if not why_not:
        return _by_rule(name, needs, "process", "workers that fail can be replaced")
    return _by_rule(name, needs, "thread", f"threads that hang can be replaced; process {why_not}")


def _by_rule(name: str, needs: Requirements, backend: str, why: str) -> Plan:
    chosen = Candidate(backend, None if backend == "serial" else needs.workers, None)
    return Plan(name, needs.num_envs, (chosen,), chosen, f"{backend}: {why}.")


def learn_from(plan: Plan, factory: Factory, traffic: Traffic) -> None:
    """Check a plan with its first batches.

    Args:
        plan: The plan.
        factory: The factory under which its measurements are stored.
        traffic: Times the batches.
    """
    serial = next((each for each in plan.candidates if each.backend == "serial"), None)
    if plan.backend in ("serial", "asyncio") or serial is None or serial.predicted is None:
        return
    if not serial.remark:  # the time that a loop gains by not being blocked cannot be measured
        traffic.learn = partial(_compare, plan, factory, serial.seconds, traffic)


def _compare(
    plan: Plan, factory: Factory, serial: float, traffic: Traffic, steps: Sequence[tuple[int, int]]
) -> None:
    """Store the batch time if it refutes the plan."""
    batch = median(took for took, _ in steps) / 1e9
    together = median(together for _, together in steps) / 1e9
    # The caller's steps may take longer than the random steps that were measured. Then their time
    # in the caller's thread is unknown.
    if batch <= REFUTED * serial or together > SLOWED * serial:
        return
    with suppress(Exception):  # a step must not fail because a file cannot be written
        remember_measured(factory, plan.num_envs, {plan.chosen.name: batch})
    traffic.remark = (
        f"{plan.chosen.name} took {readable(batch)} per batch, but serial is predicted to take"
        f" {readable(serial)}: backend='auto' will take this into account next time."
    )
