"""Rule books through agym's functions: the program itself, where no option needs more."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import VectorEnv

import agym
from agym.rules.vector_env import RulesVectorEnv
from tests.support.equality import same

ID = "agym/CartPole-v1"


def play(envs: VectorEnv[Any, Any, Any], steps: int = 80) -> list[Any]:
    """Return all results of an episode or two; ends come within 80 steps."""
    results: list[Any] = [envs.reset(seed=5)]
    actions = np.random.default_rng(0).integers(2, size=(steps, envs.num_envs))
    results += [envs.step(each) for each in actions]
    envs.close()
    return results


@pytest.mark.once
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("env_id", [ID, "agym/FrozenLake-v1", "agym/Taxi-v4"])
def test_the_default_is_the_program_and_the_backend_gives_the_same(
    env_id: str, autoreset: str
) -> None:
    mode = {"next_step": "NextStep", "same_step": "SameStep"}[autoreset]
    plain = gymnasium.make_vec(env_id, 4, autoreset_mode=mode)
    envs = agym.make_vec(env_id, 4, autoreset=autoreset)
    assert type(envs) is type(plain)
    expected = play(plain)
    assert same(play(envs), expected)
    for workers in (1, 2):
        envs = agym.make_vec(env_id, 4, autoreset=autoreset, backend="vector", workers=workers)
        assert isinstance(envs, agym.AgymVectorEnv)
        assert same(play(envs), expected)


OPTIONS: list[dict[str, Any]] = [
    {"backend": "serial"}, {"backend": "vector"}, {"workers": 1}, {"timeout": 60.0},
    {"on_fault": "restart"}, {"infos": "none"}, {"episode_stats": True},
    {"autoreset": "disabled"}, {"copy": False},
]  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_option_that_needs_the_engine_gets_it(options: dict[str, Any]) -> None:
    envs = agym.make_vec(ID, 2, **options)
    assert isinstance(envs, agym.AgymVectorEnv)
    envs.reset(seed=0)
    envs.step([0, 1])
    envs.close()


def test_parameters_reach_the_program_and_wrappers_of_a_spec_stay() -> None:
    envs = agym.make_vec("agym/Pendulum-v1", 2, g=np.array([1.6, 9.8]))
    assert isinstance(envs, RulesVectorEnv)
    assert envs.states["g"].tolist() == [1.6, 9.8]
    envs.close()
    with closing(gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(ID))) as wrapped:
        envs = agym.make_vec(wrapped.spec, 2)
    assert isinstance(envs, agym.AgymVectorEnv)  # the program has no wrappers
    assert any("episode" in infos for *_, infos in play(envs)[1:])


@pytest.mark.parametrize("backend", ["auto", "vector", "serial"])
def test_a_finished_game_holds_still_with_its_random_numbers(backend: Any) -> None:
    """So the next episode is the one that a single game would play next."""
    with agym.make(ID, 3, backend=backend) as envs:
        envs.reset(seed=0)
        over = np.zeros(3, bool)
        while not over.all():
            _, _, terminated, truncated, _ = envs.step([0, 0, 1])
            over = np.logical_or(terminated, truncated)
        envs.step([0, 0, 0])
        again = envs.reset().observations
        more = envs.step([1, 1, 1]).observations
    for i, action in enumerate([0, 0, 1]):
        single = gymnasium.make(ID)
        single.reset(seed=i)
        while not any(single.step(action)[2:4]):
            pass
        assert same(again[i], single.reset()[0])
        assert same(more[i], single.step(1)[0])
        single.close()


@pytest.mark.full
def test_auto_takes_the_program_for_many_games() -> None:
    for num_envs, options, name in (
        (2, {}, "vector"),
        (1, {}, "serial"),
        (2, {"episode_stats": True}, "serial"),
        (2, {"on_fault": "restart"}, "process"),
        (2, {"timeout": 60.0}, "process"),
    ):
        with agym.make(ID, num_envs, **options) as envs:  # type: ignore[arg-type]
            assert envs.backend == name
    for env in (ID, gymnasium.spec(ID)):
        assert agym.plan(env, 2).backend == "vector"


def test_a_program_cannot_be_recorded_and_the_error_names_the_backend() -> None:
    envs = agym.make_vec(ID, 2)
    with pytest.raises(agym.UsageError, match="backend='vector'"):
        agym.record(envs, "episode.mp4")
    envs.close()
