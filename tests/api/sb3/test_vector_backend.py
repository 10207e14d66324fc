"""Environments that are one VectorEnv, under Stable-Baselines3's API."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import agym

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("stable_baselines3")
from stable_baselines3.common.vec_env import VecMonitor  # noqa: E402

GAME: dict[str, Any] = {"max_num_frames_per_episode": 400, "noop_max": 5}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def test_ale_under_sb3_is_ale_by_hand() -> None:
    """Also within a monitor of SB3's."""
    envs = agym.sb3.make_vec_env("ALE/Pong-v5", 3, seed=5, env_kwargs=GAME, backend="vector")
    envs = VecMonitor(envs)
    theirs = gymnasium.make_vec("ALE/Pong-v5", 3, autoreset_mode="SameStep", **GAME)
    assert np.array_equal(envs.reset(), theirs.reset(seed=5)[0])
    ends = 0
    for actions in np.random.default_rng(0).integers(0, 6, (150, 3)):
        observations, rewards, dones, infos = envs.step(actions)
        expected, expected_rewards, terminated, truncated, told = theirs.step(actions)
        assert np.array_equal(observations, expected)
        assert np.array_equal(rewards, expected_rewards)
        assert np.array_equal(dones, terminated | truncated)
        for i in np.flatnonzero(dones):
            ends += 1
            assert np.array_equal(infos[i]["terminal_observation"], told["final_obs"][i])
            assert infos[i]["TimeLimit.truncated"] == (truncated[i] and not terminated[i])
            assert infos[i]["episode"]["l"] > 0
    assert ends
    assert max(max(envs.seed()) for _ in range(8)) < 2**31  # ALE takes no larger ones
    envs.reset()
    envs.close()
    theirs.close()


def test_what_is_for_single_environments_is_refused() -> None:
    with pytest.raises(agym.UsageError, match="monitor_dir is for single environments"):
        agym.sb3.make_vec_env("ALE/Pong-v5", 2, monitor_dir="x", backend="vector")
    with pytest.raises(agym.UsageError, match="autoreset_mode=NEXT_STEP"):
        agym.sb3.make_vec_env("CartPole-v1", 2, backend="vector")
