"""Stable-Baselines3's PPO learns CartPole on agym's environments: python examples/sb3_ppo.py."""

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import agym

torch.set_num_threads(1)  # for a network as small as this, more threads are slower
# Only this line is different from a script without agym, where it is make_vec_env(...).
envs = agym.sb3.make_vec_env("CartPole-v1", 8, seed=0)
model = PPO(
    "MlpPolicy", envs, n_steps=32, batch_size=256, n_epochs=10, gae_lambda=0.8, gamma=0.98,
    learning_rate=1e-3, seed=0, device="cpu",
)  # fmt: skip


def evaluate() -> float:
    """Return the mean return of 20 episodes, with actions sampled as PPO samples them to learn."""
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=20, deterministic=False)
    return float(mean)


print(f"before learning: mean return of 20 episodes {evaluate():.1f}")
model.learn(12_000)
print(f"after {model.num_timesteps:,} steps: mean return of 20 episodes {evaluate():.1f}")
envs.close()
