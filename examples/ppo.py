"""PPO for classic control in one file.

python examples/ppo.py

python examples/ppo.py --env-id Acrobot-v1 --num-envs 64 --backend process --groups 2

python examples/ppo.py --env-id agym/CartPole-v1 --num-envs 1024 --backend vector

tensorboard --logdir runs

It has the network, the loss and the names of CleanRL's ppo.py, for a comparison side by side. The
differences:

- With ``--groups 2``, ``envs.split(2)`` returns two groups. Each step of a group is dispatched
  before the policy acts for the other group, so that workers and policy compute at the same time.
  That is faster if there are cores for both. Environments with a twin, such as CartPole, step in
  this thread, where nothing can overlap, and are faster still.
- Episodes that a time limit ends are bootstrapped from their last observation, ``final_obs``.
- ``--backend vector`` steps all environments as one ``VectorEnv``: a rule book of agym, or, for
  comparison, ``--env-id envpool:CartPole-v1`` or ``sync:CartPole-v1`` (EnvPool's, Gymnasium's).

Proximal policy optimization: https://arxiv.org/abs/1707.06347
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
import tyro
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter

import agym


@dataclass
class Args:
    """PPO for environments with vectors as observations and discrete actions."""

    env_id: str = "CartPole-v1"
    """id of the environment"""
    seed: int = 1
    """seed of the environments, the network and the minibatches; with the same backend, workers
    and groups, it repeats a run"""
    total_timesteps: int = 500_000
    """total number of environment steps"""
    learning_rate: float = 2.5e-4
    """learning rate of Adam"""
    anneal_lr: bool = True
    """whether the learning rate falls to zero during the run"""
    num_envs: int = 8
    """number of environments"""
    num_steps: int = 128
    """steps of each environment in a rollout"""
    gamma: float = 0.99
    """discount"""
    gae_lambda: float = 0.95
    """lambda of generalized advantage estimation"""
    num_minibatches: int = 4
    """minibatches per epoch"""
    update_epochs: int = 4
    """epochs per rollout"""
    clip_coef: float = 0.2
    """limit of the policy's change in an update"""
    ent_coef: float = 0.01
    """weight of the entropy"""
    vf_coef: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float = 0.5
    """gradients are clipped to this norm"""
    groups: int = 1
    """groups of environments that take turns with the policy; 1 if all run in this thread"""
    backend: Literal["auto", "serial", "thread", "process", "vector", "twin"] = "auto"
    """where environments run, as in agym.make"""
    workers: int | None = None
    """worker processes; by default agym decides"""
    logdir: str = "runs"
    """folder for TensorBoard; empty for none"""


def layer(inputs: int, outputs: int, std: float = np.sqrt(2)) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, std)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, std=1.0)
        )
        self.actor = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, std=0.01)
        )

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)

    def policy(self, obs: Tensor) -> Categorical:
        return Categorical(logits=self.actor(obs), validate_args=False)


class Rollouts:
    """The transitions of a rollout; row ``t`` is step ``t`` of all environments."""

    def __init__(self, steps: int, num_envs: int, obs_shape: tuple[int, ...]) -> None:
        self.obs = torch.zeros((steps, num_envs, *obs_shape))
        self.actions = torch.zeros((steps, num_envs), dtype=torch.long)
        self.logprobs = torch.zeros((steps, num_envs))
        self.values = torch.zeros((steps, num_envs))
        self.rewards = torch.zeros((steps, num_envs))
        self.ends = torch.zeros((steps, num_envs))


