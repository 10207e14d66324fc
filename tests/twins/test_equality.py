"""Twins are equal to SyncVectorEnv over the originals, in every bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode

import agym
from agym.core.hosts.vector.twins import Wrapping, twin_of
from agym.testing import check_twin
from agym.twins.registration import FAMILIES
from tests.support.equality import same_values
from tests.twins.needs import needs

pytestmark = pytest.mark.usefixtures("own_folder")

IDS = sorted(
    {
        str(spec.entry_point): name
        for name, spec in sorted(gymnasium.registry.items())
        if spec.entry_point in FAMILIES
    }.values()
)

# Truncates the episodes of all environments several times within a check.
LENGTH = 60


def original(env_id: str, chain: tuple[Wrapping, ...] = (), **keywords: Any) -> Callable[[], Any]:
    needs(env_id)

    def make() -> Any:
        env = gymnasium.make(env_id, max_episode_steps=LENGTH, **keywords)
        for wrapping in chain:
            env = wrapping.around(env)
        return env

    return make


def twin(env_id: str, chain: tuple[Wrapping, ...] = (), **keywords: Any) -> Callable[..., Any]:
    needs(env_id)
    cls, why = twin_of(gymnasium.spec(env_id))
    assert cls is not None, why
    keywords = {**gymnasium.spec(env_id).kwargs, **keywords}
    return lambda num_envs, mode: cls(num_envs, mode, LENGTH, chain=chain, **keywords)


def test_there_are_twins_of_all_twenty() -> None:
    assert len(IDS) == 20


@pytest.mark.full
@pytest.mark.parametrize("env_id", IDS)
def test_a_thousand_steps_in_each_mode(env_id: str) -> None:
    check_twin(original(env_id), twin(env_id), steps=3000, num_envs=8)


ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("MountainCar-v0", {"goal_velocity": 0.02}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.01}),
    ("Pendulum-v1", {"g": 9.81}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"map_name": "8x8", "success_rate": 0.7}),
    ("FrozenLake-v1", {"desc": ["SFHF", "FFFG"]}),
    ("CliffWalking-v1", {"is_slippery": True}),
    ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
    ("Blackjack-v1", {"natural": True, "sab": False}),
    ("Blackjack-v1", {"natural": False, "sab": False}),
    ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False}),
    ("HalfCheetah-v5", {"forward_reward_weight": 0.3, "ctrl_cost_weight": 0.7, "frame_skip": 3}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_reward": 2.5}),
    ("Walker2d-v5", {"healthy_z_range": (0.9, 1.5), "reset_noise_scale": 0.1}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.01}),
    ("Ant-v5", {"main_body": 2, "contact_force_range": (-0.5, 0.5)}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_range": (-1.0, 1.0)}),
    ("HumanoidStandup-v5", {"include_cvel_in_observation": False, "impact_cost_weight": 1e-5}),
    ("Swimmer-v5", {"frame_skip": 2}),
    ("Reacher-v5", {"reward_dist_weight": 2.0}),
    ("Pusher-v5", {"reward_near_weight": 0.1}),
    ("InvertedPendulum-v5", {"reset_noise_scale": 0.1}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 3.0}),
]


@pytest.mark.full
@pytest.mark.parametrize(("env_id", "keywords"), ARGUMENTS)
def test_arguments_of_the_original(env_id: str, keywords: dict[str, Any]) -> None:
    check_twin(original(env_id, **keywords), twin(env_id, **keywords), steps=300, num_envs=4)


@pytest.mark.parametrize(
    "env_id", ["HalfCheetah-v5", "InvertedPendulum-v5", "Pendulum-v1", "MountainCarContinuous-v0"]
)
def test_actions_of_double_precision(env_id: str) -> None:
    make = original(env_id)
    mode = AutoresetMode.NEXT_STEP
    envs = twin(env_id)(2, mode), gymnasium.vector.SyncVectorEnv([make] * 2, autoreset_mode=mode)
    actions = [*np.random.default_rng(0).uniform(-3, 3, (50, *envs[0].action_space.shape))]
    actions[::3] = [each.astype(np.float32) for each in actions[::3]]
    results = [[each.reset(seed=3), *map(each.step, actions)] for each in envs]
    assert same_values(*results)
    for each in envs:
        each.close()


def test_the_goal_of_mountain_car_is_reached_exactly() -> None:
    make = original("MountainCarContinuous-v0")().unwrapped
    count, goal = 3000, np.float32(0.45)
    envs = twin("MountainCarContinuous-v0")(count, AutoresetMode.NEXT_STEP)
    envs.reset(seed=0)
    actions = np.full((count, 1), 1.0, np.float32)
    envs.step(actions)  # from here on in single precision
    position = np.linspace(0.40, 0.43, count, dtype=np.float32)
    velocity = goal - position - np.float32(0.0015 - 0.0025 * np.cos(3 * position))
    envs.states["position"], envs.states["velocity"] = position, velocity
    observations, _, terminated, *_ = envs.step(actions)
    assert (observations[:, 0] == goal).any()
    for k in range(count):
        make.state = np.array([position[k], velocity[k]])
        assert terminated[k] == make.step(actions[k])[2], position[k]
    envs.close()


STATISTICS = Wrapping(wrappers.RecordEpisodeStatistics, {})
CLEANRL = (
    Wrapping(wrappers.FlattenObservation, {}),
    STATISTICS,
    Wrapping(wrappers.ClipAction, {}),
    Wrapping(wrappers.NormalizeObservation, {}),
    Wrapping(
        wrappers.TransformObservation,
        {"func": lambda seen: np.clip(seen, -10, 10), "observation_space": None},
    ),
    Wrapping(wrappers.NormalizeReward, {"gamma": 0.9}),
    Wrapping(wrappers.TransformReward, {"func": lambda reward: np.clip(reward, -10, 10)}),
)


@pytest.mark.once
@pytest.mark.parametrize(
    "env_id", ["HalfCheetah-v5", "Pendulum-v1", "Ant-v5", "InvertedPendulum-v5"]
)
def test_the_wrappers_of_cleanrl(env_id: str) -> None:
    check_twin(original(env_id, CLEANRL), twin(env_id, CLEANRL), steps=300, num_envs=4)


@pytest.mark.once
@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "Hopper-v5"])
def test_wrappers_of_any_observation(env_id: str) -> None:
    for chain in [(STATISTICS,), (Wrapping(wrappers.FlattenObservation, {}), STATISTICS)]:
        check_twin(original(env_id, chain), twin(env_id, chain), steps=300, num_envs=4)


@pytest.mark.full
def test_rescaled_actions() -> None:
    chain = (
        Wrapping(
            wrappers.RescaleAction, {"min_action": np.float32(-2), "max_action": np.float32(3)}
        ),
        STATISTICS,
    )
    check_twin(original("Reacher-v5", chain), twin("Reacher-v5", chain), steps=300, num_envs=4)


@pytest.mark.full
def test_the_monitor_of_stable_baselines() -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor", reason="the extra `sb3`")
    for chain in [
        (Wrapping(monitor.Monitor, {}),),
        (Wrapping(wrappers.NormalizeReward, {}), Wrapping(monitor.Monitor, {})),
    ]:
        check_twin(original("Hopper-v5", chain), twin("Hopper-v5", chain), steps=300, num_envs=4)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CartPole-v1", "HalfCheetah-v5"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_any_backend_gives_the_same(env_id: str, autoreset: str) -> None:
    """The engine's promises hold: the same rows, infos and random numbers as `serial`."""
    needs(env_id)
    histories = [[*played(env_id, backend, autoreset)] for backend in ("serial", "twin")]
    assert same_values(*histories)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Pendulum-v1", "Hopper-v5"])
