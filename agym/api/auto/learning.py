"""Compares the first real batches with the prediction that led to a backend.

Where the caller's own thread would have been faster, the choice is refuted: the measured time is
kept for a day and replaces the prediction in the next choice, the machine's costs are forgotten and
will be measured again, and ``repr`` and ``stats()`` say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from statistics import median

from agym.api.auto.machine import forget_machine
from agym.engine.stats import Traffic
from agym.hosts.factories import Factory
from agym.planning.caching import remember_measured
from agym.planning.choice import readable
from agym.planning.model import Machine
from agym.planning.plans import Plan

# A choice is refuted if a batch takes this many times as long as in the caller's thread.
REFUTED = 1.2

# Where cores share an execution unit, a worker's step takes up to this many times as long.
SLOWED = 2.0


def learn_from(plan: Plan, factory: Factory, traffic: Traffic) -> None:
    """Check a plan with the first batches that it leads to.

    Args:
        plan: The plan.
        factory: The factory by which its measurements are kept.
        traffic: Times the batches.
    """
    serial = next((one for one in plan.candidates if one.backend == "serial"), None)
    if plan.backend in ("serial", "asyncio") or serial is None or serial.predicted is None:
        return
    # What a loop is spared by not being blocked cannot be measured here.
    if serial.remark or plan.machine is None:
        return
    traffic.learn = partial(_compare, plan, plan.machine, factory, serial.predicted, traffic)


def _compare(
    plan: Plan,
    machine: Machine,
    factory: Factory,
    serial: float,
    traffic: Traffic,
    steps: Sequence[tuple[int, int]],
) -> None:
    """Keep what batches took if that refutes the plan."""
    batch = median(took for took, _ in steps) / 1e9
    together = median(together for _, together in steps) / 1e9
    # Steps that the caller plays may take longer than the random ones that were measured. Then
    # nothing is known of what they would take in its thread.
    if batch <= REFUTED * serial or together > SLOWED * serial:
        return
    with suppress(Exception):  # a step must not fail because something cannot be kept
        remember_measured(factory, plan.num_envs, {plan.chosen.name: batch})
        forget_machine(machine)
    traffic.remark = (
        f"{plan.chosen.name} took {readable(batch)} per batch, where serial is predicted to take"
        f" {readable(serial)}: the next time backend='auto' takes that into account."
    )
