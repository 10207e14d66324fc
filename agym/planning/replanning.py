"""Replanning: a plan that is made again when environments are not any more what they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agym.core.making import Factory
from agym.planning.model import Ask
from agym.planning.placing import plan_for
from agym.planning.plans import Plan
from agym.planning.profiling import LEAST_WAITING
from agym.planning.transport import known

# To move takes some time, and predictions are not that exact: it has to be worth it.
WORTHWHILE = 0.8


class Replanner:
    """Plans again for environments whose steps take longer than they did, or less."""

    def __init__(self, plan: Plan, factories: Sequence[Factory], ask: Ask) -> None:
        """Begin with a plan for environments that were measured."""
        self._plan = plan
        self._factories = factories
        self._ask = ask

    def __call__(self, ratio: float, waiting: float) -> Plan | None:
        """Plan again.

        Args:
            ratio: A step takes so many times as long as when the plan before was made.
            waiting: The share of it spent waiting, 0 to 1.

        Returns:
            A plan that leads elsewhere; ``None`` to stay.
        """
        old = self._plan
        profile = old.profile
        assert profile is not None
        waiting = waiting if waiting >= LEAST_WAITING else 0.0
        profile = replace(profile, step=profile.step * ratio, waiting=waiting)
        new = plan_for(profile, self._factories, self._ask, known())
        here = old.backend, old.workers
        stay = next((c for c in new.candidates if (c.backend, c.workers) == here), None)
        if (new.backend, new.workers) == here or (
            stay is not None
            and not stay.remark
            and (new.chosen.predicted or 0.0) > (stay.predicted or 0.0) * WORTHWHILE
        ):
            self._plan = replace(old, profile=profile)
            return None
        self._plan = new
        return new
