"""SB3's algorithms over AgymVecEnv; and SB3's check of the environments that ship."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from benchmarks.soak.probes import ChaoticEnv, CounterEnv
from tests.support.training import OBSERVATIONS, SETUPS, each_place, random_envs, vec_envs

sb3 = pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
torch = pytest.importorskip("torch")
check_env = pytest.importorskip("stable_baselines3.common.env_checker").check_env
evaluate_policy = pytest.importorskip("stable_baselines3.common.evaluation").evaluate_policy

CPU: dict[str, Any] = {"device": "cpu", "seed": 0}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def weights(model: Any) -> list[float]:
    with torch.no_grad():
        vector: list[float] = torch.nn.utils.parameters_to_vector(
            model.policy.parameters()
        ).tolist()
    return vector


@each_place
def test_ppo_learns_what_it_learns_over_dummy(options: dict[str, Any], tmp_path: Path) -> None:
    learned = []
    for vec_env in (agym.sb3.make_vec_env("CartPole-v1", 4, seed=3, **options),
                    _dummy("CartPole-v1", 4, seed=3)):  # fmt: skip
        model = sb3.PPO("MlpPolicy", vec_env, n_steps=32, n_epochs=2, **CPU)
        model.learn(400)
        learned.append(weights(model))
        vec_env.close()
    assert learned[0] == learned[1]


def _dummy(*arguments: Any, **keywords: Any) -> Any:
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    return env_util.make_vec_env(*arguments, **keywords)


def test_a_model_is_saved_and_goes_on(tmp_path: Path) -> None:
    vec_env = agym.sb3.make_vec_env("CartPole-v1", 4, seed=3, **SETUPS["process"])
    model = sb3.PPO("MlpPolicy", vec_env, n_steps=32, n_epochs=1, **CPU)
    model.learn(128)
    model.save(tmp_path / "model")
    loaded = sb3.PPO.load(tmp_path / "model", env=vec_env, device="cpu")
    assert loaded.get_env() is vec_env
    loaded.learn(128)
    mean, _ = evaluate_policy(loaded, vec_env, n_eval_episodes=4)  # no warning: it is monitored
    assert mean > 0
    vec_env.close()


def test_dict_observations_and_an_off_policy_algorithm() -> None:
    functions = [partial(RandomEnv, OBSERVATIONS["dict"], spaces.Box(-1, 1, (2,)))] * 3
    vec_env = vec_envs.VecMonitor(agym.sb3.AgymVecEnv(functions, **SETUPS["process"]))
    model = sb3.SAC("MultiInputPolicy", vec_env, learning_starts=10, buffer_size=500, **CPU)
    model.learn(60)
    buffer = model.replay_buffer
    assert buffer.dones[: buffer.pos].any()
    vec_env.close()


def test_bits_are_learned() -> None:
    functions = [partial(RandomEnv, OBSERVATIONS["box"], spaces.MultiBinary(3))] * 2
    vec_env = agym.sb3.AgymVecEnv(functions, backend="serial")
    sb3.PPO("MlpPolicy", vec_env, n_steps=16, batch_size=16, n_epochs=1, **CPU).learn(64)
    vec_env.close()


def test_time_limits_are_bootstrapped_over_a_fault() -> None:
    """A row that a fault has cut off is one that SB3 knows how to go on from."""
    vec_env = agym.sb3.AgymVecEnv(random_envs("box", 4), on_fault="restart", **SETUPS["process"])
    with agym.chaos(vec_env.runner, error=0.05, seed=0) as chaos:
        sb3.PPO("MlpPolicy", vec_env, n_steps=32, n_epochs=1, **CPU).learn(256)
    assert chaos.injected["error"] > 0
    vec_env.close()


SHIPPED: dict[str, Any] = {
    "RandomEnv": partial(RandomEnv, OBSERVATIONS["box"], spaces.Discrete(4)),
    "RandomEnv of dicts": partial(RandomEnv, OBSERVATIONS["dict"], spaces.Box(-1, 1, (2,))),
    "CounterEnv": partial(CounterEnv, informs=True),
    "ChaoticEnv": ChaoticEnv,
}


@pytest.mark.parametrize("function", SHIPPED.values(), ids=SHIPPED)
def test_the_env_checker_passes(function: Any) -> None:
    env = function()
    np.random.seed(0)  # noqa: NPY002
    check_env(env, skip_render_check=False)
    env.close()
