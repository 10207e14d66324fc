"""Chooses the backend for ``backend="auto"``, measuring one environment if necessary.

The cheapest rule that decides is used::

    faults are to be handled                   -> process, and nothing is tried in this process
    one environment with the sync API          -> serial
    it was measured before                     -> plan
    its code is the user's own                 -> serial, or thread beside an event loop
    otherwise make one and measure it          -> plan, if all plausible costs give the same choice
    the choice depends on the costs            -> plan with this machine's measured costs

What a plan prefers is decided by ``planning/choice.py``. What a real run has measured replaces the
prediction (``api/auto/learning.py``).

A user's own environment is never stepped before the caller steps it: it may write files, move a
robot, or end this process. ``agym.plan`` measures it in a separate process, and keeps the profile
on disk for the next choice.

A measured environment is closed and never handed to the caller, since its own counters or random
numbers are no longer those of a new one. If construction is slow, it is measured only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agym._system.isolation import NoRunningLoop
from agym.api.auto.machine import remembered_costs, this_machine
from agym.backends.registry import refuse_import
from agym.hosts.factories import Factory, OneShotFactory, describe_first, reraise
from agym.planning.caching import (
    recall_measured,
    recall_profile,
    remember_profile,
    source_file,
)
from agym.planning.choice import Decision, decide, describe_costs, explain
from agym.planning.model import Candidate, Machine, Profile, Requirements, candidates
from agym.planning.plans import Plan
from agym.planning.profiling import measure
from agym.planning.sampling import (
    CHEAP_SECONDS,
    is_trusted,
    make_sample,
    makes_sync,
    name_of,
    obstacle,
)
from agym.planning.typical import extremes, typical


@dataclass(frozen=True)
class BackendChoice:
    """A backend for environments.

    Attributes:
        plan: The plan that chose it.
        factories: The factories to use; the first may return an environment made already.
    """

    plan: Plan
    factories: Sequence[Factory]


def choose_backend(
    factories: Sequence[Factory], needs: Requirements, sample: Factory | None = None
) -> BackendChoice:
    """Choose a backend for environments.

    Args:
        factories: Their factories; the first may be called here.
        needs: The caller's requirements.
        sample: Makes an environment like these, to be measured instead of the first.
    """
    measured = sample or factories[0]
    name = name_of(measured)
    if needs.fault_tolerant:
        return BackendChoice(_safe(name, factories, needs), factories)
    if needs.num_envs == 1 and needs.blocking and needs.workers is None:
        why = "one environment gains nothing from workers"
        return BackendChoice(_by_rule(name, needs, "serial", why), factories)
    refuse_import()
    profile, why = recall_profile(measured), ""
    may_be_stepped = sample is not None or is_trusted(measured)
    try:
        if profile is None and may_be_stepped:
            profile, why = _measure(measured)
        elif profile is None:
            return _choose_unknown(name, factories, needs)
    except (Exception, SystemExit) as error:
        if sample is None:
            # Let the backend raise the same error, where it is reported with its environment.
            failing = OneShotFactory(partial(reraise, error), factories[0])
            plan = _by_rule(name, needs, "serial", "it cannot be made")
            return BackendChoice(plan, [failing, *factories[1:]])
        why = f"a sample of it raised {type(error).__name__}"
    if profile is None:
        return BackendChoice(_unmeasured(name, factories, needs, why), factories)
    return BackendChoice(plan_for(profile, factories, needs, measured), factories)


def _choose_unknown(name: str, factories: Sequence[Factory], needs: Requirements) -> BackendChoice:
    """Choose for environments with unknown code that were not measured.

    Raises:
        Exception: The constructor's own exception.
    """
    factory = factories[0]
    if needs.workers is not None and not obstacle(factories):
        return BackendChoice(_unmeasured(name, factories, needs), factories)
    if makes_sync(factory):
        return BackendChoice(_unmeasured(name, factories, needs), factories)
    # One must be made, to know whether it is a coroutine environment.
    if needs.blocking and needs.workers is None:
        with NoRunningLoop():
            coroutines, factories = describe_first(factories)
        plan = (
            _on_loops(name, factories, needs) if coroutines else _unmeasured(name, factories, needs)
        )
        return BackendChoice(plan, factories)
    sample = make_sample(factory)
    if sample.coroutine:
        plan = _on_loops(name, factories, needs)
    elif sample.existing:
        plan = _by_rule(name, needs, "serial", "its factory gives the same environment each time")
    else:
        plan = _unmeasured(name, factories, needs)
    if plan.backend in ("serial", "asyncio"):
        env = sample.env
        return BackendChoice(plan, [OneShotFactory(lambda: env, factory), *factories[1:]])
    sample.close()  # a thread makes its own
    return BackendChoice(plan, factories)


def _measure(factory: Factory) -> tuple[Profile | None, str]:
    """Make one environment, and measure it unless it shows a window.

    Returns:
        Its profile; or ``None``, and why it has none.

    Raises:
        Exception: The constructor's own exception.
    """
    sample = make_sample(factory)
    try:
        if sample.shown:
            return None, "it shows a window"
        try:
            profile = measure(sample, factory)
        except Exception as error:
            return None, f"it raised {type(error).__name__} when it was measured"
        if sample.construction > CHEAP_SECONDS:
            remember_profile(factory, profile, source_file(sample.env))
        return profile, ""
    finally:
        sample.close()


def plan_for(
    profile: Profile,
    factories: Sequence[Factory],
    needs: Requirements,
    measured: Factory | None = None,
    machine: Machine | None = None,
) -> Plan:
    """Plan for measured environments.

    Args:
        profile: The profile of one.
        factories: Their factories.
        needs: The caller's requirements.
        measured: The factory of the environment that was measured; ``None`` for the first.
        machine: The costs to predict with; ``None`` for this machine's, which are measured only
            if the choice depends on them.
    """
    took: Mapping[str, float] = {}
    if needs.usual:
        took = recall_measured(measured or factories[0], needs.num_envs)
    if machine is None and _certain(profile, needs, took):
        machine = typical()
    elif not needs.obstacle:
        needs = replace(needs, obstacle=obstacle(factories))
    if machine is None:
        # They are not measured if that would block an event loop, or cannot matter.
        machine = this_machine() if needs.blocking and not needs.obstacle else remembered_costs()
    found, decision = _decide(profile, machine, needs, took)
    chosen = decision.chosen
    if chosen is None:
        # No backend meets all requirements: let the chosen one raise the error.
        chosen = found[0]
        why = f"{chosen.name}, though it {chosen.remark}: no other backend can be chosen."
    else:
        why = f"{explain(decision, found, needs)} {describe_costs(machine)}"
    return Plan(profile.name, needs.num_envs, tuple(found), chosen, why, profile, machine)


def _decide(
    profile: Profile, machine: Machine, needs: Requirements, took: Mapping[str, float]
) -> tuple[list[Candidate], Decision]:
    """List the candidates, with what was measured of them, and decide."""
    found = [
        replace(one, measured=took.get(one.name)) for one in candidates(profile, machine, needs)
    ]
    return found, decide(found, workers_wanted=needs.workers is not None)


def _certain(profile: Profile, needs: Requirements, took: Mapping[str, float]) -> bool:
    """Return whether all machines would lead to the same choice, one that needs no pickling."""
    low, high = (_decide(profile, extreme, needs, took)[1].chosen for extreme in extremes())
    same = low is not None and high is not None and low.name == high.name
    return same and low is not None and low.backend != "process"


def _unmeasured(
    name: str,
    factories: Sequence[Factory],
    needs: Requirements,
    why: str = "nothing is known of it yet",
) -> Plan:
    """Plan without a profile, so that the environment cannot do harm."""
    if needs.workers is not None:
        return _by_rule(name, needs, "thread" if obstacle(factories) else "process", why)
    return _by_rule(name, needs, "serial" if needs.blocking else "thread", why)


def _on_loops(name: str, factories: Sequence[Factory], needs: Requirements) -> Plan:
    """Plan for coroutine environments."""
    if needs.workers is not None and not obstacle(factories):
        return _by_rule(name, needs, "process", "loops in as many workers as asked for")
    return _by_rule(name, needs, "asyncio", "it is a coroutine environment")


def _safe(name: str, factories: Sequence[Factory], needs: Requirements) -> Plan:
    """Plan for handling faults; an environment that may hang or crash is not tried here."""
    why_not = obstacle(factories)
    if not why_not:
        return _by_rule(name, needs, "process", "what fails can be replaced there")
    return _by_rule(name, needs, "thread", f"what hangs can be replaced there; process {why_not}")


def _by_rule(name: str, needs: Requirements, backend: str, why: str) -> Plan:
    chosen = Candidate(backend, None if backend == "serial" else needs.workers, None)
    return Plan(name, needs.num_envs, (chosen,), chosen, f"{backend}: {why}.")
