"""``envs[i]`` is PettingZoo's own API: its tests pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agym
from tests.multi_agent.games import KNIGHTS, Colony
from tests.support.backends import SERIAL_OR_FORK

with warnings.catch_warnings():  # PettingZoo's tests import its old modules
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import (
        api_test,
        max_cycles_test,
        parallel_api_test,
        parallel_seed_test,
        seed_test,
    )
    from pettingzoo.test.example_envs import generated_agents_env_v0, generated_agents_parallel_v0
    from pettingzoo.test.state_test import test_parallel_env as parallel_state_test
    from pettingzoo.test.state_test import test_state as state_test
    from pettingzoo.test.state_test import test_state_space as state_space_test

PARALLEL = [
    "mpe2/simple_spread_v3", "mpe2/simple_world_comm_v3", KNIGHTS,
    generated_agents_parallel_v0.parallel_env,
]  # fmt: skip
AEC = [
    "mpe2/simple_spread_v3", "classic/connect_four-v3", "classic/texas_holdem-v4", "classic/rps-v2",
    KNIGHTS, generated_agents_env_v0.env,
]  # fmt: skip

Make = Callable[..., Any]


def name_of(env: Any) -> str:
    return env if isinstance(env, str) else "generated agents"


@pytest.fixture(params=SERIAL_OR_FORK)
def make(request: Any) -> Iterator[Callable[[Any, Any], Make]]:
    """Makes a function that makes a handle, as PettingZoo's tests want it."""
    opened = []

    def of(function: Any, env: Any) -> Make:
        def make_handle(**keywords: Any) -> Any:
            envs = function(env, 2, backend=request.param, autoreset="disabled", **keywords)
            opened.append(envs)
            return envs[1]

        return make_handle

    with warnings.catch_warnings():  # the tests' own remarks about the environments
        warnings.simplefilter("ignore")
        yield of
    for envs in opened:
        envs.close()


@pytest.mark.parametrize("env", PARALLEL, ids=name_of)
def test_parallel_handles_pass_pettingzoos_tests(env: Any, make: Any) -> None:
    make_handle = make(agym.make_parallel, env)
    parallel_api_test(make_handle(), num_cycles=60)
    parallel_seed_test(make_handle, num_cycles=20)
    if isinstance(env, str):
        parallel_state_test(make_handle())


@pytest.mark.parametrize("env", AEC, ids=name_of)
def test_aec_handles_pass_pettingzoos_tests(env: Any, make: Any) -> None:
    make_handle = make(agym.make_aec, env)
    api_test(make_handle(), num_cycles=20)
    seed_test(make_handle, num_cycles=20)
    if isinstance(env, str) and "classic" not in env:
        state_test(make_handle(), num_cycles=10)
        state_space_test(make_handle())


def test_handles_pass_the_test_of_max_cycles(make: Any) -> None:
    env = "mpe2/simple_spread_v3"
    max_cycles_test(
        SimpleNamespace(parallel_env=make(agym.make_parallel, env), env=make(agym.make_aec, env))
    )


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_a_handle_is_the_same_object_and_forwards_attributes(backend: Any) -> None:
    with agym.make_parallel(Colony, 2, backend=backend) as envs:
        env = envs[1]
        assert env is envs[1] is envs[-1] is [*envs][1]
        assert env.max_cycles == 30
        env.max_cycles = 3
        assert envs.runner.get_attr("max_cycles") == [30, 3]
        assert env.possible_agents == envs.possible_agents
        assert str(env) == "colony_v0"
        with pytest.raises(AttributeError):
            env.no_such_thing  # noqa: B018 # the error is the test


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_a_handle_and_the_batch_can_take_turns(backend: Any) -> None:
    with agym.make_parallel(Colony, 2, backend=backend, deaths=False) as envs:
        envs.reset(seed=0)
        env = envs[0]
        actions = dict.fromkeys(envs.action_spaces, 1)
        observations, rewards, *_ = env.step(actions)
        assert rewards.keys() == observations.keys() == actions.keys()
        result = envs.step(envs.sample_actions())
        assert result.valid["kind0_0"].all()
        assert env.state().shape == (2,)


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_a_handle_sees_what_the_batch_did(backend: Any) -> None:
    with agym.make_parallel(
        Colony, 1, backend=backend, autoreset="disabled", deaths=False, max_cycles=2
    ) as envs:
        env = envs[0]
        envs.reset(seed=0)
        with pytest.raises(agym.UsageError, match="is live, but has no action"):
            env.step({"kind0_0": 1})
        for _ in range(2):
            env.step(dict.fromkeys(env.agents, 0))
        assert env.agents == []
        envs.reset(seed=0)
        assert len(env.step(dict.fromkeys(envs.action_spaces, 0))[0]) == 6
        envs.step(envs.sample_actions())
        assert env.step({}) == ({}, {}, {}, {}, {})
    with agym.make_aec("classic/tictactoe-v3", 1, backend=backend) as turns:
        turns.reset(seed=0)
        turns[0].step(4)
        assert turns[0].agent_selection == "player_2"
        turns.step([0])
        turns[0].step(8)
        assert turns[0].agent_selection == "player_2"


@pytest.mark.parametrize("env", ["mpe2/simple_spread_v3", KNIGHTS])
def test_attributes_are_those_of_the_innermost_environment(env: str) -> None:
    with agym.make_parallel(env, 1, backend="serial") as envs:
        env_handle = envs[0]
        env_handle.max_cycles = 3
        assert envs.runner.get_attr("unwrapped.max_cycles") == [3]
        env_handle.reset(seed=0)
        steps = 0
        while env_handle.agents:
            actions = {a: env_handle.action_space(a).sample() for a in env_handle.agents}
            *_, truncations, _ = env_handle.step(actions)
            steps += 1
        assert steps == 3
        assert any(truncations.values())


def test_a_live_agent_needs_an_action() -> None:
    with agym.make_parallel(Colony, 1, backend="serial", deaths=False) as envs:
        env = envs[0]
        env.reset(seed=0)
        with pytest.raises(agym.UsageError, match="'kind0_0' is live, but has no action"):
            env.step({"kind0_1": 0})
        assert len(env.step(dict.fromkeys(env.agents, 0))) == 5
    with agym.make_aec("classic/tictactoe-v3", 1, backend="serial") as turns:
        turn = turns[0]
        turn.reset(seed=0)
        with pytest.raises(agym.UsageError, match="'player_1' is alive: pass an action"):
            turn.step(None)
        turn.step(0)
        assert np.array_equal(turn.observe("player_1")["observation"].sum((0, 1)), [1, 0])


def test_after_the_end_a_handle_returns_nothing() -> None:
    with agym.make_parallel(Colony, 1, backend="serial", deaths=False, max_cycles=2) as envs:
        env = envs[0]
        env.reset(seed=0)
        for _ in range(2):
            *_, truncations, _ = env.step(dict.fromkeys(env.agents, 0))
        assert all(truncations.values())
        assert env.agents == []
        assert env.step({}) == ({}, {}, {}, {}, {})
