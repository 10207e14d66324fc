"""Write the rules of a game, and play a million games at once.

python examples/own_game.py

python examples/own_game.py --num-envs 1024 --steps 200 --engine parallel

The rules are for one game, in plain Python; ``agym.vectorize`` compiles them. A ball falls from the
top, and a basket must catch it. The policy moves the basket towards the ball.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from gymnasium import spaces

import agym

HEIGHT, WIDTH = 10, 7


class Catch:
    state = np.dtype([("row", int), ("column", int), ("basket", int)])
    observation_space = spaces.Box(0, 2, (HEIGHT, WIDTH), np.uint8)
    action_space = spaces.Discrete(3)
    max_episode_steps = 200

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.basket = WIDTH // 2
        state.column = rng.integers(0, WIDTH)

    @staticmethod
    def step(state: Any, action: int, rng: Any) -> tuple[float, bool]:
        state.basket = min(max(state.basket + action - 1, 0), WIDTH - 1)
        state.row += 1
        if state.row < HEIGHT - 1:
            return 0.0, False
        caught = state.column == state.basket
        state.row = 0
        state.column = rng.integers(0, WIDTH)
        return (1.0 if caught else 0.0), not caught

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[:, :] = 0
        out[HEIGHT - 1, state.basket] = 1
        out[state.row, state.column] = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-envs", type=int, default=1_000_000, help="number of games")
    parser.add_argument("--steps", type=int, default=20, help="steps of each game")
    parser.add_argument(
        "--engine",
        choices=("python", "compiled", "parallel", "cuda"),
        default="compiled",
        help="engine that plays the games",
    )
    options = parser.parse_args()
    if min(options.num_envs, options.steps) < 1:
        sys.exit("--num-envs and --steps must be at least 1")

    env = agym.vectorize(Catch)  # one game in plain Python, for a debugger
    env.reset(seed=0)
    env.step(1)
    print(f"one game after a step: {env.state}")

    envs = agym.vectorize(Catch, options.num_envs, engine=options.engine)
    envs.reset(seed=0)
    total, stepping, started = 0.0, 0.0, time.perf_counter()
    for _ in range(options.steps):
        actions = 1 + np.sign(envs.states["column"] - envs.states["basket"])
        before = time.perf_counter()
        _, rewards, *_ = envs.step(actions)
        stepping += time.perf_counter() - before
        total += rewards.sum()
    rate = options.num_envs * options.steps / stepping / 1e6
    print(
        f"{options.num_envs:,} games, {options.steps} steps each: {rate:.1f} million steps/s,"
        f" {total:,.0f} catches, {time.perf_counter() - started:.1f} s with the policy"
    )
    envs.close()


if __name__ == "__main__":
    try:
        main()
    except agym.AgymError as error:
        sys.exit(str(error))
