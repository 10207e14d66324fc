"""Start-up of Stable-Baselines3's vector environments: until 64 environments are ready to step.

Each start happens in a fresh process, which runs this module as a script.
"""

from __future__ import annotations

import subprocess
import sys
import time

from agym.core._system.extras import how_to_get, installed, require
from agym.errors import AgymError
from benchmarks.measuring.progress import Announce
from benchmarks.reports.results import Row, WorkloadResult

NUM_ENVS = 64
NAME = f"SB3 start-up CartPole-v1 ×{NUM_ENVS}"
SUBPROC, AGYM = "SB3 Subproc", "agym sb3 process"

# Timeout of a start.
LIMIT_SECONDS = 300.0


def measure_sb3_startup(workers: int, repeats: int, announce: Announce) -> WorkloadResult:
    """Start both in turns; the rates are environments ready per second.

    Raises:
        AgymError: A fresh process failed.
    """
    if not installed("stable_baselines3"):
        return WorkloadResult(NAME, notes=(how_to_get("stable_baselines3", "sb3"),))
    rates: dict[str, list[float]] = {SUBPROC: [], AGYM: []}
    for turn in range(repeats):
        for name, slices in rates.items():
            announce(f"{turn + 1}/{repeats} {name}")
            command = [sys.executable, "-m", __name__, name, str(workers)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
            if done.returncode != 0:
                last = done.stderr.strip().splitlines()[-1:]
                raise AgymError(f"the start-up of {name} failed: {' '.join(last)}")
            slices.append(NUM_ENVS / float(done.stdout.splitlines()[-1]))
    rows = tuple(Row(name, tuple(slices)) for name, slices in rates.items())
    note = "the figures are environments made and reset per second, from a fresh process"
    return WorkloadResult(NAME, rows, (note,))


def start(name: str, workers: int) -> float:
    """Start environments in this process, with SB3 imported; return seconds."""
    make_vec_env = require("stable_baselines3.common.env_util", "sb3").make_vec_env
    vec_env = require("stable_baselines3.common.vec_env", "sb3").SubprocVecEnv
    options = {}
    if name == AGYM:
        vec_env = require("agym.api.sb3.vec_env", "sb3").AgymVecEnv
        options = {"workers": workers}
    started = time.perf_counter()
    envs = make_vec_env("CartPole-v1", NUM_ENVS, vec_env_cls=vec_env, vec_env_kwargs=options)
    envs.reset()
    seconds = time.perf_counter() - started
    envs.close()
    return seconds


if __name__ == "__main__":
    sys.stdout.write(f"{start(sys.argv[1], int(sys.argv[2]))}\n")
