"""The two masks, final observations, autoreset modes, groups, and action masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import agym
from tests.multi_agent.games import Colony, Odd
from tests.support.backends import OF_ENVS

MODES = ["same_step", "next_step", "disabled"]


def play_to_the_end(envs: agym.ParallelEnvs) -> agym.AgentStep:
    for _ in range(4):
        result = envs.step(envs.sample_actions())
    return result


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("backend", OF_ENVS)
def test_the_end_of_an_episode_in_each_mode(autoreset: Any, backend: str) -> None:
    """The reward of the last step is real in every mode; who must act next depends on the mode."""
    with agym.make_parallel(
        Colony, 2, autoreset=autoreset, deaths=False, max_cycles=4, **OF_ENVS[backend]
    ) as envs:
        assert envs.possible_agents is not None
        first = envs.reset(seed=0)
        assert all(mask.all() for mask in first.live.values())
        assert not any(mask.any() for mask in first.valid.values())
        result = play_to_the_end(envs)
        for agent in envs.possible_agents:
            assert result.valid[agent].all()
            assert result.truncated[agent].all()
            assert not result.terminated[agent].any()
            assert (result.rewards[agent] != 0).all()
            assert (result.live[agent] == (autoreset == "same_step")).all()
            same = np.array_equal(result.final_obs[agent], result.observations[agent])
            assert same == (autoreset != "same_step")
        assert result.over.all()
        after = envs.step(envs.sample_actions())
        for agent in envs.possible_agents:
            assert (after.valid[agent] == (autoreset == "same_step")).all()
            assert (after.live[agent] == (autoreset != "disabled")).all()
            assert not after.truncated[agent].any()
            assert (after.rewards[agent] != 0).all() == (autoreset == "same_step")
        assert not after.over.any()


def test_the_reward_of_an_agent_that_dies_is_real() -> None:
    with agym.make_parallel(Colony, 4, backend="serial") as envs:
        result: Any = envs.reset(seed=3)
        died = 0
        for _ in range(60):
            live = result.live
            result = envs.step(envs.sample_actions())
            for agent in envs.action_spaces:
                assert np.array_equal(result.valid[agent], live[agent])
                dead = result.terminated[agent] & ~result.over
                died += int(dead.sum())
                assert (result.rewards[agent][dead] != 0).all()
                assert not result.live[agent][dead].any()
                assert not result.rewards[agent][~result.valid[agent]].any()
        assert died > 10


def test_infos_are_a_dict_of_agents_for_each_environment() -> None:
    with agym.make_parallel(Colony, 2, backend="serial", deaths=False, max_cycles=3) as envs:
        observations, infos = envs.reset(seed=0)
        assert [*infos[0]] == [*observations] == envs.possible_agents
        assert infos[1]["kind0_0"]["time"] == 0
        assert infos[1]["kind0_1"] == {}
        for _ in range(3):
            result = envs.step(envs.sample_actions())
        _, _, _, _, infos = result
        assert infos[0]["kind0_0"]["time"] == 0
        assert result.final_infos[0]["kind0_0"]["time"] == 3
        assert envs.step(envs.sample_actions()).final_infos == [{}, {}]


def test_groups_are_agents_of_equal_spaces_by_name() -> None:
    with agym.make_parallel(Colony, 2, backend="serial", deaths=False) as envs:
        names = ["kind0_0", "kind0_1", "kind0_2"]
        assert envs.agent_groups["kind0"] == names
        assert [*envs.agent_groups] == ["kind0", "kind1"]
        envs.reset(seed=0)
        actions = {
            name: np.arange(2 * 3).reshape(2, 3) % 4 for name in envs.agent_groups
        }  # of agent k in environment i: (3 i + k) % 4
        result = envs.step(actions)
        group = result.by_group()["kind1"]
        assert group.observations.shape == (2, 3, 4)
        assert group.agents == ("kind1_0", "kind1_1", "kind1_2")
        for k, agent in enumerate(group.agents):
            assert np.array_equal(group.observations[:, k], result.observations[agent])
            for name in ("rewards", "terminated", "truncated", "valid", "live"):
                assert np.array_equal(getattr(group, name)[:, k], getattr(result, name)[agent])
        envs.reset(seed=0)
        apart = {
            agent: actions[name][:, k]
            for name, agents in envs.agent_groups.items()
            for k, agent in enumerate(agents)
        }
        again = envs.step(apart)
        assert np.array_equal(again.rewards["kind1_2"], result.rewards["kind1_2"])


def test_groups_of_the_callers_choice() -> None:
    groups = {"all": ["kind0_0", "kind1_0"]}
    with agym.make_parallel(
        Colony, 2, backend="serial", same_spaces=True, agent_groups=groups
    ) as envs:
        envs.reset(seed=0)
        result = envs.step(envs.sample_actions())
        assert result.by_group()["all"].observations.shape == (2, 2, 3)
    for wrong, match in {
        ("kind0_0", "nobody"): "use agents of",
        (): "use agents of",
        ("kind0_0", "kind1_0"): "'kind1_0' and 'kind0_0' differ",
    }.items():
        with pytest.raises(agym.UsageError, match=match):
            agym.make_parallel(Colony, 2, backend="serial", agent_groups={"all": [*wrong]})


def test_action_masks_in_observations_and_infos() -> None:
    with agym.make_parallel(Colony, 2, backend="serial", nested=True) as envs:
        result = envs.reset(seed=0)
        assert result.action_masks["kind0_0"] is result.observations["kind0_0"]["action_mask"]
    with agym.make_aec("classic/connect_four-v3", 3, backend="serial") as turns:
        batch = turns.reset(seed=0)
        assert batch.action_masks is not None
        assert batch.action_masks.tolist() == [[1] * 7] * 3

    class MaskInInfos(Colony):
        def _infos(self, agents: list[str]) -> Any:
            mask = np.array([0, 1, 0, self._time], np.int8)
            return {agent: {"action_mask": mask} if agent == "kind0_1" else {} for agent in agents}

    with agym.make_parallel(MaskInInfos, 2, backend="serial", deaths=False) as others:
        others.reset(seed=0)
        result2 = others.step(others.sample_actions())
        assert {a: m.tolist() for a, m in result2.action_masks.items()} == {
            "kind0_1": [[0, 1, 0, 1]] * 2
        }


def test_first_k_batches_of_turns_by_agent() -> None:
    with agym.make_aec("classic/tictactoe-v3", 4, **OF_ENVS["process"]) as envs:
        batch = envs.reset(seed=0)
        batch = envs.step([0, 1], env_ids=[1, 3])
        assert batch.env_ids.tolist() == [1, 3]
        envs.send([5, 6, 7], [3, 0, 1])
        seen: dict[int, Any] = {}
        while len(seen) < 3:
            batch = envs.recv()
            seen |= dict(zip(batch.env_ids.tolist(), batch.agents, strict=True))
        assert seen == {0: "player_2", 1: "player_1", 3: "player_1"}
        envs.send([0, 8, 8, 1])
        batch = envs.recv(min_envs=4)
        turns = batch.by_agent()
        assert turns.keys() == {"player_1", "player_2"}
        for agent, turn in turns.items():
            assert (batch.agents[turn.rows] == agent).all()
            assert np.array_equal(batch.env_ids[turn.rows], turn.env_ids)
            assert np.array_equal(
                turn.observations["observation"], batch.observations["observation"][turn.rows]
            )
            assert np.array_equal(turn.action_masks, batch.action_masks[turn.rows])


@pytest.mark.parametrize("autoreset", MODES)
def test_the_end_of_a_game_of_turns(autoreset: Any) -> None:
    """The last rewards of both players come with the turn that ends the game."""
    with agym.make_aec("classic/tictactoe-v3", 2, backend="serial", autoreset=autoreset) as envs:
        envs.reset(seed=0)
        for action in (0, 3, 1, 4):
            envs.step([action] * 2)
        batch = envs.step([2, 8])
        assert batch.over.tolist() == [True, False]
        assert batch.rewards["player_1"].tolist() == [1, 0]
        assert batch.rewards["player_2"].tolist() == [-1, 0]
        assert batch.valid["player_1"].tolist() == [True, False]
        assert batch.terminated["player_2"].tolist() == [True, False]
        first = "player_1" if autoreset == "same_step" else None
        assert batch.agents.tolist() == [first, "player_2"]
        assert batch.final_obs["player_1"]["observation"][0].sum() == 5
        batch = envs.step([0, 5])
        assert batch.agents.tolist() == [
            {"same_step": "player_2", "next_step": "player_1", "disabled": None}[autoreset],
            None if autoreset != "same_step" else "player_1",
        ]


def test_the_async_api_returns_the_same() -> None:
    async def play() -> Any:
        async with agym.make_parallel_async(Colony, 2, backend="serial") as envs:
            await envs.reset(seed=0)
            pending = envs.step({agent: [1, 2] for agent in envs.action_spaces})
            assert "num_envs=2" in repr(envs)
            states = await envs.state()
            return await pending, states

    async def take_turns() -> Any:
        async with agym.make_aec_async("classic/tictactoe-v3", 2, backend="thread") as envs:
            batch = await envs.reset(seed=0)
            batch = await envs.step([0, 1])
            envs.send([2, 3], batch.env_ids)
            return await envs.recv(min_envs=2)

    result, states = agym.run(play())
    with agym.make_parallel(Colony, 2, backend="serial") as envs:
        envs.reset(seed=0)
        expected = envs.step({agent: [1, 2] for agent in envs.action_spaces})
        for agent in envs.action_spaces:
            assert np.array_equal(result.rewards[agent], expected.rewards[agent])
            assert np.array_equal(result.observations[agent], expected.observations[agent])
        assert np.array_equal(envs.state(), states)
        assert len(envs) == 2
    assert agym.run(take_turns()).agents.tolist() == ["player_1", "player_1"]


def test_random_actions_differ_from_call_to_call() -> None:
    with agym.make_parallel(Colony, 8, backend="serial") as envs:
        samples = [envs.sample_actions() for _ in range(3)]
        for agent in envs.action_spaces:
            assert len({tuple(sample[agent]) for sample in samples}) > 1


@pytest.mark.parametrize("backend", OF_ENVS)
def test_all_results_have_the_order_of_possible_agents(backend: str) -> None:
    """Also where the environments name their agents in different orders."""
    makes = [Odd, lambda: Odd(reverse=True)]
    with agym.make_parallel(makes, **OF_ENVS[backend]) as envs:
        names = Odd().possible_agents
        reset = envs.reset(seed=0)
        step = envs.step(envs.sample_actions())
        for result in (reset, step):
            for name in ("observations", "rewards", "valid", "live", "truncated", "final_obs"):
                assert [*getattr(result, name)] == names
            assert [*result.infos[0]] == [*envs.action_spaces] == names
        for agent in names:
            assert (step.rewards[agent] == len(str(agent))).all()
            if agent != "zoe":
                assert (np.round(step.observations[agent].mean()) >= len(str(agent)) - 1).all()
        assert step.observations["zoe"][0] == (1, 1)
        grouped = [agent for agents in envs.agent_groups.values() for agent in agents]
        assert sorted(map(str, grouped)) == sorted(map(str, names))
        assert [*envs.agent_groups] == [
            "zoe", "piston", "piston (2)", "agents", "alice", "piston_2x",
        ]  # fmt: skip
        assert step.by_group()["zoe"].observations.shape == (2, 1)


def test_a_reset_of_some_environments_keeps_who_is_live_in_others() -> None:
    with agym.make_parallel(
        Colony, 3, backend="serial", deaths=False, max_cycles=9, autoreset="disabled"
    ) as envs:
        envs.reset(seed=0)
        envs.step(envs.sample_actions())
        result = envs.reset(env_ids=[1])
        assert all(mask.all() for mask in result.live.values())
        assert [bool(info) for info in result.infos] == [True] * 3
        for _ in range(8):
            envs.step(envs.sample_actions())
        result = envs.reset(env_ids=[0])
        assert result.live["kind0_0"].tolist() == [True, True, False]


def test_no_results_are_an_empty_batch() -> None:
    with agym.make_aec("classic/tictactoe-v3", 2, **OF_ENVS["process"]) as envs:
        envs.reset(seed=0)
        assert len(envs.reset(env_ids=[]).agents) == 0
        assert len(envs.step([], env_ids=[]).env_ids) == 0
        envs.send([0, 1])
        while not len((batch := envs.recv(min_envs=2, timeout=0)).env_ids):
            assert batch.agents.shape == (0,)
            assert batch.by_agent() == {}
        assert sorted(batch.env_ids) == [0, 1]


def test_masks_of_a_game_that_is_over_allow_any_action() -> None:
    with agym.make_aec("classic/tictactoe-v3", 2, backend="serial", autoreset="disabled") as envs:
        envs.reset(seed=0)
        for action in (0, 3, 1, 4):
            envs.step([action] * 2)
        batch = envs.step([2, 8])
        assert batch.agents[0] is None
        assert batch.action_masks.sum(axis=1).tolist() == [9, 4]
