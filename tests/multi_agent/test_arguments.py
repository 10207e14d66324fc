"""Mistakes get one error that names the agent and the remedy, before anything is sent."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from pettingzoo.classic.tictactoe import tictactoe as tictactoe_v3

import agym
from tests.multi_agent.games import Colony

WRONG_ENVS: dict[str, tuple[Any, Any, str]] = {
    "no such id": (agym.make_parallel, "CartPole-v1", "can't be found as a PettingZoo env"),
    "not callable": (agym.make_parallel, 3, "can't be found as a PettingZoo environment"),
    "only turns": (agym.make_parallel, "classic/tictactoe-v3", "use agym.make_aec"),
    "a factory of turns": (agym.make_parallel, tictactoe_v3.env, "use agym.make_aec"),
    "a module of turns": (agym.make_parallel, tictactoe_v3, "use agym.make_aec"),
    "one agent": (agym.make_parallel, lambda: gymnasium.make("CartPole-v1"), "use agym.make"),
    "not turns": (agym.make_aec, Colony, "use agym.make_parallel"),
    "parallel for make": (agym.make, Colony, "use agym.make_parallel"),
    "turns for make": (agym.make, tictactoe_v3.env, "use agym.make_aec"),
}


@pytest.mark.parametrize("kind", WRONG_ENVS)
def test_wrong_environments(kind: str) -> None:
    function, env, match = WRONG_ENVS[kind]
    with pytest.raises(agym.UsageError, match=match):
        function(env, 2, backend="serial")


@pytest.mark.parametrize("name", ["output", "infos", "episode_stats"])
def test_options_about_other_results(name: str) -> None:
    with pytest.raises(agym.UsageError, match=f"leave {name}= out"):
        agym.make_parallel(Colony, 2, **{name: "none"})


def test_misspelt_options_and_keywords() -> None:
    with pytest.raises(agym.UsageError, match="use `workers`"):
        agym.make_parallel("mpe2/simple_tag_v3", 2, num_workers=2)
    with pytest.raises(agym.EnvError, match="num_god"):
        agym.make_parallel("mpe2/simple_tag_v3", 2, backend="serial", num_god=2)


def test_wrong_actions() -> None:
    with agym.make_parallel(Colony, 2, backend="serial", deaths=False) as envs:
        envs.reset(seed=0)
        good = envs.sample_actions()
        wrong: dict[str, Any] = {
            "has no 'kind0_0'": {},
            "an unknown key 'x'": {**good, "x": 1},
            "must be a dict": [0, 1],
            "needs 2 actions": {**good, "kind0_0": np.zeros(3, int)},
            "'kind0_0'.* of dtype float64": {**good, "kind0_0": np.zeros(2)},
        }
        for match, actions in wrong.items():
            with pytest.raises(agym.UsageError, match=match):
                envs.step(actions)
        assert envs.step(good).valid["kind0_0"].all()


def test_ids_of_other_packages_and_modules() -> None:
    for env in ("mpe2/simple_tag_v3", "mpe2.simple_tag-v3", "butterfly/pistonball_v6"):
        with agym.make_parallel(env, backend="serial") as envs:
            assert len(envs.observation_spaces) > 3
            assert repr(envs).startswith("ParallelEnvs(")
    with agym.make_aec(tictactoe_v3, 2, backend="serial") as turns:
        assert turns.reset(seed=0).agents.tolist() == ["player_1"] * 2
    with agym.make_parallel([Colony, lambda: Colony()], backend="serial") as both:
        assert both.num_envs == 2
