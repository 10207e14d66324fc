"""Batches of many agents give, bit for bit, what a plain loop over each environment gives."""

from __future__ import annotations

import warnings
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from agym.multi_agent.find import find
from agym.multi_agent.handles import AECHandle
from tests.multi_agent.games import KNIGHTS, Colony
from tests.multi_agent.plain_loops import compare_aec, compare_parallel
from tests.support.backends import OF_ENVS

with warnings.catch_warnings():  # its package imports PettingZoo's old modules
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test.example_envs import generated_agents_env_v0, generated_agents_parallel_v0

BACKENDS = [pytest.param(options, id=name) for name, options in OF_ENVS.items()]
COLONIES: dict[str, dict[str, Any]] = {
    "deaths": {},
    "alone": {"kinds": 1, "each": 1},
    "same spaces": {"same_spaces": True},
    "nested": {"nested": True},
    "no deaths": {"deaths": False},
}


@pytest.mark.parametrize("options", BACKENDS)
@pytest.mark.parametrize("kind", COLONIES)
def test_a_batch_is_a_plain_loop_over_each_environment(kind: str, options: Any) -> None:
    keywords = COLONIES[kind]
    with agym.make_parallel(Colony, 3, **options, **keywords) as envs:
        assert compare_parallel(envs, partial(Colony, **keywords), episodes=12) > 20


@pytest.mark.parametrize("copy", [True, False])
def test_views_are_a_plain_loop_too(copy: bool) -> None:
    with agym.make_parallel(Colony, 3, **OF_ENVS["process"], copy=copy) as envs:
        compare_parallel(envs, Colony, episodes=12)


@pytest.mark.parametrize("options", BACKENDS)
@pytest.mark.parametrize(
    ("env", "keywords"),
    [("mpe2/simple_tag_v3", {}), (KNIGHTS, {"max_cycles": 200})],
)
def test_registered_environments_are_plain_loops(env: str, keywords: Any, options: Any) -> None:
    make = partial(find(env, "parallel"), **keywords)
    with agym.make_parallel(env, 2, **options, **keywords) as envs:
        assert compare_parallel(envs, make, episodes=4) > 40


@pytest.mark.parametrize("options", BACKENDS)
@pytest.mark.parametrize("min_envs", [1, 3])
@pytest.mark.parametrize(
    "env", ["classic/connect_four-v3", "classic/texas_holdem-v4", "mpe2/simple_world_comm_v3"]
)
def test_turns_are_a_plain_loop_over_last(env: str, min_envs: int, options: Any) -> None:
    with agym.make_aec(env, 3, **options) as envs:
        assert compare_aec(envs, find(env, "aec"), episodes=10, min_envs=min_envs) > 20


@pytest.mark.parametrize("autoreset", ["same_step", "disabled"])
@pytest.mark.parametrize("options", BACKENDS)
@pytest.mark.parametrize("game", ["colony", "generated agents"])
def test_environments_without_possible_agents_are_lists(
    game: str, options: Any, autoreset: Any
) -> None:
    """Among them PettingZoo's generated agents, whose names and spaces differ in each episode."""
    make: Any = partial(Colony, named=False)
    if game != "colony":
        make = generated_agents_parallel_v0.parallel_env
    plain = [make() for _ in range(2)]
    ended = 0
    with agym.make_parallel(make, 2, autoreset=autoreset, **options) as envs:
        for episode in range(2):
            seeds = [episode, 9 - episode]
            result: Any = envs.reset(seed=seeds)
            observations, _ = result
            expected = [env.reset(seed=s)[0] for env, s in zip(plain, seeds, strict=True)]
            for _ in range(40):
                for k, env in enumerate(plain):
                    assert sorted(result.live[k]) == sorted(env.agents)
                    assert observations[k].keys() == expected[k].keys()
                    for agent, observation in expected[k].items():
                        assert np.array_equal(observations[k][agent], observation)
                actions = [{a: p.action_space(a).sample() for a in p.agents} for p in plain]
                rows = [
                    deepcopy(env.step(chosen)) if chosen else ({},) * 5
                    for env, chosen in zip(plain, actions, strict=True)
                ]
                result = envs.step(actions)
                observations, *others = result
                expected, *columns = map(list, zip(*rows, strict=True))
                for k, seen in enumerate(result.final_obs):
                    assert all(np.array_equal(seen[a], o) for a, o in expected[k].items())
                assert others[:3] == columns[:3]
                for k, env in enumerate(plain):
                    if actions[k] and not env.agents:
                        ended += 1
                        if autoreset == "same_step":
                            expected[k] = env.reset()[0]
    assert (ended > 2) == (game == "colony")


def test_batches_need_possible_agents() -> None:
    with agym.make_aec(generated_agents_env_v0.env, 2, backend="serial") as envs:
        with pytest.raises(agym.UsageError, match=r"no possible_agents.* as envs\[i\]"):
            envs.reset()
        handle = envs[0]
        assert isinstance(handle, AECHandle)
        handle.reset(seed=0)
        assert handle.agent_selection in handle.agents
    refused = pytest.raises(agym.UsageError, match="no possible_agents")
    make = generated_agents_parallel_v0.parallel_env
    with agym.make_parallel(make, backend="serial") as lists, refused:
        lists.flat()


def test_lists_under_next_step() -> None:
    keywords: Any = {"named": False, "deaths": False, "max_cycles": 2}
    with agym.make_parallel(Colony, 2, backend="serial", autoreset="next_step", **keywords) as envs:
        observations, infos = envs.reset(seed=0)
        actions: Any = [dict.fromkeys(row, 0) for row in observations]
        envs.step(actions)
        _, _, _, truncated, _ = envs.step(actions)
        assert all(truncated[0].values())
        observations, rewards, *_ = envs.step([{}, {}])
        assert rewards == [{}, {}]
        assert observations[0].keys() == infos[0].keys()
