"""Flat views: a row per agent of each environment, for Gymnasium and Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import agym
from tests.multi_agent.games import Colony
from tests.support.backends import OF_ENVS


@pytest.mark.parametrize("backend", OF_ENVS)
def test_rows_are_agents_of_environments(backend: str) -> None:
    options = OF_ENVS[backend]
    with (
        agym.make_parallel(Colony, 2, same_spaces=True, **options) as envs,
        agym.make_parallel(Colony, 2, same_spaces=True, backend="serial") as others,
    ):
        flat = envs.flat("same_step")
        assert isinstance(flat, VectorEnv)
        assert flat.num_envs == 12
        observations, infos = flat.reset(seed=0)
        result: Any = others.reset(seed=0)
        agents = others.possible_agents
        assert agents is not None
        for _ in range(80):
            live = np.array([result.live[agent][i] for i in range(2) for agent in agents])
            assert np.array_equal(infos["live"], live)
            assert flat.observation_space.contains(observations)
            for row in range(12):
                i, agent = row // 6, agents[row % 6]
                expected = result.observations[agent][i] * live[row]
                assert np.array_equal(observations[row], expected)
            actions = flat.action_space.sample()
            observations, rewards, terminated, truncated, infos = flat.step(actions)
            result = others.step({agent: actions[k::6] for k, agent in enumerate(agents)})
            for row in range(12):
                i, agent = row // 6, agents[row % 6]
                valid = result.valid[agent][i]
                assert rewards[row] == result.rewards[agent][i]
                assert terminated[row] == result.terminated[agent][i]
                absent_at_end = result.over[i] and not valid
                assert truncated[row] == (result.truncated[agent][i] or absent_at_end)
                if terminated[row] or truncated[row]:
                    final = infos["final_obs"][row]
                    assert np.array_equal(final, result.final_obs[agent][i] * valid)


def test_an_absent_agent_is_truncated_with_its_environment() -> None:
    with agym.make_parallel(Colony, 3, backend="serial", same_spaces=True) as envs:
        flat = envs.flat()
        flat.reset(seed=0)
        absent = np.zeros(18, int)
        for _ in range(200):
            _, rewards, terminated, truncated, infos = flat.step(flat.action_space.sample())
            gone = ~infos["valid"]
            assert not rewards[gone].any()
            assert not terminated[gone].any()
            # All rows of an environment become live again when one absent row is truncated.
            absent += truncated & gone
            over = (truncated & gone).reshape(3, 6).any(axis=1)
            assert infos["live"].reshape(3, 6)[over].any(axis=1).all()
        assert (absent > 2).all()


def test_gymnasiums_wrappers_accept_a_flat_view() -> None:
    with agym.make_parallel(
        Colony, 2, backend="serial", same_spaces=True, deaths=False, max_cycles=5,
        autoreset="next_step",
    ) as envs:  # fmt: skip
        flat = RecordEpisodeStatistics(envs.flat())
        flat.reset(seed=0)
        for _ in range(5):
            *_, infos = flat.step(flat.action_space.sample())
        assert infos["episode"]["l"].tolist() == [5] * 12
        assert agym.envs_of(flat) is envs.runner
        assert len(flat.render()) == 2


def test_under_next_step_the_last_observation_is_in_the_row_that_ends() -> None:
    with agym.make_parallel(
        Colony, 2, backend="serial", same_spaces=True, deaths=False, max_cycles=3,
        autoreset="next_step",
    ) as envs:  # fmt: skip
        flat = envs.flat()
        flat.reset(seed=0)
        for _ in range(3):
            observations, _, _, truncated, infos = flat.step(flat.action_space.sample())
        assert truncated.all()
        assert not infos["live"].any()
        assert observations.any(axis=1).all()


def test_a_flat_view_needs_equal_spaces_and_its_mode() -> None:
    differ = pytest.raises(agym.UsageError, match=r"'kind1_0' and 'kind0_0' differ.*agent_groups")
    with agym.make_parallel(Colony, 2, backend="serial") as envs, differ:
        envs.flat()
    with agym.make_parallel(
        Colony, 2, backend="serial", same_spaces=True, autoreset="next_step"
    ) as envs:
        with pytest.raises(agym.UsageError, match=r"pass autoreset='same_step' to agym\.make_para"):
            envs.flat("same_step")
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
        with pytest.raises(agym.UsageError, match=r"pass autoreset='same_step' to agym\.make_para"):
            envs.flat_sb3()


def test_nested_observations_are_flat_too() -> None:
    with agym.make_parallel(Colony, 2, backend="serial", same_spaces=True, nested=True) as envs:
        flat = envs.flat()
        observations, infos = flat.reset(seed=0)
        assert observations["action_mask"].shape == (12, 4)
        array, number, texts = observations["observation"]
        assert array.shape == (12, 3)
        assert number.shape == (12,)
        assert set(texts[~infos["live"]]) <= {None}


class TestStableBaselines3:
    @pytest.fixture(autouse=True)
    def _sb3(self) -> None:
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")

    def test_the_view_is_the_flat_one(self) -> None:
        keywords: Any = {"same_spaces": True, "deaths": False, "max_cycles": 4}
        with (
            agym.make_parallel(Colony, 2, backend="serial", **keywords) as envs,
            agym.make_parallel(Colony, 2, backend="serial", **keywords) as others,
        ):
            vec, flat = envs.flat_sb3(), others.flat()
            vec.seed(5)
            assert np.array_equal(vec.reset(), flat.reset(seed=[5, 11])[0])
            for _ in range(9):
                actions = flat.action_space.sample()
                observations, rewards, dones, infos = vec.step(actions)
                seen, expected, _, truncated, columns = flat.step(actions)
                assert np.array_equal(observations, seen)
                assert np.array_equal(rewards, expected.astype(np.float32))
                assert np.array_equal(dones, truncated)
                for row in np.flatnonzero(dones):
                    final = infos[row]["terminal_observation"]
                    assert np.array_equal(final, columns["final_obs"][row])
                    assert infos[row]["TimeLimit.truncated"]
            assert vec.get_attr("max_cycles") == [4] * 12
            vec.set_attr("max_cycles", 7, indices=[6])
            assert vec.get_attr("max_cycles", indices=[0, 11]) == [4, 7]
            assert vec.env_method("state", indices=3)[0].shape == (2,)
            assert vec.env_is_wrapped(RecordEpisodeStatistics) == [False] * 12

    def test_dead_agents_are_refused_unless_asked_for(self) -> None:
        with agym.make_parallel(Colony, 3, backend="serial", same_spaces=True) as envs:
            vec = envs.flat_sb3()
            vec.seed(0)
            with pytest.raises(agym.UsageError, match="dead='zeros'"):
                vec.reset()
            with pytest.raises(agym.UsageError, match="must be None or 'zeros'"):
                envs.flat_sb3(dead="ones")
            vec = envs.flat_sb3(dead="zeros")
            vec.seed(0)
            vec.reset()
            dones = np.zeros(18)
            for _ in range(60):
                *_, done, _ = vec.step(np.zeros(18, int))
                dones += done
            assert (dones > 0).all()

    @pytest.mark.once
    def test_sb3_learns(self) -> None:
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import VecMonitor

        with agym.make_parallel("mpe2/simple_spread_v3", 2, backend="serial") as envs:
            model = PPO("MlpPolicy", VecMonitor(envs.flat_sb3()), n_steps=50, batch_size=50, seed=0)
            model.learn(600)
            assert len(model.ep_info_buffer or ()) == 24
