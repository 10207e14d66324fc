"""The plan of a run: the size of each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Part(Enum):
    """The parts of the command."""

    exact = "exact"
    cost = "cost"
    depth = "depth"
    run = "run"
    memory = "memory"


class BackendName(Enum):
    """The backends on which a snapshot is restored within one batch."""

    serial = "serial"
    process = "process"


@dataclass(frozen=True)
class Game:
    """An environment to measure.

    Attributes:
        env_id: Its id.
        kwargs: Its keywords.
        module: The package that it needs.
        remedy: How to install that.
        note: Distinguishes it from another environment with its id, in tables.
    """

    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    module: str = "gymnasium"
    remedy: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """Its name in tables, without the module that registers it."""
        return self.env_id.rpartition(":")[2] + self.note


@dataclass(frozen=True)
class Plan:
    """The sizes of the parts.

    Attributes:
        points: Branch points of each environment.
        batch: Environments that are stepped together there.
        seconds: Seconds per slice of a cost.
        repeats: Number of slices of each system.
        num_envs: Environments of the costs, the branches and the saved runs.
        depth: Steps before the branches.
        operations: Operations after a run was saved.
        before: Steps before it was saved.
        snapshots: Snapshots that are held.
        warm_up: Snapshots that are taken and dropped before.
        workers: Worker processes of the process backend.
        seed: Seed of environments, actions and branch points.
    """

    points: int = 1000
    batch: int = 20
    seconds: float = 0.2
    repeats: int = 7
    num_envs: int = 64
    depth: int = 200
    operations: int = 1000
    before: int = 300
    snapshots: int = 10_000
    warm_up: int = 1000
    workers: int = 2
    seed: int = 0


# A little of everything, to test the command.
QUICK = Plan(
    points=6, batch=3, seconds=0.005, repeats=2, num_envs=3, depth=10, operations=40, before=20,
    snapshots=40, warm_up=20,
)  # fmt: skip