class Group:
    """A group of environments, and its pending step."""

    def __init__(self, envs: agym.AsyncEnvs) -> None:
        self.envs = envs
        self.ids = torch.tensor(envs.env_ids)
        self.obs = torch.zeros(0)
        self.pending: agym.Pending[agym.StepResult] | None = None
        # Returns and lengths of the episodes so far.
        self.returns, self.lengths = np.zeros((2, len(self.ids)))

    @torch.no_grad()
    def act(self, agent: Agent, rollouts: Rollouts, t: int) -> None:
        """Dispatch step ``t``, which runs from now on."""
        policy = agent.policy(self.obs)
        actions = policy.sample()
        self.pending = self.envs.step(actions.numpy())
        rollouts.obs[t, self.ids] = self.obs
        rollouts.actions[t, self.ids] = actions
        rollouts.logprobs[t, self.ids] = policy.log_prob(actions)
        rollouts.values[t, self.ids] = agent.value(self.obs)

    async def finish(
        self, agent: Agent, rollouts: Rollouts, t: int, gamma: float
    ) -> list[tuple[float, float]]:
        """Wait for step ``t``; return the returns and lengths of the episodes that ended in it."""
        assert self.pending is not None
        obs, rewards, terminated, truncated, infos = await self.pending
        self.obs = torch.as_tensor(obs, dtype=torch.float32)
        ended = terminated | truncated
        self.returns += rewards
        self.lengths += 1
        episodes = [*zip(self.returns[ended].tolist(), self.lengths[ended].tolist(), strict=True)]
        self.returns[ended] = self.lengths[ended] = 0
        rewards = torch.as_tensor(rewards, dtype=torch.float32)
        if len(cut := np.flatnonzero(truncated & ~terminated)):
            final_obs = np.stack([infos[i]["final_obs"] for i in cut])
            with torch.no_grad():  # after a time limit, the value is not 0
                rewards[cut] += gamma * agent.value(torch.as_tensor(final_obs, dtype=torch.float32))
        rollouts.rewards[t, self.ids] = rewards
        rollouts.ends[t, self.ids] = torch.as_tensor(ended, dtype=torch.float32)
        return episodes


def advantages_of(rollouts: Rollouts, next_value: Tensor, args: Args) -> Tensor:
    """Generalized advantage estimation, https://arxiv.org/abs/1506.02438."""
    advantages = torch.zeros_like(rollouts.rewards)
    last = torch.zeros_like(next_value)
    for t in reversed(range(args.num_steps)):
        goes_on = 1.0 - rollouts.ends[t]
        delta = rollouts.rewards[t] + args.gamma * next_value * goes_on - rollouts.values[t]
        advantages[t] = last = delta + args.gamma * args.gae_lambda * goes_on * last
        next_value = rollouts.values[t]
    return advantages


def update(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    rollouts: Rollouts,
    advantages: Tensor,
    args: Args,
) -> dict[str, float]:
    """Learn from a rollout; return statistics of the last minibatch."""
    obs = rollouts.obs.flatten(0, 1)
    actions, old_logprobs = rollouts.actions.flatten(), rollouts.logprobs.flatten()
    old_values, advantages = rollouts.values.flatten(), advantages.flatten()
    returns = advantages + old_values
    for _ in range(args.update_epochs):
        for rows in torch.randperm(len(actions)).tensor_split(args.num_minibatches):
            policy = agent.policy(obs[rows])
            logratio = policy.log_prob(actions[rows]) - old_logprobs[rows]
            ratio = logratio.exp()
            gain = advantages[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.minimum(gain * ratio, gain * clipped).mean()

            values = agent.value(obs[rows])
            near = old_values[rows] + (values - old_values[rows]).clamp(
                -args.clip_coef, args.clip_coef
            )
            errors = torch.maximum((values - returns[rows]) ** 2, (near - returns[rows]) ** 2)
            value_loss = 0.5 * errors.mean()

            entropy = policy.entropy().mean()
            loss = policy_loss - args.ent_coef * entropy + args.vf_coef * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()
    return {
        "losses/policy_loss": policy_loss.item(),
        "losses/value_loss": value_loss.item(),
        "losses/entropy": entropy.item(),
        "losses/approx_kl": ((ratio - 1) - logratio).mean().item(),
        "losses/clipfrac": ((ratio - 1).abs() > args.clip_coef).float().mean().item(),
    }


async def train(args: Args, envs: agym.AsyncEnvs, writer: SummaryWriter | None) -> float:
    """Train an agent; return the mean return of the last 100 episodes."""
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), args.learning_rate, eps=1e-5)
    rollouts = Rollouts(args.num_steps, args.num_envs, envs.single_observation_space.shape)
    # One group where nothing can overlap, and where all environments are one VectorEnv.
    whole = envs.backend in ("serial", "vector", "twin")
    count = 1 if whole else min(args.groups, args.num_envs)
    groups = [Group(some) for some in envs.split(count)]
    obs, _ = await envs.reset(seed=args.seed)
    for group in groups:
        group.obs = torch.as_tensor(obs, dtype=torch.float32)[group.ids]

    returns: deque[float] = deque(maxlen=100)
    iterations = args.total_timesteps // (args.num_envs * args.num_steps)
    started = shown = time.perf_counter()
    step = 0

    def log(episodes: list[tuple[float, float]]) -> None:
        for episode_return, length in episodes:
            returns.append(episode_return)
            if writer is not None:
                writer.add_scalar("charts/episodic_return", episode_return, step)
                writer.add_scalar("charts/episodic_length", length, step)

    for iteration in range(iterations):
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - iteration / iterations)

        for t in range(args.num_steps):
            for group in groups:
                if t > 0:
                    log(await group.finish(agent, rollouts, t - 1, args.gamma))
                group.act(agent, rollouts, t)
                step += len(group.ids)
        for group in groups:
            log(await group.finish(agent, rollouts, args.num_steps - 1, args.gamma))

        next_value = torch.zeros(args.num_envs)
        with torch.no_grad():
            for group in groups:
                next_value[group.ids] = agent.value(group.obs)
        advantages = advantages_of(rollouts, next_value, args)
        losses = update(agent, optimizer, rollouts, advantages, args)

        now = time.perf_counter()
        if writer is not None:
            for name, value in losses.items():
                writer.add_scalar(name, value, step)
            writer.add_scalar("charts/SPS", step / (now - started), step)
            writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], step)
        if now - shown > 2 or iteration == iterations - 1:
            shown = now
            mean = sum(returns) / len(returns) if returns else float("nan")
            print(f"{step:>9,} steps, {step / (now - started):6,.0f} steps/s, return {mean:6.1f}")
    return sum(returns) / max(1, len(returns))


