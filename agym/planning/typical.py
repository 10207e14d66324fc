"""The costs of machines that were not measured: a typical one, and the extremes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from agym._system.cpus import available_cores
from agym.planning.model import Cost, Curve, Machine, worker_counts

# A measured cost may differ from the typical one by at most this factor.
PLAUSIBLE = 4.0

# The work at both ends of an imagined curve, in seconds.
ENDS = 20e-6, 6e-3

# Returns the overhead and the slowdown of a number of workers.
Line = Callable[[int], tuple[float, float]]

# The costs of a current machine.
TYPICAL = {
    "serial": Cost(10e-6, 0.0, 0.6e-6, 0.1e-9, 1e-6, 0.1e-9),
    "thread": Cost(20e-6, 20e-6, 0.6e-6, 0.1e-9, 1e-6, 0.1e-9),
    "asyncio": Cost(25e-6, 0.0, 8e-6, 0.1e-9, 1e-6, 0.1e-9),
    "process": Cost(0.0, 0.0, 0.6e-6, 0.1e-9, 4e-6, 0.4e-9),
}

# Seconds that worker processes take to start.
TYPICAL_START = 0.6


def typical(cores: int | None = None) -> Machine:
    """Return the costs of a current machine, without measuring this one."""
    return _imagined(cores, TYPICAL, TYPICAL_START, lambda _: (60e-6, 1.2), lambda _: (120e-6, 1.4))


def extremes(cores: int | None = None) -> tuple[Machine, Machine]:
    """Return costs below and above any machine's: a choice that is best with both is certain.

    On the one, processes compute as fast as if each were alone; on the other, they take turns.
    """
    cores = cores or available_cores()
    low, high = dict(TYPICAL), dict(TYPICAL)
    for name in ("thread", "asyncio", "process"):
        high[name] = _times(PLAUSIBLE, TYPICAL[name])
        low[name] = _times(1 / PLAUSIBLE, TYPICAL[name])
    return (
        _imagined(cores, low, 0.0, lambda _: (20e-6, 1.0), lambda _: (20e-6, 1.0)),
        _imagined(cores, high, 4 * TYPICAL_START, lambda k: (200e-6, k), lambda k: (200e-6, k)),
    )


def _imagined(
    cores: int | None,
    costs: dict[str, Cost],
    start: float,
    usual: Line,
    worst: Line,
) -> Machine:
    """Return a machine whose curves are lines."""
    cores = cores or available_cores()
    curves = {}
    for k in worker_counts(cores):
        lines = (tuple(line(k)[0] + line(k)[1] * x for x in ENDS) for line in (usual, worst))
        curves[k] = Curve(ENDS, *lines)
    return Machine(cores, costs, curves, {1: start})


def plausible(backend: str, cost: Cost) -> Cost:
    """Limit costs that are kept, because the machine may have been busy just now."""
    usual = TYPICAL[backend]
    cost = _pointwise(max, cost, _times(1 / PLAUSIBLE, usual))
    return _pointwise(min, cost, _times(PLAUSIBLE, usual))


def _times(factor: float, cost: Cost) -> Cost:
    return Cost(*(value * factor for value in asdict(cost).values()))


def _pointwise(function: Callable[[float, float], float], one: Cost, other: Cost) -> Cost:
    return Cost(*map(function, asdict(one).values(), asdict(other).values()))