def test_agyms_vector_environment_over_a_twin(env_id: str) -> None:
    make = original(env_id, (STATISTICS, Wrapping(wrappers.NormalizeReward, {})))
    kinds = set()

    def over_engine(num_envs: int, mode: AutoresetMode) -> Any:
        envs = agym.AgymVectorEnv([make] * num_envs, autoreset_mode=mode, backend="twin")
        kinds.add(envs.backend)
        return envs

    check_twin(make, over_engine, steps=200, num_envs=4)
    assert kinds == {"twin"}


def played(env_id: str, backend: Any, autoreset: Any) -> Any:
    with agym.make(
        env_id, 3, backend=backend, autoreset=autoreset, max_episode_steps=20, output="array"
    ) as envs:
        yield envs.reset(seed=3)
        envs.action_space.seed(0)
        for _ in range(50):
            results = envs.step(envs.action_space.sample())
            yield tuple(results)
            for i in np.flatnonzero(results[2] | results[3]) if autoreset == "disabled" else ():
                yield envs[int(i)].reset()


def test_a_difference_of_one_bit_is_found() -> None:
    right = twin("MountainCar-v0")

    def wrong(num_envs: int, mode: AutoresetMode) -> Any:
        envs = right(num_envs, mode)
        step = envs.step

        def step_wrong(actions: Any) -> Any:
            observations, *rest = step(actions)
            observations[0, 1] = np.nextafter(observations[0, 1], np.float32(9))
            return observations, *rest

        envs.step = step_wrong
        return envs

    with pytest.raises(
        AssertionError, match=r"step 0 under autoreset='next_step': observ.*\[0\]\[1"
    ):
        check_twin(original("MountainCar-v0"), wrong, steps=30)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CartPole-v1", "Hopper-v5", "wrapped"])
def test_steps_of_some(env_id: str, autoreset: Any) -> None:
    """Handles, groups and first-k batches give the same as with `serial`."""
    env: Any = original("FrozenLake-v1", (STATISTICS,)) if env_id == "wrapped" else env_id
    needs("FrozenLake-v1" if env_id == "wrapped" else env_id)
    histories = []
    for backend in ("serial", "twin"):
        rng, history = np.random.default_rng(0), list[Any]()
        with agym.make(env, 4, backend=backend, autoreset=autoreset, output="array") as envs:
            history.append(tuple(envs.reset(seed=2)))
            envs.action_space.seed(0)
            over = np.zeros(4, bool)
            for _ in range(60):
                first = int(rng.integers(4))
                ids = [*range(first, int(rng.integers(first + 1, 5)))]
                if autoreset == "disabled" and over.any():
                    history += [tuple(envs[i].reset()) for i in np.flatnonzero(over).tolist()]
                    over[:] = False
                actions = envs.action_space.sample()[ids]
                result = tuple(envs.step(actions, env_ids=ids))
                over[ids] = result[2] | result[3]
                history.append(result)
                whole = envs.step(envs.action_space.sample()) if not over.any() else None
                if whole is not None:
                    history.append(tuple(whole))
                    over = whole[2] | whole[3]
        for result in history:
            for info in result[-1] if isinstance(result[-1], list) else [result[-1]]:
                for each in (info, info.get("final_info", {})):
                    each.get("episode", {}).pop("t", None)
        histories.append(history)
    assert same_values(*histories)
