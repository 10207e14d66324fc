"""PPO for Atari games in one file.

python examples/ppo_atari.py

python examples/ppo_atari.py --env-id BreakoutNoFrameskip-v4 --total-timesteps 10000000

tensorboard --logdir runs

It has the network, the loss and the names of CleanRL's ppo_atari.py, for a comparison side by side.
The differences:

- With two groups, each step of a group is dispatched before the next group's turn, so that the
  emulators run while the network computes. One group is faster if both need the same cores.
- Pictures are ``uint8`` until they reach the network, and come from the workers in shared memory.
- Episodes that a time limit ends are bootstrapped from their last observation, ``final_obs``.

Proximal policy optimization: https://arxiv.org/abs/1707.06347
The network: https://doi.org/10.1038/nature14236
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import ale_py
import gymnasium
import numpy as np
import torch
import tyro
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    RecordEpisodeStatistics,
    TransformReward,
)
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter

import agym

gymnasium.register_envs(ale_py)


@dataclass
class Args:
    """PPO for Atari games."""

    env_id: str = "PongNoFrameskip-v4"
    """id of the environment"""
    seed: int = 1
    """seed of the environments, the network and the minibatches; with the same backend, workers
    and groups, it repeats a run"""
    total_timesteps: int = 1_000_000
    """total number of environment steps, of four frames each"""
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
    clip_coef: float = 0.1
    """limit of the policy's change in an update"""
    ent_coef: float = 0.01
    """weight of the entropy"""
    vf_coef: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float = 0.5
    """gradients are clipped to this norm"""
    groups: int = 2 if torch.cuda.is_available() else 1
    """groups of environments that take turns with the network; by default 2 with a GPU, else 1"""
    backend: Literal["auto", "serial", "thread", "process"] = "process"
    """where environments run, as in agym.make"""
    workers: int | None = None
    """worker processes; one per core by default"""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    """device of the network"""
    logdir: str = "runs"
    """folder for TensorBoard; empty for none"""


