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
    envs = agym.sb3.make_vec_env("ALE/Pong-v5", 3, seed=5, env_kwargs=GAME, backend="vector")
    oracle = gymnasium.make_vec("ALE/Pong-v5", 3, autoreset_mode="SameStep", **GAME)
    try:
        assert np.array_equal(envs.reset(), oracle.reset(seed=5)[0])
        ends = 0
        for actions in np.random.default_rng(0).integers(0, 6, (150, 3)):
            observations, rewards, dones, infos = envs.step(actions)
            theirs = oracle.step(actions)
            assert np.array_equal(observations, theirs[0])
            assert np.array_equal(rewards, theirs[1])
            assert np.array_equal(dones, theirs[2] | theirs[3])
            for i in np.flatnonzero(dones):
                ends += 1
                assert np.array_equal(infos[i]["terminal_observation"], theirs[4]["final_obs"][i])
                assert infos[i]["TimeLimit.truncated"] == (theirs[3][i] and not theirs[2][i])
        assert ends
    finally:
        envs.close()
        oracle.close()


def test_sb3s_monitor_goes_over_it() -> None:
    envs = VecMonitor(agym.sb3.make_vec_env("ALE/Pong-v5", 2, env_kwargs=GAME, backend="vector"))
    try:
        envs.reset()
        lengths = []
        for _ in range(150):
            infos = envs.step(np.zeros(2, np.int64))[3]
            lengths += [info["episode"]["l"] for info in infos if "episode" in info]
        assert lengths
    finally:
        envs.close()


def test_random_seeds_are_small_enough() -> None:
    envs = agym.sb3.make_vec_env("ALE/Pong-v5", 2, backend="vector")
    try:
        for _ in range(8):
            assert max(envs.seed()) < 2**31
        envs.reset()
    finally:
        envs.close()


def test_what_is_for_single_environments_is_refused() -> None:
    with pytest.raises(agym.UsageError, match="monitor_dir is for single environments"):
        agym.sb3.make_vec_env("ALE/Pong-v5", 2, monitor_dir="x", backend="vector")
    with pytest.raises(agym.UsageError, match="autoreset_mode=NEXT_STEP"):
        agym.sb3.make_vec_env("CartPole-v1", 2, backend="vector")
