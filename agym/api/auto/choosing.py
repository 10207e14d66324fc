"""Placing: what ``backend="auto"`` does: it plans, where need be from one environment measured.

The order is from what costs nothing to what costs most::

    one environment under the sync face        -> serial
    faults are to be handled                   -> processes, and nothing is tried in this one
    it was measured before                     -> plan
    its code is somebody's own                 -> serial, or threads beside an event loop
    make one, measure it                       -> plan with costs that no machine is beyond
    that leaves it open                        -> plan with this machine's own costs

Nobody's own environment is stepped before the caller steps it: it may write files, move a robot, or
end this very process. ``agym.plan`` measures it, in a process of its own, and what it found is kept
on disk for the next choice.

An environment that was stepped is closed, and never handed over: what it counts or draws by itself
would not be where a new one begins. One that is dear to construct is measured once only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from agym._system.no_running_loop import NoRunningLoop
from agym.api.auto.transport import extremes, known, this_machine, typical
from agym.backends.registry import refuse_import
from agym.hosts.base import Factory, OneShotFactory, describe_first, reraise
from agym.planning.caching import recall_profile, remember_profile, source_file
from agym.planning.model import Candidate, Profile, Requirements, Transport, candidates, choose
from agym.planning.plans import Plan, explain
from agym.planning.profiling import measure
from agym.planning.sampling import (
    CHEAP_SECONDS,
    is_known,
    make_sample,
    makes_sync,
    name_of,
    obstacle,
)


@dataclass(frozen=True)
class BackendChoice:
    """Where to make environments.

    Attributes:
        plan: The plan that led there.
        factories: What makes them; the first may give the one that was measured.
    """

    plan: Plan
    factories: Sequence[Factory]


def choose_backend(factories: Sequence[Factory], ask: Requirements) -> BackendChoice:
    """Choose where environments live; the first of them may be made for that."""
    name = name_of(factories[0])
    if ask.endable:
        return BackendChoice(_safe(name, factories, ask), factories)
    if ask.num_envs == 1 and ask.blocking and ask.workers is None:
        return BackendChoice(
            _by_rule(name, ask, "serial", "one environment needs no company"), factories
        )
    refuse_import()
    profile = recall_profile(factories[0])
    if profile is not None:
        return BackendChoice(plan_for(profile, factories, ask), factories)
    here = _choose_known if is_known(factories[0]) else _choose_unknown
    try:
        return here(name, factories, ask)
    except (Exception, SystemExit) as error:
        # Whoever makes the environments meets the same error, and tells of it.
        failing = OneShotFactory(partial(reraise, error), factories[0])
        plan = _by_rule(name, ask, "serial", "it cannot be made")
        return BackendChoice(plan, [failing, *factories[1:]])


def _choose_unknown(name: str, factories: Sequence[Factory], ask: Requirements) -> BackendChoice:
    """Place environments that nobody has measured: in doubt serial.

    Raises:
        Exception: What a constructor raised.
    """
    factory = factories[0]
    if ask.workers is not None and not obstacle(factories):
        return BackendChoice(_unmeasured(name, factories, ask), factories)
    if makes_sync(factory):
        return BackendChoice(_unmeasured(name, factories, ask), factories)
    # One has to be made to see of which kind it is.
    if ask.blocking and ask.workers is None:
        with NoRunningLoop():
            coroutines, factories = describe_first(factories)
        plan = _on_loops(name, ask) if coroutines else _unmeasured(name, factories, ask)
        return BackendChoice(plan, factories)
    sample = make_sample(factory)
    if sample.coroutine:
        plan = _on_loops(name, ask)
    elif sample.given:
        plan = _by_rule(name, ask, "serial", "its factory gives the same environment each time")
    else:
        plan = _unmeasured(name, factories, ask)
    if plan.backend in ("serial", "asyncio"):
        env = sample.env
        return BackendChoice(plan, [OneShotFactory(lambda: env, factory), *factories[1:]])
    sample.close()  # a thread makes its own
    return BackendChoice(plan, factories)


def _choose_known(name: str, factories: Sequence[Factory], ask: Requirements) -> BackendChoice:
    """Make one environment, measure it unless it shows a window, and plan.

    Raises:
        Exception: What its constructor raised.
    """
    sample = make_sample(factories[0])
    try:
        if sample.shown:
            return BackendChoice(_unmeasured(name, factories, ask, "it shows a window"), factories)
        try:
            profile = measure(sample, factories[0])
        except Exception as error:
            why = f"it raised {type(error).__name__} when it was measured"
            return BackendChoice(_unmeasured(name, factories, ask, why), factories)
        if sample.construction > CHEAP_SECONDS:
            remember_profile(factories[0], profile, source_file(sample.env))
        return BackendChoice(plan_for(profile, factories, ask), factories)
    finally:
        sample.close()


def plan_for(
    profile: Profile,
    factories: Sequence[Factory],
    ask: Requirements,
    transport: Transport | None = None,
) -> Plan:
    """Plan for environments that were measured.

    Args:
        profile: What one is like.
        factories: What makes them.
        ask: What the caller wants.
        transport: What to predict with; ``None`` for this machine's own costs, unless the choice
            is clear without.
    """
    exact = transport is not None
    transport = transport or _sufficient(profile, ask)
    found = candidates(profile, transport, ask)
    chosen = choose(found)
    # To pickle is work that is not needed for other places.
    if (exact or (chosen and chosen.backend == "process")) and (why := obstacle(factories)):
        ask = replace(ask, obstacle=why)
        found = candidates(profile, transport, ask)
        chosen = choose(found)
    why = ""
    if chosen is None:
        # Nothing can do all that is asked: what works is left to the backend to say.
        chosen = found[0]
        why = f"{chosen.name}, though it {chosen.remark}: no other place can be chosen."
    return Plan(
        profile.name, ask.num_envs, tuple(found), chosen, why or explain(chosen, found, ask),
        profile, transport,
    )  # fmt: skip


def _sufficient(profile: Profile, ask: Requirements) -> Transport:
    """This machine's costs, or typical ones where the choice is the same with all.

    They are not measured where an event loop would stand still for that.
    """
    measured = this_machine if ask.blocking else known
    low, high = (choose(candidates(profile, extreme, ask)) for extreme in extremes())
    if low is not None and high is not None:
        same = (low.backend, low.workers) == (high.backend, high.workers)
        return typical() if same else measured()
    return typical()


def _unmeasured(
    name: str,
    factories: Sequence[Factory],
    ask: Requirements,
    why: str = "nothing is known of it yet",
) -> Plan:
    """Where an environment does no harm of which nothing is known."""
    if ask.workers is not None:
        return _by_rule(name, ask, "thread" if obstacle(factories) else "process", why)
    return _by_rule(name, ask, "serial" if ask.blocking else "thread", why)


def _on_loops(name: str, ask: Requirements) -> Plan:
    """Where coroutine environments live."""
    if ask.workers is not None:
        return _by_rule(name, ask, "process", "loops in as many workers as asked for")
    return _by_rule(name, ask, "asyncio", "it is a coroutine environment")


def _safe(name: str, factories: Sequence[Factory], ask: Requirements) -> Plan:
    """Where faults can be handled; an environment that may hang or crash is not tried here."""
    why_not = obstacle(factories)
    if not why_not:
        return _by_rule(name, ask, "process", "what fails can be replaced there")
    return _by_rule(name, ask, "thread", f"what hangs can be replaced there; process {why_not}")


def _by_rule(name: str, ask: Requirements, backend: str, why: str) -> Plan:
    chosen = Candidate(backend, None if backend == "serial" else ask.workers, None)
    return Plan(name, ask.num_envs, (chosen,), chosen, f"{backend}: {why}.")
