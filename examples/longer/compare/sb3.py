"""Stable-Baselines3's PPO learns CartPole with agym, compared with SB3's two ``VecEnv`` classes.

python examples/longer/compare/sb3.py

``agym.sb3.make_vec_env`` has SB3's arguments. It puts several environments into each worker, while
``SubprocVecEnv`` starts a process per environment. For steps as cheap as CartPole's, a plain loop
(``DummyVecEnv``) is hard to beat; --step-ms makes steps more expensive.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import torch
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

import agym

ENV_ID = "CartPole-v1"
EPISODES = 20  # episodes of an evaluation


class Slower(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes each step compute longer."""

    def __init__(self, env: gymnasium.Env[Any, Any], seconds: float) -> None:
        super().__init__(env)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return self.env.step(action)


def new_model(vec_env: VecEnv, seed: int) -> PPO:
    """Return PPO with RL Zoo's settings for CartPole: step size and clip range fall to zero."""
    return PPO(
        "MlpPolicy", vec_env, n_steps=32, batch_size=32 * vec_env.num_envs, n_epochs=20,
        gae_lambda=0.8, gamma=0.98, learning_rate=lambda remaining: 1e-3 * remaining,
        clip_range=lambda remaining: 0.2 * remaining, seed=seed, device="cpu",
    )  # fmt: skip


def train(options: argparse.Namespace) -> float:
    """Learn until the target is reached; return the mean return of a final evaluation."""
    make = partial(agym.sb3.make_vec_env, ENV_ID, workers=options.workers)
    vec_env = make(options.num_envs, seed=options.seed)
    evaluated = make(EPISODES, seed=options.seed + 1000)
    # A little more than the target, because the mean of a few episodes varies.
    stop = StopTrainingOnRewardThreshold(options.target + 15)
    callback = EvalCallback(
        evaluated, stop, n_eval_episodes=EPISODES, eval_freq=8000 // options.num_envs
    )
    model = new_model(vec_env, options.seed)
    started = time.perf_counter()
    model.learn(options.timesteps, callback)
    seconds = time.perf_counter() - started
    mean, _ = evaluate_policy(model, evaluated, n_eval_episodes=5 * EPISODES)
    print(f"{model.num_timesteps:,} steps in {seconds:.1f} s, mean return {mean:.1f}")
    vec_env.close()
    evaluated.close()
    return float(mean)


def compare(options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Learn with each ``VecEnv``; return the seconds to start and to learn."""
    kinds: dict[str, Callable[..., VecEnv]] = {
        "SB3 DummyVecEnv": make_vec_env,
        "SB3 SubprocVecEnv": partial(make_vec_env, vec_env_cls=SubprocVecEnv),
        "agym": partial(agym.sb3.make_vec_env, workers=options.workers),
        "agym, serial": partial(agym.sb3.make_vec_env, backend="serial"),
    }
    slower = {"wrapper_class": Slower, "wrapper_kwargs": {"seconds": options.step_ms / 1000}}
    seconds = {}
    for name, make in kinds.items():
        started = time.perf_counter()
        vec_env = make(ENV_ID, options.num_envs, seed=options.seed, **slower)
        model = new_model(vec_env, options.seed)
        ready = time.perf_counter()
        model.learn(options.compare)
        seconds[name] = ready - started, time.perf_counter() - ready
        vec_env.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--num-envs", type=int, default=8, help="number of environments (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, help="worker processes (default: agym decides)")
    parser.add_argument(
        "--timesteps",
        type=int,
        default=150_000,
        help="maximum number of steps (default: %(default)s)",
    )
    parser.add_argument(
        "--target", type=float, default=475, help="mean return to reach (default: %(default)s)"
    )
    parser.add_argument(
        "--compare", type=int, default=10_240, help="steps of the comparison (default: %(default)s)"
    )
    parser.add_argument(
        "--step-ms",
        type=float,
        default=1.0,
        help="computation added to a step of the comparison (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of environments and model (default: %(default)s)"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)  # the other cores are for the environments
    mean = train(options)
    table = Table(
        title=f"seconds for {options.compare:,} steps, each {options.step_ms:g} ms longer"
    )
    table.add_column()
    for heading in ("to start", "to learn", "together"):
        table.add_column(heading, justify="right")
    for name, (start, learn) in compare(options).items():
        table.add_row(name, f"{start:.1f}", f"{learn:.1f}", f"{start + learn:.1f}")
    Console().print(table)
    if mean < options.target:
        sys.exit(f"the target {options.target:g} was not reached: the run needs more --timesteps")


if __name__ == "__main__":
    main()
