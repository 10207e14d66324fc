"""Steps an environment's exact twin beside Gymnasium's SyncVectorEnv, and compares the results.

python examples/twins.py

python examples/twins.py --env-id HalfCheetah-v5 --num-envs 64

python examples/twins.py --env-id FrozenLake-v1 --num-envs 1024 --steps 100
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import tyro

import agym


@dataclass
class Args:
    """Twin and originals, side by side."""

    env_id: str = "CartPole-v1"
    """id of an environment of Gymnasium that has a twin"""
    num_envs: int = 64
    """number of environments"""
    steps: int = 300
    """steps of each environment"""


def timed(envs: Any, actions: Any) -> tuple[list[Any], float]:
    """Play actions from a seeded reset; return all results, and steps per second."""
    results = [envs.reset(seed=0)[0]]
    started = time.perf_counter()
    results += [envs.step(batch)[:4] for batch in actions]
    return results, len(actions) * envs.num_envs / (time.perf_counter() - started)


def main(args: Args) -> None:
    if args.num_envs < 2 or args.steps < 1:
        sys.exit("--num-envs must be at least 2, and --steps at least 1")
    plan = agym.plan(args.env_id, args.num_envs)
    if plan.backend != "twin":
        sys.exit(f"{args.env_id} has no twin here:\n{plan}")
    twin = agym.make_vec(args.env_id, args.num_envs)
    originals = gymnasium.make_vec(args.env_id, args.num_envs, vectorization_mode="sync")
    originals.action_space.seed(0)
    actions = [originals.action_space.sample() for _ in range(args.steps)]
    print(twin)
    (results, fast), (expected, slow) = timed(twin, actions), timed(originals, actions)
    for step, pair in enumerate(zip(results, expected, strict=True)):
        for result, original in zip(*pair, strict=True):
            if np.asarray(result).tobytes() != np.asarray(original).tobytes():
                sys.exit(f"the results of step {step} differ")
    print(f"SyncVectorEnv: {slow:,.0f} steps per second")
    print(f"twin:          {fast:,.0f} steps per second, {fast / slow:.1f} times as many")
    print(
        f"Observations, rewards and flags of {args.steps * args.num_envs:,} steps: the same bits."
    )
    twin.close()
    originals.close()


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
