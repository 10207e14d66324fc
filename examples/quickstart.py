"""One episode of eight CartPoles with random actions: python examples/quickstart.py."""

import agym

with agym.make("CartPole-v1", 8) as envs:
    observations, infos = envs.reset(seed=0)
    envs.action_space.seed(0)
    returns = [0.0] * len(envs)
    done = [False] * len(envs)
    steps = 0
    while not all(done):  # finished environments wait until they are reset, with reward 0
        actions = envs.action_space.sample()
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        returns = [total + reward for total, reward in zip(returns, rewards, strict=True)]
        done = [ended or cut for ended, cut in zip(terminated, truncated, strict=True)]
        steps += 1
    print(f"the last of {len(envs)} episodes ended after {steps} steps")
    print("returns:", returns)
