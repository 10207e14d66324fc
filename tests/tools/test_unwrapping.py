"""The tools take environments that other libraries have wrapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers.vector import NormalizeReward, RecordEpisodeStatistics

import agym


def gymnasium_wrapped() -> Any:
    envs = agym.make_vec("CartPole-v1", 2, render_mode="rgb_array")
    return NormalizeReward(RecordEpisodeStatistics(envs))


def sb3_wrapped() -> Any:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    return vec_env.VecNormalize(
        agym.sb3.make_vec_env("CartPole-v1", 2, env_kwargs={"render_mode": "rgb_array"})
    )


@pytest.mark.parametrize("make", [gymnasium_wrapped, sb3_wrapped])
def test_tools_take_wrapped_environments(make: Callable[[], Any], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    envs = make()
    envs.reset()
    with (
        agym.chaos(envs, delay=1.0, delay_seconds=0.0) as chaos,
        agym.record(envs, tmp_path / "run.gif") as recording,
        agym.watch(envs) as page,
        agym.TensorBoard(tmp_path / "log", envs) as log,
    ):
        for _ in range(3):
            envs.step([0, 1])
        assert page.url
    assert chaos.injected["delay"] == 6
    assert recording.frames == 4
    assert log.step == 6
    envs.close()


@pytest.mark.parametrize("tool", [agym.chaos, agym.watch])
def test_what_agym_did_not_make_is_refused(tool: Callable[[Any], Any]) -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    with pytest.raises(agym.UsageError, match=r"takes environments that agym runs.*agym\.make_vec"):
        tool(envs)
    envs.close()
