"""Efficiency: the share of time in which environments run, against the time of a step.

The literature predicts it from one number::

    efficiency = N·t_env / (N·t_env + t_os)

    N        number of environments, or those of one core where several cores share them
    t_env    seconds per step of one environment
    t_os     seconds per batch besides: the overhead of the runner, for any environment

With ``t_os`` measured at a very small ``t_env``, the formula predicts the whole curve, which can be
compared with other measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.reports.results import BARE, WorkloadResult

# Points of a drawn line.
CURVE_POINTS = 100

# Systems that run on one core: they are compared with one bare environment, all others with one
# per worker that has an environment.
ONE_CORE = ("agym serial", "agym sb3 process, 1 worker", "Gymnasium Sync", "SB3 Dummy")


@dataclass(frozen=True)
class Point:
    """One system at one step time; ``efficiency`` is the ideal share of the measured time."""

    step_seconds: float
    efficiency: float


def efficiency(num_envs: float, step: float, overhead: float) -> float:
    """Return the literature's ``E``.

    Args:
        num_envs: ``N``, or the environments of one core where several have a share.
        step: ``t_env``, in seconds.
        overhead: ``t_os``, in seconds per batch.
    """
    return num_envs * step / (num_envs * step + overhead)


def share_of(system: str, num_envs: float, workers: int) -> float:
    """Return the number of environments per core."""
    return num_envs / cores_of(system, num_envs, workers)


def cores_of(system: str, num_envs: float, workers: int) -> float:
    """Return the number of cores that have an environment."""
    return 1 if system in ONE_CORE else min(num_envs, workers)


def efficiency_of(work: WorkloadResult, system: str, workers: int) -> float | None:
    """Return the ideal time of the environments as a share of the measured time, if measured."""
    ratio = work.ratio(system, BARE)
    return None if ratio is None else ratio / cores_of(system, work.num_envs, workers)


def formula(
    workloads: Sequence[WorkloadResult], system: str, workers: int
) -> list[tuple[float, float]]:
    """Return the literature's prediction for other numbers of the same environment.

    ``t_os`` is taken from the smallest number that gives every worker an environment. ``workloads``
    must be ascending by number of environments.

    Returns:
        Numbers of environments with their efficiency; empty if nothing was measured.
    """
    mine = [work for work in workloads if work.row(system) is not None]
    base = next((work for work in mine if work.num_envs >= workers), None)
    bare = None if base is None else base.row(BARE)
    if base is None or bare is None:
        return []
    overhead = max(0.0, overhead_of(base, system, workers) or 0.0)
    numbers = np.geomspace(mine[0].num_envs, mine[-1].num_envs, CURVE_POINTS).tolist()
    return [(n, efficiency(share_of(system, n, workers), 1 / bare.rate, overhead)) for n in numbers]


def overhead_of(work: WorkloadResult, system: str, workers: int) -> float | None:
    """Return the seconds that a batch takes besides its environments, if measured."""
    row, bare = work.row(system), work.row(BARE)
    if row is None or bare is None:
        return None
    share = share_of(system, work.num_envs, workers)
    return work.num_envs / row.rate - share / bare.rate


def points(workloads: Sequence[WorkloadResult], system: str, workers: int) -> list[Point]:
    """Return the measurements of one system by ascending step time."""
    found = []
    for work in workloads:
        bare = work.row(BARE)
        part = efficiency_of(work, system, workers)
        if bare is not None and part is not None:
            found.append(Point(1 / bare.rate, part))
    return sorted(found, key=lambda point: point.step_seconds)
