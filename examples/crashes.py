"""A run survives killed workers and the end of its program: python examples/crashes.py.

First, worker processes are killed while a loop runs, as a crash in C code would end them. agym
replaces them, and the loop goes on. Then, the run is saved, and continues in other environments.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from typing import Any

import numpy as np

import agym

# agym logs each recovery as a warning.
logging.basicConfig(format="agym: %(message)s", stream=sys.stdout)


def play(envs: agym.Envs, steps: int) -> Any:
    """Balance the poles, and print how many episodes ended, and how; return the observations."""
    ended = cut = 0
    actions = [0] * len(envs)
    for _ in range(steps):
        observations, _, terminated, truncated, infos = envs.step(actions)
        actions = [int(angle > 0) for _, _, angle, _ in observations]
        ended += sum(terminated) + sum(truncated)
        cut += sum(over and "fault" in info for over, info in zip(truncated, infos, strict=True))
    print(
        f"{len(envs)} environments, {steps * len(envs)} steps, {ended} episodes ended,"
        f" {cut} of them because a worker died"
    )
    return observations


options = {"backend": "process", "workers": 2, "autoreset": "next_step", "on_fault": "restart"}
with tempfile.TemporaryDirectory() as folder:
    with agym.make("CartPole-v1", 8, **options) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs, kill=0.001, seed=0):  # kills workers at random
            play(envs, 400)
        for worker in envs.stats().workers:
            print(f"worker {worker.worker} was restarted {worker.restarts} times")

        envs.save(f"{folder}/run.agym")  # in the middle of episodes
        expected = play(envs, 100)
    with agym.load(f"{folder}/run.agym") as envs:  # perhaps in another program, on another day
        print("loaded what was saved:")
        equal = np.array_equal(play(envs, 100), expected)
    print("the loaded environments continue as the saved ones did:", "yes" if equal else "no")
