"""Environments on the machines of a Ray cluster, with the number on each machine.

python examples/longer/ray_cluster/cluster.py --num-envs 1024
"""

from __future__ import annotations

import argparse
import socket
import time
from collections import Counter
from typing import Any

import gymnasium

import agym


class Located(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has a method that returns the name of its machine."""

    def where(self) -> str:
        return socket.gethostname()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--num-envs", type=int, default=1024, help="number of environments (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=200, help="steps of each environment (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, help="actors (default: one per CPU)")
    parser.add_argument(
        "--workers-per-node",
        type=int,
        help="worker processes in each actor (default: actors run environments themselves)",
    )
    parser.add_argument(
        "--address",
        help="address of the cluster; 'local' starts one here (default: Ray looks for a cluster)",
    )
    options = parser.parse_args()
    if min(options.num_envs, options.steps) < 1:
        parser.error("--num-envs and --steps must be at least 1")

    with agym.make(
        lambda: Located(gymnasium.make("CartPole-v1")),
        options.num_envs,
        backend=agym.backends.Ray(
            address=options.address, workers_per_node=options.workers_per_node
        ),
        workers=options.workers,
        autoreset="next_step",
        output="array",
        on_fault="restart",
    ) as envs:
        envs.reset(seed=0)
        for host, count in Counter(envs.call("where")).items():
            print(f"{count} environments on {host}")
        envs.action_space.seed(0)
        total, started = 0.0, time.perf_counter()
        for _ in range(options.steps):
            batch = envs.step(envs.action_space.sample())
            total += batch.rewards.sum()
        seconds = time.perf_counter() - started
    steps = options.num_envs * options.steps
    print(
        f"{steps / seconds:,.0f} steps per second, {seconds / options.steps * 1e3:.2f} ms a batch;"
        f" {total:,.0f} of {steps:,} steps had a reward, the others only reset an environment"
    )


if __name__ == "__main__":
    main()
