"""What ships has the spaces, limits and thresholds of Gymnasium's, and is the same compiled."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from agym.envs.env_classes import RULES
from agym.envs.registration import SHIPPED
from agym.rules.contract import RuleBook, find_rules
from tests.rules.playing import play_same, side_by_side

# Each process compiles the games anew.
pytestmark = pytest.mark.xdist_group("compiled")

# Rule books of games that Gymnasium lacks.
OWN = {"agym/Pong-v0", "agym/PongRally-v0", "agym/Breakout-v0"}
# Parameters of each game, and options for all.
PARAMETERS: dict[str, dict[str, Any]] = {
    "agym/FrozenLake-v1": {
        "success_rate": [0.5, 0.9], "reward_schedule": [(1, 0, 0), (5, -1, 0.5)],
    },
    "agym/CliffWalking-v1": {"is_slippery": [False, True]},
    "agym/Taxi-v4": {"is_rainy": [False, True], "fickle_passenger": True},
    "agym/Pong-v0": {"points": [1, 2]},
}  # fmt: skip

each_id = pytest.mark.parametrize("env_id", SHIPPED)


def rules_of(env_id: str) -> Any:
    return find_rules(RULES[SHIPPED[env_id].rules.partition(":")[2]])


@each_id
def test_spaces_limits_and_metadata(env_id: str) -> None:
    spec, rules = gymnasium.spec(env_id), rules_of(env_id)
    assert spec.max_episode_steps == RuleBook.of(rules).max_episode_steps
    assert spec.reward_threshold == getattr(rules, "reward_threshold", None)
    if env_id in OWN:
        return
    env = gymnasium.make(env_id.removeprefix("agym/"), disable_env_checker=True)
    assert env.spec is not None
    assert spec.max_episode_steps == env.spec.max_episode_steps
    assert spec.reward_threshold == env.spec.reward_threshold
    assert rules.observation_space == env.observation_space
    assert rules.action_space == env.action_space
    assert rules.metadata["render_fps"] == env.metadata["render_fps"]
    modes = {*rules.metadata.get("render_modes", ["rgb_array"]), "human"}
    assert modes == {*env.metadata["render_modes"]}


@pytest.mark.once
@each_id
def test_one_and_many_are_made_by_id(env_id: str) -> None:
    """Gymnasium's checker has no warning of our own games; its warnings are errors here."""
    env = gymnasium.make(env_id, render_mode="rgb_array")
    if env_id in OWN:
        check_env(env.unwrapped)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    envs = gymnasium.make_vec(env_id, 2, vectorization_mode="vector_entry_point", engine="python")
    assert envs.observation_space.contains(envs.reset(seed=0)[0])
    env.close()
    envs.close()


@pytest.mark.once
@each_id
def test_compiled_rules_play_the_same(env_id: str) -> None:
    pytest.importorskip("numba")
    games = side_by_side(
        rules_of(env_id), ["compiled"], 2, AutoresetMode.NEXT_STEP, max_episode_steps=50,
        **PARAMETERS.get(env_id, {}),
    )  # fmt: skip
    play_same(games, 0, 300)
