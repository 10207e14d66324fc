"""SB3's algorithms over AgymVecEnv; and SB3's check of the environments that ship."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from benchmarks.soak.probes import ChaoticEnv, CounterEnv
from tests.support.backends import OF_ENVS
from tests.support.equality import same_values
from tests.support.training import OBSERVATIONS, each_place, vec_envs

sb3 = pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
torch = pytest.importorskip("torch")
env_util = pytest.importorskip("stable_baselines3.common.env_util")
check_env = pytest.importorskip("stable_baselines3.common.env_checker").check_env

CPU: dict[str, Any] = {"device": "cpu", "seed": 0}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@each_place
def test_ppo_learns_what_it_learns_over_dummy(options: dict[str, Any]) -> None:
    learned = []
    for make in (partial(agym.sb3.make_vec_env, **options), env_util.make_vec_env):
        vec_env = make("CartPole-v1", 4, seed=3)
        model = sb3.PPO("MlpPolicy", vec_env, n_steps=32, n_epochs=2, **CPU)
        model.learn(400)
        with torch.no_grad():
            weights = torch.nn.utils.parameters_to_vector(model.policy.parameters())
        learned.append(weights.tolist())
        vec_env.close()
    assert learned[0] == learned[1]


def test_dict_observations_and_an_off_policy_algorithm() -> None:
    functions = [partial(RandomEnv, OBSERVATIONS["dict"], spaces.Box(-1, 1, (2,)))] * 3
    vec_env = vec_envs.VecMonitor(agym.sb3.AgymVecEnv(functions, **OF_ENVS["process"]))
    model = sb3.SAC("MultiInputPolicy", vec_env, learning_starts=10, buffer_size=500, **CPU)
    model.learn(60)
    assert model.replay_buffer.dones[: model.replay_buffer.pos].any()
    vec_env.close()


@pytest.mark.parametrize("fault", [0.0, 0.05])
def test_bits_are_learned_also_over_faults(fault: float) -> None:
    """SB3 bootstraps from a row that a fault has cut off, as from one of a time limit."""
    functions = [partial(RandomEnv, OBSERVATIONS["box"], spaces.MultiBinary(3))] * 4
    vec_env = agym.sb3.AgymVecEnv(functions, on_fault="restart", **OF_ENVS["process"])
    with agym.chaos(vec_env.runner, error=fault, seed=0) as chaos:
        sb3.PPO("MlpPolicy", vec_env, n_steps=32, n_epochs=1, **CPU).learn(256)
    assert (chaos.injected["error"] > 0) is (fault > 0)
    vec_env.close()


def flipping() -> Any:
    """Make an environment that has ``render_mode="human"`` by default, and needs no window."""
    env = pytest.importorskip("stable_baselines3.common.envs").BitFlippingEnv()
    env.seed(5)  # its resets take none
    return env


@pytest.mark.once
@each_place
def test_a_buffer_of_hindsight_collects_what_it_does_over_dummy(options: dict[str, Any]) -> None:
    collected = []
    for vec_env in (
        vec_envs.DummyVecEnv([flipping] * 2),
        agym.sb3.AgymVecEnv([flipping] * 2, **options),
        agym.sb3.make_vec_env(flipping, 2, **options),
    ):
        model = sb3.DQN(
            "MultiInputPolicy", vec_env, replay_buffer_class=sb3.HerReplayBuffer,
            learning_starts=40, buffer_size=400, **CPU,
        )  # fmt: skip
        model.learn(120)
        buffer = model.replay_buffer
        collected.append({**buffer.observations, "actions": buffer.actions})
        vec_env.close()
    assert len(collected[0]["actions"].nonzero()[0]) > 20
    assert same_values(collected[0], collected[1])
    assert same_values(collected[0], collected[2])


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
