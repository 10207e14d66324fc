"""Whole runs: saved in one process, continued in others, compared operation by operation.

::

    process 1   steps ── save ── operations ── a digest of each result      ends
    process 2              └ agym.load ── the same operations ── the same digests?

Each process runs this module as a script.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

import agym
from benchmarks.branching.digests import digest
from benchmarks.branching.envs import CARTPOLE, PONG, TAXI, missing
from benchmarks.branching.fresh import finish, report, run_fresh
from benchmarks.branching.records import Game, Plan
from benchmarks.measuring.progress import Announce

RUNS = (CARTPOLE, TAXI, PONG)

# The backends on which the run continues; it was saved with the serial backend.
BACKENDS = ("serial", "process")

# Operations and their shares.
OPERATIONS = {
    "step": 60, "step some": 15, "reset some": 5, "reset some, with seeds": 5,
    "snapshot some": 7, "restore some": 8,
}  # fmt: skip

# Maximum number of snapshots; the oldest is deleted first.
MAX_KEPT = 16


@dataclass(frozen=True)
class RunResult:
    """A saved run that was continued.

    Attributes:
        env: The environment.
        backend: The backend of the continuation.
        equal: Operations with equal results, from the first on.
        operations: All operations.
        difference: The first different operation, in words.
        nbytes: Size of the file.
    """

    env: str
    backend: str
    equal: int
    operations: int
    difference: str
    nbytes: int


def continue_runs(game: Game, plan: Plan, announce: Announce) -> list[RunResult]:
    """Save a run, and continue it in fresh processes."""
    if missing(game) is not None:
        return []
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.agym"
        job = {
            "path": str(path), "num_envs": plan.num_envs, "seed": plan.seed, "steps": plan.before,
            "operations": plan.operations, "env_id": game.env_id, "kwargs": {**game.kwargs},
        }  # fmt: skip
        announce("the first process")
        wanted = run_fresh(__name__, {**job, "save": True}, announce)
        for backend in BACKENDS:
            announce(f"another process, {backend}")
            workers = plan.workers if backend == "process" else None
            again = {**job, "save": False, "backend": backend, "workers": workers}
            found = run_fresh(__name__, again, announce)
            equal = _equal(wanted, found)
            difference = "" if equal == len(wanted) else f"{equal + 1}, {wanted[equal][0]}"
            size = path.stat().st_size
            result = RunResult(game.name, backend, equal, len(wanted), difference, size)
            results.append(result)
    return results


def _equal(wanted: Sequence[Any], found: Sequence[Any]) -> int:
    """Return how many operations are equal, from the first on."""
    for i, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if one != other:
            return i
    return len(wanted)


def operate(envs: agym.Envs[Any, Any], count: int, seed: int) -> Iterator[tuple[str, Any]]:
    """Do random operations, which depend on a seed; yield the name and the result of each."""
    rng = random.Random(seed)
    space = envs.single_action_space
    space.seed(seed)
    kept: list[agym.Snapshot] = []
    for _ in range(count):
        (name,) = rng.choices([*OPERATIONS], [*OPERATIONS.values()])
        ids = sorted(rng.sample(range(envs.num_envs), rng.randint(1, envs.num_envs)))
        few = ids[:4]
        if name == "step":
            yield name, envs.step([space.sample() for _ in range(envs.num_envs)])
        elif name == "step some":
            yield name, envs.step([space.sample() for _ in ids], env_ids=ids)
        elif name == "reset some":
            yield name, envs.reset(env_ids=few)
        elif name == "reset some, with seeds":
            yield name, envs.reset(seed=[rng.randrange(2**31) for _ in few], env_ids=few)
        elif name == "snapshot some" or not kept:
            snapshots = envs.snapshot(few)
            kept = [*kept, *snapshots][-MAX_KEPT:]
            yield "snapshot some", [(one.way, one.observation) for one in snapshots]
        else:
            yield name, envs.restore([rng.choice(kept) for _ in few], few)


def main(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Start and save a run, or continue it; return the name and digest of each operation."""
    if job["save"]:
        envs = agym.make(
            job["env_id"], job["num_envs"], backend="serial", autoreset="next_step", **job["kwargs"]
        )
    else:
        restored = agym.load(job["path"], backend=job["backend"], workers=job["workers"])
        assert isinstance(restored, agym.Envs)
        envs = restored
    with envs:
        if job["save"]:
            envs.reset(seed=job["seed"])
            space = envs.single_action_space
            space.seed(job["seed"])
            for _ in range(job["steps"]):
                envs.step([space.sample() for _ in range(envs.num_envs)])
            report("saving")
            envs.save(job["path"])
        found = []
        for name, result in operate(envs, job["operations"], job["seed"] + 1):
            found.append((name, digest(_plain(result)).hex()))
            if len(found) % 50 == 0:
                report(f"{len(found):,} of {job['operations']:,} operations")
    return found


def _plain(result: Any) -> Any:
    """Return a result whose columns are lists."""
    return [[*column] for column in result] if isinstance(result, tuple) else result


def run_table(results: Sequence[RunResult], plan: Plan) -> Table:
    """Return a table with a line per continuation."""
    table = Table(
        title=f"Runs of {plan.num_envs} environments, saved after {plan.before} steps"
        " and continued in another process"
    )
    table.add_column("environment", no_wrap=True)
    table.add_column("continued on")
    for name in ("equal operations", "of", "bytes of the file"):
        table.add_column(name, justify="right")
    table.add_column("first difference")
    for each in results:
        table.add_row(
            each.env, each.backend, f"{each.equal:,}", f"{each.operations:,}", f"{each.nbytes:,}",
            each.difference or "–",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    finish(main(json.loads(sys.argv[1])))
