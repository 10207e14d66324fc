"""Memory of snapshots: before, while they exist, after they are deleted, and all that again.

Memory that Python's allocator keeps after the first time is reused the second time, while a leak
grows. A fresh process runs this module as a script, so that no earlier measurement hides a leak.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from rich.table import Table

import agym
from benchmarks.branching.envs import ANT, PONG, missing
from benchmarks.branching.fresh import finish, report, run_fresh
from benchmarks.branching.records import Game, Plan
from benchmarks.measuring.progress import Announce
from benchmarks.reports.results import Verdict

MEMORY_GAMES = (PONG, ANT)

# Environments whose snapshots are taken together.
NUM_ENVS = 16

# Growth that is not a leak: a share of the memory before, or bytes; the larger limit counts.
SHARE_LIMIT, BYTES_LIMIT = 0.05, 10e6

# Share of the available memory that snapshots may take.
MAX_MEMORY = 0.5

MOMENTS = ("before", "held", "after", "after again")


@dataclass(frozen=True)
class MemoryResult:
    """Resident memory at four moments, in bytes.

    Attributes:
        env: The environment.
        snapshots: Number of snapshots.
        nbytes: Size of a snapshot.
        caller: Memory of the process with the snapshots: before, with them, after, and after as
            many again.
        workers: Memory of the worker processes together, at the same moments.
        trimmed: Whether the C library was asked to return free memory to the system.
    """

    env: str
    snapshots: int
    nbytes: int
    caller: tuple[int, ...]
    workers: tuple[int, ...]
    trimmed: bool


def measure_memory(game: Game, plan: Plan, announce: Announce) -> MemoryResult | None:
    """Hold snapshots in a fresh process; ``None`` if the environment is not installed."""
    if missing(game) is not None:
        return None
    job = {
        "env_id": game.env_id, "snapshots": plan.snapshots, "warm_up": plan.warm_up,
        "workers": plan.workers, "seed": plan.seed,
    }  # fmt: skip
    found = run_fresh(__name__, job, announce)
    caller, workers = ([moment[i] for moment in found["memory"]] for i in range(2))
    return MemoryResult(
        game.name, found["snapshots"], found["nbytes"], tuple(caller), tuple(workers),
        found["trimmed"],
    )  # fmt: skip


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Take, hold and drop snapshots; return the memory at each moment."""
    with agym.make(
        job["env_id"], NUM_ENVS, backend="process", workers=job["workers"], autoreset="next_step"
    ) as envs:
        envs.reset(seed=job["seed"])
        envs.single_action_space.seed(job["seed"])
        nbytes = envs[0].snapshot().nbytes
        most = int(psutil.virtual_memory().available * MAX_MEMORY / nbytes)
        held = _take(envs, min(most, job["warm_up"]), "warm-up")
        held.clear()
        memory, trimmed = [], _trim()
        memory.append(_memory())
        held = _take(envs, min(most, job["snapshots"]), "held")
        count = len(held)
        memory.append(_memory())
        held.clear()
        _trim()
        memory.append(_memory())
        held = _take(envs, count, "again")
        held.clear()
        _trim()
        memory.append(_memory())
    return {"snapshots": count, "nbytes": nbytes, "memory": memory, "trimmed": trimmed}


def _take(envs: agym.Envs[Any, Any], count: int, what: str) -> list[agym.Snapshot]:
    """Take snapshots of all environments again and again, a random step apart."""
    space = envs.single_action_space
    held: list[agym.Snapshot] = []
    while len(held) < count:
        envs.step([space.sample() for _ in range(NUM_ENVS)])
        held += envs.snapshot([*range(min(NUM_ENVS, count - len(held)))])
        if len(held) % (50 * NUM_ENVS) == 0:
            report(f"{what}: {len(held):,} of {count:,} snapshots")
    return held


def _memory() -> tuple[int, int]:
    """Return the resident memory of this process, and of all its descendants together."""
    me = psutil.Process(os.getpid())
    workers = sum(child.memory_info().rss for child in me.children(recursive=True))
    return me.memory_info().rss, workers


def _trim() -> bool:
    """Collect garbage; return whether the C library returned free memory to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True


def judge_memory(results: Sequence[MemoryResult]) -> list[Verdict]:
    """Compare the growth with its limit."""
    verdicts = []
    for each in results:
        for name, values in (("caller", each.caller), ("workers", each.workers)):
            before, _, after, again = values
            limit = max(SHARE_LIMIT * before, BYTES_LIMIT) / 1e6
            text = f"{each.env}: growth of the {name} after {each.snapshots:,} snapshots"
            verdicts.append(Verdict.on_limit(text, limit, (after - before) / 1e6, "MB"))
            text = f"{each.env}: growth of the {name} after as many again"
            verdicts.append(Verdict.on_limit(text, limit, (again - after) / 1e6, "MB"))
    return verdicts


def memory_table(results: Sequence[MemoryResult], plan: Plan) -> Table:
    """Return a table with a line per process."""
    trimmed = all(each.trimmed for each in results)
    table = Table(
        title="Resident memory of snapshots, MB",
        caption=f"Before: after {plan.warm_up:,} others were dropped. The caller"
        f" {'called' if trimmed else 'has no'} malloc_trim; workers never do.",
        caption_justify="left",
    )
    table.add_column("snapshots", no_wrap=True)
    table.add_column("process")
    for name in (*MOMENTS, "bytes of one"):
        table.add_column(name, justify="right")
    for each in results:
        for name, values in (("caller", each.caller), ("workers", each.workers)):
            table.add_row(
                f"{each.env} ×{each.snapshots:,}", name,
                *(f"{value / 1e6:,.1f}" for value in values), f"{each.nbytes:,}",
            )  # fmt: skip
    return table


if __name__ == "__main__":
    finish(main(json.loads(sys.argv[1])))
