"""Faults, snapshots and tools work as for single agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import agym
from tests.multi_agent.games import Colony
from tests.support.backends import FORK, SERIAL_OR_FORK


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_a_killed_worker_ends_the_episodes_of_its_environments(autoreset: Any) -> None:
    with agym.make_parallel(
        Colony, 4, backend=FORK, workers=2, on_fault="restart", autoreset=autoreset, deaths=False
    ) as envs:
        envs.reset(seed=0)
        envs.reset(seed=0, options={"kill": 2}, env_ids=[0])
        envs.step(envs.sample_actions())
        result = envs.step(envs.sample_actions())
        lost = np.array([True, True, False, False])
        for agent in envs.action_spaces:
            assert np.array_equal(result.truncated[agent], lost)
            assert np.array_equal(result.valid[agent], ~lost)
            assert not result.rewards[agent][lost].any()
            live = ~lost if autoreset != "same_step" else np.ones(4, bool)
            assert np.array_equal(result.live[agent], live)
        assert np.array_equal(result.over, lost)
        assert [isinstance(info.get("fault"), agym.Fault) for info in result.infos] == lost.tolist()
        assert not envs.step(envs.sample_actions()).over.any()


def test_neighbours_of_an_environment_that_dies_are_replayed() -> None:
    with (
        agym.make_parallel(Colony, 4, backend=FORK, workers=2, on_fault="replay") as envs,
        agym.make_parallel(Colony, 4, backend="serial") as others,
    ):
        envs.reset(seed=0)
        others.reset(seed=0)
        envs.reset(seed=[0], options={"kill": 6}, env_ids=[0])
        for _ in range(12):
            actions = envs.sample_actions()
            result, expected = envs.step(actions), others.step(actions)
            for agent in envs.action_spaces:
                for name in ("rewards", "valid", "live", "observations"):
                    ours, theirs = getattr(result, name)[agent], getattr(expected, name)[agent]
                    assert np.array_equal(ours[1:], theirs[1:])


def test_an_error_names_the_environment() -> None:
    with agym.make_parallel(Colony, 1, backend="serial") as envs:
        envs.reset(seed=0, options={"raise": 1})
        with pytest.raises(agym.EnvError, match="ValueError: as asked for"):
            envs.step(envs.sample_actions())
        envs.reset(seed=0)
        assert envs.step(envs.sample_actions()).valid["kind0_0"].any()


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
@pytest.mark.parametrize("game", ["colony", "mpe2/simple_tag_v3"])
def test_snapshots_continue_exactly(game: str, backend: Any) -> None:
    with agym.make_parallel(Colony if game == "colony" else game, 2, backend=backend) as envs:
        envs.reset(seed=0)
        envs.step(envs.sample_actions())
        snapshots = envs.runner.snapshot()
        plan = [envs.sample_actions() for _ in range(40)]
        expected = [envs.step(actions) for actions in plan]
        restored = envs.restore(snapshots)
        assert not any(mask.any() for mask in restored.valid.values())
        assert any(mask.any() for mask in restored.live.values())
        for actions, before in zip(plan, expected, strict=True):
            result = envs.step(actions)
            for agent in envs.action_spaces:
                for name in ("rewards", "valid", "live", "terminated", "observations"):
                    assert np.array_equal(
                        getattr(result, name)[agent], getattr(before, name)[agent]
                    )


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_snapshots_of_turns_continue_exactly(backend: Any) -> None:
    with agym.make_aec("classic/connect_four-v3", 2, backend=backend) as envs:
        envs.reset(seed=0)
        envs.step([0, 1])
        batch = envs.restore(envs.runner.snapshot())
        assert batch.agents.tolist() == ["player_1", "player_1"]
        assert batch.observations["observation"].sum() == 2


def test_logs_and_videos_see_the_environments(tmp_path: Any) -> None:
    rows: list[dict[str, float]] = []
    with agym.make_parallel(
        Colony, 2, backend="serial", deaths=False, max_cycles=5, render_mode="rgb_array"
    ) as envs:
        with agym.log(envs, rows.append, every=10):
            envs.reset(seed=0)
            returns = np.zeros(2)
            for _ in range(5):
                returns += sum(envs.step(envs.sample_actions()).rewards.values())
        assert rows[0]["episodes/return"] == pytest.approx(returns.mean())
        assert envs.render()[0].shape == (4, 6, 3)