def check(args: Args) -> None:
    """Exit with a message if nothing can be learned with these settings."""
    for name in ("num_envs", "num_steps", "num_minibatches", "update_epochs", "groups"):
        if getattr(args, name) < 1:
            sys.exit(f"--{name.replace('_', '-')} must be at least 1")
    if args.num_envs * args.num_steps < 2 * args.num_minibatches:
        sys.exit("a minibatch needs two steps: raise --num-steps, or lower --num-minibatches")
    if args.total_timesteps < args.num_envs * args.num_steps:
        sys.exit(f"--total-timesteps must be at least a rollout: {args.num_envs * args.num_steps}")


def env_of(env_id: str) -> Any:
    """Return the environment for agym.make: an id, or a factory of another library's VectorEnv."""
    runner, colon, name = env_id.partition(":")
    if colon and runner == "envpool":
        import envpool

        return partial(envpool.make_gymnasium, name)
    if colon and runner == "sync":
        return partial(gymnasium.make_vec, name, vectorization_mode="sync")
    return env_id


async def main(args: Args) -> None:
    check(args)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # small networks gain nothing from more, and workers need the cores
    name = f"{args.env_id.replace('/', '_')}__ppo__{args.seed}__{int(time.time())}"
    async with agym.make_async(
        env_of(args.env_id),
        args.num_envs,
        backend=args.backend,
        workers=args.workers,
        autoreset="same_step",
        infos="none",
    ) as envs:
        if not isinstance(envs.single_action_space, spaces.Discrete):
            sys.exit(f"{args.env_id} has no discrete actions, which this script needs")
        if len(envs.single_observation_space.shape or ()) != 1:
            sys.exit(f"{args.env_id} has no vector observations, which this script needs")
        print(envs)
        writer = SummaryWriter(f"{args.logdir}/{name}") if args.logdir else None
        if writer is not None:
            rows = "\n".join(f"|{key}|{value}|" for key, value in vars(args).items())
            writer.add_text("hyperparameters", f"|param|value|\n|-|-|\n{rows}")
        await train(args, envs, writer)
        if writer is not None:
            writer.close()


if __name__ == "__main__":
    try:
        agym.run(main(tyro.cli(Args, description=__doc__)))
    except (agym.AgymError, OSError) as error:
        sys.exit(str(error))
