"""One environment of 32 is a hundred times slower: wait for all, or for the first that finish.

python examples/longer/compare/stragglers.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

import agym


class Sleeper(gymnasium.Env[Any, Any]):
    """Sleeps in each step; the observation is the number of steps so far."""

    observation_space = spaces.Box(0, np.inf, (), np.int64)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.int64(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        self.steps += 1
        return np.int64(self.steps), 0.0, False, False, {}


def check(done: np.ndarray, received: np.ndarray) -> None:
    """Exit with a message unless every step of the environments was received."""
    if not np.array_equal(done, received):
        sys.exit("a step was lost or received twice: please report it")


async def barrier(envs: agym.AsyncEnvs, seconds: float) -> np.ndarray:
    """Wait for all environments in each step; return the number of steps of each."""
    steps = np.zeros(len(envs), np.int64)
    await envs.reset()
    end = time.perf_counter() + seconds
    while not steps.any() or time.perf_counter() < end:
        observations, *_ = await envs.step(envs.action_space.sample())
        steps += 1
        check(observations, steps)
    return steps


async def first_k(envs: agym.AsyncEnvs, seconds: float, k: int) -> np.ndarray:
    """Wait for any ``k`` environments, and step these again; return the number of steps of each."""
    steps = np.zeros(len(envs), np.int64)
    await envs.reset()
    end = time.perf_counter() + seconds
    envs.send(envs.action_space.sample())
    async for batch in envs.as_completed(min_envs=k):
        steps[batch.env_ids] += 1
        check(batch.observations, steps[batch.env_ids])
        if time.perf_counter() < end:
            envs.send(envs.action_space.sample()[batch.env_ids], batch.env_ids)
    return steps


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--num-envs", type=int, default=32, help="number of environments (default: %(default)s)"
    )
    parser.add_argument("--min-envs", type=int, help="k of first-k (default: half of them)")
    parser.add_argument(
        "--step-ms", type=float, default=2, help="milliseconds of a step (default: %(default)s)"
    )
    parser.add_argument(
        "--times",
        type=float,
        default=100,
        help="how many times slower the last environment is (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, default=3, help="seconds per measurement (default: %(default)s)"
    )
    options = parser.parse_args()
    if options.num_envs < 2:
        parser.error("--num-envs must be at least 2: the last one is the slow one")
    k = options.min_envs or options.num_envs // 2

    step = options.step_ms / 1000
    factories = [partial(Sleeper, step)] * (options.num_envs - 1)
    factories.append(partial(Sleeper, step * options.times))
    ways: dict[str, Callable[[agym.AsyncEnvs, float], Awaitable[np.ndarray]]] = {
        "all of them": barrier,
        f"the first {k}": partial(first_k, k=k),
    }
    rates = {}
    async with agym.make_async(factories, backend="thread") as envs:
        for name, play in ways.items():
            started = time.perf_counter()
            steps = await play(envs, options.seconds)
            rates[name] = steps.sum() / (time.perf_counter() - started)
            check(np.array(await envs.get_attr("steps")), steps)

    table = Table("waiting for", "steps/s", "", box=None)
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}", Bar(max(rates.values()), 0, rate, width=50))
    Console().print(table)
    all_of_them, first = rates.values()
    print(f"waiting for the first {k} is {first / all_of_them:.1f} times as fast; no step was lost")


if __name__ == "__main__":
    agym.run(main())
