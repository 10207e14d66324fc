"""A learner can't tell a twin from the originals."""

from __future__ import annotations

from typing import Any

import pytest

import agym
from tests.twins.needs import needs

pytestmark = [pytest.mark.usefixtures("own_folder"), pytest.mark.full]


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "CartPole-v1"])
def test_ppo_of_stable_baselines_learns_the_same(env_id: str) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    needs(env_id)
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    def learned(make: Any) -> tuple[Any, Any]:
        envs = make(env_id, 4, seed=1, env_kwargs={"max_episode_steps": 50})
        try:
            assert make is make_vec_env or envs.backend == "twin"
            model = PPO("MlpPolicy", envs, seed=1, n_steps=64, batch_size=64, device="cpu")
            model.learn(4 * 64 * 3)
        finally:
            envs.close()
        episodes = [(each["r"], each["l"]) for each in model.ep_info_buffer]
        weights = [each.detach().numpy().tobytes() for each in model.policy.parameters()]
        return episodes, weights

    expected, actual = learned(make_vec_env), learned(agym.sb3.make_vec_env)
    assert len(expected[0]) >= 12
    assert actual == expected
