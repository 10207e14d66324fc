"""Branches deep in an episode: with a snapshot, or with a reset and all actions again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

import agym
from benchmarks.branching.digests import digest
from benchmarks.branching.envs import PONG, backend_of, missing
from benchmarks.branching.records import BackendName, Plan
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.progress import Announce
from benchmarks.reports.results import Verdict

# How many times as fast branches must be.
FACTOR = 20.0

# A replay takes seconds: few of them suffice.
MAX_REPEATS = 3


@dataclass(frozen=True)
class DepthResult:
    """Seconds for all branches and one step, one value per repetition.

    Attributes:
        backend: agym's backend.
        restored: With one snapshot for all environments.
        replayed: With a reset and all actions of each environment.
        same: Whether the step had the same results in both ways.
    """

    backend: str
    restored: tuple[float, ...]
    replayed: tuple[float, ...]
    same: bool

    @property
    def ratio(self) -> float:
        """How many times as fast the snapshot was."""
        return median(a / b for a, b in zip(self.replayed, self.restored, strict=True))


def measure_depth(backend: BackendName, plan: Plan, announce: Announce) -> DepthResult | None:
    """Measure both ways in turns; ``None`` if Pong is not installed."""
    if missing(PONG) is not None:
        return None
    with agym.make(
        PONG.env_id, plan.num_envs, backend=backend_of(PONG, backend, plan.workers),
        autoreset="next_step",
    ) as envs:  # fmt: skip
        return _deepen(envs, backend.value, plan, announce)


def _deepen(envs: agym.Envs[Any, Any], backend: str, plan: Plan, announce: Announce) -> DepthResult:
    space = envs.single_action_space
    space.seed(plan.seed)
    actions = [space.sample() for _ in range(plan.depth)]
    last = [space.sample() for _ in range(plan.num_envs)]
    seeds = [plan.seed] * plan.num_envs

    def replay() -> None:
        envs.reset(seed=seeds)
        for action in actions:
            envs.step([action] * plan.num_envs)

    announce("to the depth")
    replay()
    snapshot = envs[0].snapshot()

    def restore() -> None:
        envs.restore(snapshot)

    times: dict[str, list[float]] = {"restored": [], "replayed": []}
    results = set()
    repeats = min(plan.repeats, MAX_REPEATS)
    for turn, name in in_turns([*times], repeats):
        announce(f"{turn + 1}/{repeats} {name}")
        started = time.perf_counter()
        (restore if name == "restored" else replay)()
        result = envs.step(last)
        times[name].append(time.perf_counter() - started)
        results.add(digest([[*column] for column in result]))
    restored, replayed = (tuple(times[name]) for name in ("restored", "replayed"))
    return DepthResult(backend, restored, replayed, len(results) == 1)


def judge_depth(results: Sequence[DepthResult]) -> list[Verdict]:
    """Compare with the target."""
    text = f"branches of {PONG.name} by a snapshot, against a replay"
    return [Verdict.on_ratio(f"{each.backend}: {text}", FACTOR, each.ratio) for each in results]


def depth_table(results: Sequence[DepthResult], plan: Plan) -> Table:
    """Return a table with a line per backend."""
    table = Table(
        title=f"{plan.num_envs} branches of {PONG.name} at depth {plan.depth}, and one step of each"
    )
    table.add_column("backend")
    for name in ("restored, ms", "replayed, ms", "ratio", "the same step"):
        table.add_column(name, justify="right")
    for each in results:
        table.add_row(
            each.backend,
            *(f"{1e3 * median(column):,.1f}" for column in (each.restored, each.replayed)),
            f"{each.ratio:.0f}", "yes" if each.same else "NO",
        )  # fmt: skip
    return table
