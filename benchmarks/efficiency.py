"""Efficiency: the part of the time in which environments run, against how long a step takes.

The literature predicts it from one number::

    efficiency = N·t_env / (N·t_env + t_os)

    N        environments, or those of one core where several have a share
    t_env    seconds that a step of one environment takes
    t_os     seconds that a batch takes besides: what the runner costs, for any environment

With ``t_os`` taken where ``t_env`` is next to nothing, the whole curve is predicted, and what is
measured elsewhere can be held against it. The formula itself is
:func:`agym.planning.model.efficiency`, a special case of what plans go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agym.planning.model import efficiency
from benchmarks.results import BARE, WorkResult

# Of a line that is drawn.
CURVE_POINTS = 100

# What runs on one core: it is held against one bare environment, all others against one for
# each worker that has an environment.
ONE_CORE = ("agym serial", "agym sb3 process, 1 worker", "Gymnasium Sync", "SB3 Dummy")


@dataclass(frozen=True)
class Point:
    """One system at one step time.

    Attributes:
        step_seconds: What a step of the bare environment takes.
        efficiency: Time in which the environments would be done, as a part of what it took.
    """

    step_seconds: float
    efficiency: float


def share_of(system: str, num_envs: float, workers: int) -> float:
    """The environments of one core."""
    return num_envs / cores_of(system, num_envs, workers)


def cores_of(system: str, num_envs: float, workers: int) -> float:
    """The cores that have an environment."""
    return 1 if system in ONE_CORE else min(num_envs, workers)


def efficiency_of(work: WorkResult, system: str, workers: int) -> float | None:
    """Time in which environments would be done, as a part of what it took, if measured."""
    ratio = work.ratio(system, BARE)
    return None if ratio is None else ratio / cores_of(system, work.num_envs, workers)


def formula(works: Sequence[WorkResult], system: str, workers: int) -> list[tuple[float, float]]:
    """What the literature predicts for other numbers of the same environment.

    ``t_os`` is taken from the smallest number that gives every worker an environment.

    Args:
        works: What was measured of one environment, by ascending number.
        system: The system.
        workers: Its workers.

    Returns:
        Numbers of environments with their efficiency; none if nothing was measured.
    """
    mine = [work for work in works if work.row(system) is not None]
    base = next((work for work in mine if work.num_envs >= workers), None)
    bare = None if base is None else base.row(BARE)
    if base is None or bare is None:
        return []
    overhead = max(0.0, overhead_of(base, system, workers) or 0.0)
    numbers = np.geomspace(mine[0].num_envs, mine[-1].num_envs, CURVE_POINTS).tolist()
    return [(n, efficiency(share_of(system, n, workers), 1 / bare.rate, overhead)) for n in numbers]


def overhead_of(work: WorkResult, system: str, workers: int) -> float | None:
    """What a batch costs besides its environments, in seconds, if both were measured."""
    row, bare = work.row(system), work.row(BARE)
    if row is None or bare is None:
        return None
    share = share_of(system, work.num_envs, workers)
    return work.num_envs / row.rate - share / bare.rate


def points(works: Sequence[WorkResult], system: str, workers: int) -> list[Point]:
    """What was measured of one system, by ascending step time."""
    found = []
    for work in works:
        bare = work.row(BARE)
        part = efficiency_of(work, system, workers)
        if bare is not None and part is not None:
            found.append(Point(1 / bare.rate, part))
    return sorted(found, key=lambda point: point.step_seconds)
