"""Start-up: seconds and memory until environments are ready to step.

Each start happens in a fresh process that loads only agym; it runs this module as a script.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from agym import make
from agym.errors import AgymError
from benchmarks.measuring.processes import tree_memory
from benchmarks.measuring.workloads import Workload
from benchmarks.reports.results import StartupResult

STARTUP_WORKLOAD = Workload("CartPole-v1", 200)

# Timeout of a start.
LIMIT_SECONDS = 120.0


def measure_startup(work: Workload, workers: int, repeats: int) -> StartupResult:
    """Start environments in worker processes ``repeats`` times, each from a fresh process.

    Raises:
        AgymError: A fresh process failed.
    """
    command = [sys.executable, "-m", __name__, work.env_id, str(work.num_envs), str(workers)]
    starts = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:]
            raise AgymError(f"the start-up of {work.name} failed: {' '.join(last)}")
        starts.append(json.loads(done.stdout))
    seconds, memory = zip(*starts, strict=True)
    return StartupResult(work.name, workers, seconds, memory)


def start(work: Workload, workers: int) -> tuple[float, int]:
    """Start environments in this process; return seconds, and bytes of all processes together."""
    started = time.perf_counter()
    with make(work.spec, work.num_envs, backend="process", workers=workers, output="array") as envs:
        envs.reset(seed=0)
        seconds = time.perf_counter() - started
        return seconds, tree_memory()


if __name__ == "__main__":
    env_id, num_envs, workers = sys.argv[1:]
    sys.stdout.write(json.dumps(start(Workload(env_id, int(num_envs)), int(workers))))
