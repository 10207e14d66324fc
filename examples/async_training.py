"""Learn while the environments step: python examples/async_training.py.

``envs.step(actions)`` sends the actions when it is called, not when it is awaited. In between, this
process learns from earlier steps, while a worker process computes the next step. At the end, the
script repeats a part of the training with and without this overlap, in turns, and prints the times.
What it learns is the same. Overlap needs a free core for the worker; on a busy one it gains little.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import agym

NUM_ENVS, DISCOUNT = 32, 0.98


class Learner:
    """Learns the values of actions from random earlier steps: double Q-learning."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.rng = np.random.default_rng(0)
        self.memory: list[tuple[Any, ...]] = []  # of each step, arrays with a row per environment
        self.network = nn.Sequential(
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
        )
        self.target = copy.deepcopy(self.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), 1e-3)

    def act(self, observations: Any, explore: float) -> Any:
        """Return the best action of each environment or, with a probability, a random action."""
        with torch.no_grad():
            best = self.network(torch.as_tensor(observations)).argmax(1).numpy()
        random = self.rng.integers(0, 2, NUM_ENVS)
        return np.where(self.rng.random(NUM_ENVS) < explore, random, best)

    def learn(self) -> None:
        chosen = [self.memory[i] for i in self.rng.integers(0, len(self.memory), 8)]
        columns = [torch.as_tensor(np.concatenate(rows)) for rows in zip(*chosen, strict=True)]
        observations, actions, rewards, after, terminated, valid = columns
        with torch.no_grad():
            best = self.network(after).argmax(1, keepdim=True)
            future = self.target(after).gather(1, best).squeeze(1)
            wanted = rewards.float() + DISCOUNT * future * ~terminated
        values = self.network(observations).gather(1, actions[:, None]).squeeze(1)
        self.optimizer.zero_grad()
        nn.functional.smooth_l1_loss(values[valid], wanted[valid]).backward()
        self.optimizer.step()
        for slow, fast in zip(self.target.parameters(), self.network.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.02)


async def train(
    envs: agym.AsyncEnvs, steps: int, *, overlap: bool = True, report: bool = True
) -> float:
    """Train, and print the mean return now and then; return the seconds that it took."""
    learner = Learner()
    returns: list[float] = []
    scores, ended = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS, bool)
    observations, _ = await envs.reset(seed=0)
    started = time.perf_counter()
    for step in range(1, steps + 1):
        actions = learner.act(observations, explore=max(0.02, 1 - step / 200))
        pending = envs.step(actions)  # the environments step now ...
        if not overlap:
            await pending
        if step > 10:
            learner.learn()  # ... while this process learns
        after, rewards, terminated, truncated, _ = await pending
        # The step after the end of an episode only resets, so there is nothing to learn from it.
        learner.memory.append((observations, actions, rewards, after, terminated, ~ended))
        observations, ended = after, terminated | truncated
        scores += rewards
        returns.extend(scores[ended])
        scores[ended] = 0
        if report and step % (steps // 4) == 0:
            mean = np.mean(returns[-32:])
            print(f"{step} steps, {len(returns)} episodes: mean return of the last 32 {mean:.1f}")
    return time.perf_counter() - started


class Slower(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Computes 50 µs longer in each step: most simulators are more expensive than CartPole."""

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + 50e-6
        while time.perf_counter() < end:
            pass
        return self.env.step(action)


def make_env() -> Slower:
    return Slower(gymnasium.make("CartPole-v1"))


async def main() -> None:
    torch.set_num_threads(1)  # the other cores are for the environments
    async with agym.make_async(make_env, NUM_ENVS, backend="process", workers=1) as envs:
        await train(envs, 600)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for overlap in (True, False, False, True):
            seconds[overlap].append(await train(envs, 150, overlap=overlap, report=False))
    fast, slow = min(seconds[True]), min(seconds[False])
    print(f"150 steps: {fast:.2f} s with overlap, {slow:.2f} s without (the best of two each)")


if __name__ == "__main__":
    agym.run(main())
