"""The MultiEnv and SubprocVecEnv of many tutorials, in a dozen lines with agym.

In tutorials, a MultiEnv loops over environments, and a SubprocVecEnv has a process per MultiEnv,
pipes and string commands. This class has the same API: batches of shape [num_proc, num_seq], and
environments that are reset in the last step of an episode.

python examples/longer/compare/subproc.py --num-envs 8 --num-procs 1 2 4 8
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import agym


class SubprocVecEnv:
    """``num_proc`` processes, in each of which ``num_seq`` environments run in sequence."""

    def __init__(self, env: str, num_proc: int, num_seq: int) -> None:
        self.shape = num_proc, num_seq
        self.envs: agym.Envs[Any, Any] = agym.make(
            env, num_proc * num_seq, backend="process", workers=num_proc,
            autoreset="same_step", output="array",
        )  # fmt: skip

    def reset(self, seed: int) -> np.ndarray:
        return self.grid(self.envs.reset(seed=seed)[0])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        flat = actions.reshape(-1, *actions.shape[2:])
        observations, rewards, terminated, truncated, _ = self.envs.step(flat)
        return self.grid(observations), self.grid(rewards), self.grid(terminated | truncated)

    def grid(self, batch: np.ndarray) -> np.ndarray:
        return batch.reshape(*self.shape, *batch.shape[1:])


def play(vec_env: SubprocVecEnv, steps: int) -> tuple[np.ndarray, int, float]:
    """Step with random actions, which are the same for every number of processes.

    Returns:
        The observations of all steps, ``[T, num_proc, num_seq, ...]``, the number of finished
        episodes, and the environment steps per second.
    """
    space = vec_env.envs.action_space
    space.seed(0)
    history, episodes = [vec_env.reset(seed=0)], 0
    started = time.perf_counter()
    for _ in range(steps):
        observations, _, done = vec_env.step(vec_env.grid(space.sample()))
        history.append(observations)
        episodes += int(done.sum())
    return np.array(history), episodes, steps * len(vec_env.envs) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--num-envs", type=int, default=8, help="number of environments (default: %(default)s)"
    )
    parser.add_argument(
        "--num-procs",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8],
        help="numbers of processes to try (default: %(default)s)",
    )
    parser.add_argument(
        "--steps", type=int, default=2000, help="steps of each environment (default: %(default)s)"
    )
    options = parser.parse_args()
    if min(options.num_envs, options.steps, *options.num_procs) < 1:
        parser.error("--num-envs, --num-procs and --steps must be at least 1")

    table = Table(r"\[num_proc, num_seq]", "observations", "environments by process",
                  "episodes", "steps/s", box=None)  # fmt: skip
    flat = []
    for num_proc in options.num_procs:
        num_seq, remainder = divmod(options.num_envs, num_proc)
        if remainder:
            parser.error(
                f"--num-envs {options.num_envs} must be a multiple of {num_proc} processes"
            )
        vec_env = SubprocVecEnv("CartPole-v1", num_proc, num_seq)
        with vec_env.envs as envs:
            history, episodes, rate = play(vec_env, options.steps)
            workers = envs.stats().workers
        table.add_row(
            f"[{num_proc}, {num_seq}]", str(history.shape[1:]),
            "|".join(" ".join(map(str, worker.env_ids)) for worker in workers),
            str(episodes), f"{rate:,.0f}",
        )  # fmt: skip
        flat.append(history.reshape(len(history), -1))
    Console().print(table)
    # An environment behaves the same in any process.
    if not all(np.array_equal(flat[0], other) for other in flat):
        sys.exit("the games differed between numbers of processes: please report it")
    print(f"The same games for every number of processes: {flat[0].nbytes:,} bytes are equal.")


if __name__ == "__main__":
    main()
