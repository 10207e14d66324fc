"""Environments whose constructors have ``render_mode="human"`` as their default, and no window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import agym
from tests.support.backends import FORK
from tests.support.equality import same_values

sb3 = pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
BitFlippingEnv = pytest.importorskip("stable_baselines3.common.envs").BitFlippingEnv
vec_envs = pytest.importorskip("stable_baselines3.common.vec_env")

STEPS = 25  # two episodes and a half

each_backend = pytest.mark.parametrize(
    "options", [{"backend": "serial"}, {"backend": FORK, "workers": 2}], ids=["serial", "process"]
)


def make() -> Any:
    """Make an environment with a seed of its own: its resets take none."""
    env = BitFlippingEnv()
    env.seed(5)
    return env


@each_backend
@pytest.mark.parametrize("arguments", [([make] * 2,), (make, 2)], ids=["list", "number"])
def test_agym_make(arguments: Any, options: dict[str, Any]) -> None:
    with agym.make(*arguments, output="array", **options) as envs:
        assert envs.render_mode == "human"
        envs.reset(seed=0)
        assert envs.step([0, 1]).rewards.tolist() == [-1.0, -1.0]


@each_backend
def test_gymnasiums_class(options: dict[str, Any]) -> None:
    theirs = SyncVectorEnv([make] * 2)
    ours = agym.AgymVectorEnv([make] * 2, **options)
    try:
        assert same_values(ours.reset()[0], theirs.reset()[0])
        for k in range(STEPS):
            actions = np.array([k % 10, 3])
            for mine, other in zip(ours.step(actions)[:4], theirs.step(actions)[:4], strict=True):
                assert same_values(mine, other)
    finally:
        ours.close()
        theirs.close()


@pytest.mark.once
@each_backend
def test_a_replay_buffer_of_hindsight_collects_what_it_does_over_dummy(
    options: dict[str, Any],
) -> None:
    collected = []
    for vec_env in (
        vec_envs.DummyVecEnv([make] * 2),
        agym.sb3.AgymVecEnv([make] * 2, **options),
        agym.sb3.make_vec_env(make, 2, **options),
    ):
        model = sb3.DQN(
            "MultiInputPolicy", vec_env, replay_buffer_class=sb3.HerReplayBuffer,
            learning_starts=40, buffer_size=400, device="cpu", seed=0,
        )  # fmt: skip
        model.learn(120)
        buffer = model.replay_buffer
        collected.append({**buffer.observations, "actions": buffer.actions})
        vec_env.close()
    assert len(collected[0]["actions"].nonzero()[0]) > 20
    assert same_values(collected[0], collected[1])
    assert same_values(collected[0], collected[2])