class EpisodicLife(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends an episode with a lost life, and continues the game; presses fire to start it."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.game: Any = env.unwrapped
        self.fires = "FIRE" in self.game.get_action_meanings()
        self.lives, self.over = 0, True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self.over or seed is not None:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            obs, info = self.play(0)
        if self.fires:
            obs, info = self.play(1)
        self.lives, self.over = self.game.ale.lives(), False
        return obs, info

    def play(self, action: int) -> tuple[Any, dict[str, Any]]:
        obs, _, terminated, truncated, info = self.env.step(action)
        return self.env.reset() if terminated or truncated else (obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = self.game.ale.lives()
        lost, self.lives = 0 < lives < self.lives, lives
        self.over = terminated or truncated
        return obs, reward, terminated or lost, truncated, info


def make_env(env_id: str) -> gymnasium.Env[Any, Any]:
    """Make a game with the usual wrappers: 84 × 84 grey pixels, four frames, clipped rewards."""
    env = gymnasium.make(env_id, frameskip=1)
    env = RecordEpisodeStatistics(env)  # of the game's own rewards
    env = EpisodicLife(AtariPreprocessing(env, noop_max=30, frame_skip=4))
    env = FrameStackObservation(env, 4)
    return TransformReward(env, np.sign)


def layer(module: Any, std: float = np.sqrt(2)) -> Any:
    nn.init.orthogonal_(module.weight, std)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    def __init__(self, actions: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            layer(nn.Conv2d(4, 32, 8, stride=4)),
            nn.ReLU(),
            layer(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(),
            layer(nn.Conv2d(64, 64, 3, stride=1)),
            nn.ReLU(),
            nn.Flatten(),
            layer(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
        )
        self.actor = layer(nn.Linear(512, actions), std=0.01)
        self.critic = layer(nn.Linear(512, 1), std=1.0)

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        """Policy and value network for pictures, ``uint8[n, 4, 84, 84]``."""
        hidden = self.network(obs / 255.0)
        policy = Categorical(logits=self.actor(hidden), validate_args=False)
        return policy, self.critic(hidden).squeeze(-1)


class Rollouts:
    """The transitions of a rollout; row ``t`` is step ``t`` of all environments."""

    def __init__(self, args: Args, obs_shape: tuple[int, ...]) -> None:
        rows = args.num_steps, args.num_envs
        self.obs = torch.zeros((*rows, *obs_shape), dtype=torch.uint8, device=args.device)
        self.actions = torch.zeros(rows, dtype=torch.long, device=args.device)
        self.logprobs = torch.zeros(rows, device=args.device)
        self.values = torch.zeros(rows, device=args.device)
        self.rewards = torch.zeros(rows, device=args.device)
        self.ends = torch.zeros(rows, device=args.device)


class Group:
    """A group of environments, and its pending step."""

    def __init__(self, envs: agym.AsyncEnvs, device: str) -> None:
        self.envs = envs
        self.device = device
        self.ids = torch.tensor(envs.env_ids, device=device)
        self.obs = torch.zeros(0)
        self.pending: agym.Pending[agym.StepResult] | None = None

    @torch.no_grad()
    def act(self, agent: Agent, rollouts: Rollouts, t: int) -> None:
        """Dispatch step ``t``, which runs from now on."""
        policy, values = agent(self.obs)
        actions = policy.sample()
        self.pending = self.envs.step(actions.cpu().numpy())
        rollouts.obs[t, self.ids] = self.obs
        rollouts.actions[t, self.ids] = actions
        rollouts.logprobs[t, self.ids] = policy.log_prob(actions)
        rollouts.values[t, self.ids] = values

    async def finish(
        self, agent: Agent, rollouts: Rollouts, t: int, gamma: float
    ) -> list[dict[str, Any]]:
        """Wait for step ``t``; return the statistics of the episodes that ended in it."""
        assert self.pending is not None
        obs, rewards, terminated, truncated, infos = await self.pending
        self.obs = torch.as_tensor(obs, device=self.device)
        rewards = torch.as_tensor(rewards, dtype=torch.float32, device=self.device)
        with torch.no_grad():  # after a time limit, the value is not 0
            for i in np.flatnonzero(truncated & ~terminated):
                final_obs = torch.as_tensor(np.asarray(infos[i]["final_obs"]), device=self.device)
                rewards[i] += gamma * agent(final_obs[None])[1][0]
        rollouts.rewards[t, self.ids] = rewards
        ends = torch.as_tensor(terminated | truncated, dtype=torch.float32, device=self.device)
        rollouts.ends[t, self.ids] = ends
        final_infos = [info["final_info"] for info in infos if "final_info" in info]
        return [info["episode"] for info in final_infos if "episode" in info]  # not of a lost life


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
            policy, values = agent(obs[rows])
            logratio = policy.log_prob(actions[rows]) - old_logprobs[rows]
            ratio = logratio.exp()
            gain = advantages[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.minimum(gain * ratio, gain * clipped).mean()

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
    """Train an agent; return the mean return of the last 20 episodes."""
    agent = Agent(int(envs.single_action_space.n))
    agent.to(args.device, memory_format=torch.channels_last)  # twice as fast on CPUs
    optimizer = torch.optim.Adam(agent.parameters(), args.learning_rate, eps=1e-5)
    rollouts = Rollouts(args, envs.single_observation_space.shape)
    serial = envs.backend == "serial"  # nothing can overlap there, so one group is faster
    count = 1 if serial else min(args.groups, args.num_envs)
    groups = [Group(some, args.device) for some in envs.split(count)]
    obs, _ = await envs.reset(seed=args.seed)
    for group in groups:
        group.obs = torch.as_tensor(obs, device=args.device)[group.ids]

    returns: deque[float] = deque(maxlen=20)
    iterations = args.total_timesteps // (args.num_envs * args.num_steps)
    started = shown = time.perf_counter()
    step = 0

    def log(episodes: list[dict[str, Any]]) -> None:
        for episode in episodes:
            returns.append(episode["r"])
            if writer is not None:
                writer.add_scalar("charts/episodic_return", episode["r"], step)
                writer.add_scalar("charts/episodic_length", episode["l"], step)

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

        next_value = torch.zeros(args.num_envs, device=args.device)
        with torch.no_grad():
            for group in groups:
                next_value[group.ids] = agent(group.obs)[1]
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
    try:
        torch.zeros(0, device=args.device)
    except (RuntimeError, AssertionError) as error:
        sys.exit(f"--device {args.device}: {error}")


async def main(args: Args) -> None:
    check(args)
    torch.manual_seed(args.seed)
    name = f"{args.env_id.replace('/', '_')}__ppo_atari__{args.seed}__{int(time.time())}"
    async with agym.make_async(
        lambda: make_env(args.env_id),
        args.num_envs,
        backend=args.backend,
        workers=args.workers,
        autoreset="same_step",
    ) as envs:
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
