"""An actor and critic in torch that learns CartPole while its environments step.

python examples/async_training.py

``envs.step(actions)`` sends the actions when it is called, not when it is awaited. Between the two,
the script learns from a minibatch of the last rollout, so that the workers step while this process
does the backward pass. The results are the same as without this overlap, but come sooner.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import agym

STEPS = 32  # of each environment in a rollout; as many minibatches are spread over them
EPOCHS = 4
DISCOUNT = 0.99
TRACE = 0.95  # lambda of generalized advantage estimation, https://arxiv.org/abs/1506.02438
CLIP = 0.2  # of proximal policy optimization, https://arxiv.org/abs/1707.06347
ENTROPY = 0.01
LEARNING_RATE = 1e-3


class Agent(nn.Module):
    """A policy and a value function, each with a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )
        self.value = nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )

    @torch.no_grad()
    def act(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Sample an action for each observation; return the actions and their log-probabilities."""
        choice = Categorical(logits=self.policy(observations))
        actions = choice.sample()
        return actions, choice.log_prob(actions)


@dataclass
class Rollout:
    """The transitions of ``STEPS`` steps, and the observations after the last step."""

    observations: list[Tensor] = field(default_factory=list)
    actions: list[Tensor] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    rewards: list[Tensor] = field(default_factory=list)
    terminated: list[Tensor] = field(default_factory=list)
    ended: list[Tensor] = field(default_factory=list)
    valid: list[Tensor] = field(default_factory=list)


def tell(run: Run, num_envs: int, target: float) -> None:
    """Print the result of a training.

    Raises:
        SystemExit: The training ended before the target was reached.
    """
    print(
        f"{run.rollouts * STEPS * num_envs:,} steps of CartPole-v1 in {run.seconds:.1f} s,"
        f" mean return of the last {len(run.returns)} episodes {run.mean:.1f}"
    )
    if run.mean <= target:
        sys.exit(f"the target {target:g} was not reached: the run needs more --updates")


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout) -> Iterator[None]:
    """Learn from a rollout by proximal policy optimization; yield after each minibatch."""
    observations, rewards = torch.stack(rollout.observations), torch.stack(rollout.rewards)
    goes_on, same_episode = ~torch.stack(rollout.terminated), ~torch.stack(rollout.ended)
    with torch.no_grad():
        values = agent.value(observations).squeeze(-1)
    deltas = rewards + DISCOUNT * goes_on * values[1:] - values[:-1]
    advantages = torch.zeros_like(deltas)
    advantage = torch.zeros_like(deltas[0])
    for t in reversed(range(STEPS)):
        advantage = deltas[t] + DISCOUNT * TRACE * same_episode[t] * advantage
        advantages[t] = advantage

    valid = torch.stack(rollout.valid)
    observations, actions = observations[:-1][valid], torch.stack(rollout.actions)[valid]
    log_probs = torch.stack(rollout.log_probs)[valid]
    targets, advantages = (advantages + values[:-1])[valid], advantages[valid]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(actions)).tensor_split(STEPS // EPOCHS):
            choice = Categorical(logits=agent.policy(observations[rows]))
            ratios = (choice.log_prob(actions[rows]) - log_probs[rows]).exp()
            clipped = ratios.clamp(1 - CLIP, 1 + CLIP)
            gains = torch.minimum(ratios * advantages[rows], clipped * advantages[rows])
            errors = agent.value(observations[rows]).squeeze(-1) - targets[rows]
            loss = 0.5 * errors.square().mean() - gains.mean() - ENTROPY * choice.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            yield


@dataclass(frozen=True)
class Run:
    """The result of a training."""

    agent: Agent
    returns: deque[float]
    rollouts: int
    seconds: float

    @property
    def mean(self) -> float:
        """Mean return of the last episodes."""
        return sum(self.returns) / max(1, len(self.returns))


async def train(
    envs: agym.AsyncEnvs, rollouts: int, seed: int, *, target: float = np.inf, overlap: bool = True
) -> Run:
    """Train an agent until the last 100 episodes reach a target, or for ``updates`` rollouts."""
    torch.manual_seed(seed)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE)
    minibatches: Iterator[None] = iter(())
    returns: deque[float] = deque(maxlen=100)
    scores = np.zeros(len(envs))
    ended = np.zeros(len(envs), bool)
    run = Run(agent, returns, 0, 0.0)
    started = time.perf_counter()
    first, _ = await envs.reset(seed=seed)
    observations = torch.as_tensor(first)
    for number in range(1, rollouts + 1):
        rollout = Rollout([observations])
        for _ in range(STEPS):
            actions, log_probs = agent.act(observations)
            pending = envs.step(actions.numpy())  # the workers are stepping now ...
            if overlap:
                next(minibatches, None)  # ... while this process learns
                result = await pending
            else:
                result = await pending
                next(minibatches, None)

            # A step after an episode's end only resets, so there is nothing to learn from it.
            rollout.valid.append(torch.as_tensor(~ended))
            ended = result.terminated | result.truncated
            observations = torch.as_tensor(result.observations)
            rollout.observations.append(observations)
            rollout.actions.append(actions)
            rollout.log_probs.append(log_probs)
            rollout.rewards.append(torch.as_tensor(result.rewards, dtype=torch.float32))
            rollout.terminated.append(torch.as_tensor(result.terminated))
            rollout.ended.append(torch.as_tensor(ended))
            scores += result.rewards
            returns.extend(scores[ended].tolist())
            scores[ended] = 0
        minibatches = learn(agent, optimizer, rollout)
        run = Run(agent, returns, number, time.perf_counter() - started)
        if number % 20 == 0 and target < np.inf:
            print(f"{number:4} rollouts, {run.seconds:5.1f} s: mean return {run.mean:.1f}")
        if len(returns) == returns.maxlen and run.mean > target:
            break
    return run


class Slower(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that waits in each step, like a more expensive one."""

    def __init__(self, env: gymnasium.Env[Any, Any], seconds: float) -> None:
        super().__init__(env)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        return self.env.step(action)


async def compare(options: argparse.Namespace, milliseconds: float) -> None:
    """Do the same work with and without overlap, in turns; print the seconds."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    agents: list[Tensor] = []
    async with agym.make_async(
        lambda: Slower(gymnasium.make("CartPole-v1"), milliseconds / 1000),
        options.num_envs,
        backend=options.backend,
        workers=options.workers,
    ) as envs:
        for overlap in (True, False, False, True):
            run = await train(envs, options.compare, options.seed, overlap=overlap)
            seconds[overlap].append(run.seconds)
            agents.append(nn.utils.parameters_to_vector(run.agent.parameters()))
    # The agents are equal, to the last bit.
    if not all(torch.equal(agents[0], agent) for agent in agents):
        sys.exit("the overlap changed the agent: please report it")
    overlapped, one_by_one = min(seconds[True]), min(seconds[False])
    print(
        f"{options.compare} rollouts, steps {milliseconds:g} ms slower: {overlapped:.2f} s"
        f" with overlap, {one_by_one:.2f} s without:"
        f" {one_by_one / overlapped:.2f} times as fast"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--num-envs", type=int, default=16, help="number of environments (default: %(default)s)"
    )
    parser.add_argument(
        "--backend", default="process", help="process, thread or serial (default: %(default)s)"
    )
    # A core is left for learning.
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--workers",
        type=int,
        default=max(1, cores - 1),
        help="worker processes (default: %(default)s)",
    )
    parser.add_argument(
        "--updates",
        type=int,
        default=600,
        help="maximum number of rollouts (default: %(default)s)",
    )
    parser.add_argument(
        "--target", type=float, default=400, help="mean return to reach (default: %(default)s)"
    )
    parser.add_argument(
        "--compare",
        type=int,
        default=20,
        help="rollouts of the comparison; 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--step-ms",
        type=float,
        default=0.05,
        help="milliseconds added to a step of the comparison (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of environments and agent (default: %(default)s)"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)  # the other cores are for the environments
    async with agym.make_async(
        "CartPole-v1", options.num_envs, backend=options.backend, workers=options.workers
    ) as envs:
        run = await train(envs, options.updates, options.seed, target=options.target)
    if options.compare:
        for milliseconds in (0.0, options.step_ms):
            await compare(options, milliseconds)
    tell(run, options.num_envs, options.target)


if __name__ == "__main__":
    agym.run(main())
