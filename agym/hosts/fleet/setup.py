"""What hosts need of the ``fleet`` option, and what they count for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agym.hosts.base import Factory, OneShotFactory
from agym.hosts.fleet.rate_limit import RateLimiter
from agym.protocol.metrics.gauges import Gauges


@dataclass(frozen=True)
class FleetSetup:
    """The options that are on, for all hosts of one ``make``.

    Attributes:
        spares: Spares of each host.
        limiter: Gives turns; ``None`` for no limit.
        hedge: Seconds until a step is made a second time; ``None`` for never.
    """

    spares: int = 0
    limiter: RateLimiter | None = None
    hedge: float | None = None


class FleetCounts:
    """What a host counts, in the gauges of its environments."""

    def __init__(self, first: int) -> None:
        """Count for a host whose first environment has the id ``first``."""
        self._first = first

    def attach(self, gauges: Gauges) -> None:
        """Count in ``gauges`` from now on."""
        self._arrays = gauges.arrays

    def count(self, gauge: str, i: int, by: int = 1) -> None:
        """Add to a gauge of the host's environment ``i``."""
        self._arrays[gauge][self._first + i] += by


def stand_in_key(factory: Factory) -> object:
    """Return what is equal for factories whose environments may stand in for each other.

    These are the same object, or call the same function with the same arguments. Functions that
    are made in a loop are different, because they may remember different things.
    """
    if isinstance(factory, OneShotFactory):
        factory = factory.factory
    given: list[Any] = []
    while isinstance(factory, partial):
        given += map(id, factory.args)
        # Gymnasium's checker tests one environment, and the others are alike.
        given += [
            (name, id(value))
            for name, value in sorted(factory.keywords.items())
            if name != "disable_env_checker"
        ]
        factory = factory.func
    return id(factory), *given


def spare_factories(factories: Sequence[Factory], spares: int) -> list[Factory]:
    """Return the factories of a host's spares: the latest of each kind of environment, in turns."""
    latest = {stand_in_key(factory): factory for factory in factories}
    if len(latest) == 1:
        (only,) = latest.values()
        return [only] * min(spares, len(factories))
    return [*factories][:spares]
