"""The ids of what ships: their limits and thresholds are those of the rules, and Gymnasium's."""

from __future__ import annotations

import gymnasium
import pytest

from agym.envs.env_classes import RULES
from agym.envs.registration import SHIPPED
from agym.rules.contract import RuleBook, find_rules

# Rule books of games that Gymnasium lacks.
OWN = {"agym/Pong-v0", "agym/PongRally-v0", "agym/Breakout-v0"}


@pytest.mark.parametrize("env_id", SHIPPED)
def test_limits_and_thresholds(env_id: str) -> None:
    spec = gymnasium.spec(env_id)
    rules = find_rules(RULES[SHIPPED[env_id].rules.partition(":")[2]])
    assert spec.max_episode_steps == RuleBook.of(rules).max_episode_steps
    assert spec.reward_threshold == getattr(rules, "reward_threshold", None)
    if env_id not in OWN:
        theirs = gymnasium.spec(env_id.removeprefix("agym/"))
        assert spec.max_episode_steps == theirs.max_episode_steps
        assert spec.reward_threshold == theirs.reward_threshold


@pytest.mark.once
@pytest.mark.parametrize("env_id", SHIPPED)
def test_one_and_many_are_made_by_id(env_id: str) -> None:
    env = gymnasium.make(env_id)
    envs = gymnasium.make_vec(env_id, 2, vectorization_mode="vector_entry_point", engine="python")
    assert env.observation_space.contains(env.reset(seed=0)[0])
    assert envs.observation_space.contains(envs.reset(seed=0)[0])
    env.close()
    envs.close()
