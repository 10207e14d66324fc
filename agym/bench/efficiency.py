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

from agym.bench.results import BARE, BOUND, WorkResult

# What runs on one core: it is held against one bare environment, all others against the bound.
ONE_CORE = ("agym serial", "Gymnasium Sync")


@dataclass(frozen=True)
class Point:
    """One system at one step time.

    Attributes:
        step_seconds: What a step of the bare environment takes.
        efficiency: Time in which the environments would be done, as a part of what it took.
    """

    step_seconds: float
    efficiency: float


def share_of(system: str, num_envs: int, workers: int) -> float:
    """The environments of one core."""
    return num_envs if system in ONE_CORE else num_envs / workers


def overhead_of(work: WorkResult, system: str, workers: int) -> float | None:
    """What a batch costs besides its environments, in seconds, if both were measured."""
    row, bare = work.row(system), work.row(BARE)
    if row is None or bare is None:
        return None
    share = share_of(system, work.num_envs, workers)
    return work.num_envs / row.rate - share / bare.rate


def points(works: Sequence[WorkResult], system: str) -> list[Point]:
    """What was measured of one system, by ascending step time."""
    found = []
    for work in works:
        bare = work.row(BARE)
        part = work.ratio(system, BARE if system in ONE_CORE else BOUND)
        if bare is not None and part is not None:
            found.append(Point(1 / bare.rate, part))
    return sorted(found, key=lambda point: point.step_seconds)
