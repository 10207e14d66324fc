"""What users reach for: handles as environments, and what a batch says of itself."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.utils.env_checker import check_env

import agym
from tests.support.backends import name_of
from tests.support.drivers import FORKED, Setup, each_api, each_setup, everywhere, played
from tests.support.envs.plain_envs import Nested, Tally
from tests.support.equality import same

# ---------------------------------------------------------------- handles


@each_setup
def test_a_handle_is_a_gymnasium_environment(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 3, render_mode="rgb_array", **setup) as envs:  # draws nothing
        env = envs[1]
        assert isinstance(env, gymnasium.Env)
        assert isinstance(env.unwrapped, gymnasium.Env)
        assert env.unwrapped is not env
        assert env.unwrapped.unwrapped.gravity == 9.8
        assert env.spec is not None
        assert env.spec.id == "CartPole-v1"
        assert env.metadata["render_fps"] == 50
        assert "autoreset_mode" not in env.metadata
        assert env.render_mode == "rgb_array"
        assert str(env) == "<EnvHandle<CartPole-v1>>"
        env.reset(seed=4)
        assert env.np_random_seed == 4
        assert isinstance(env.np_random, np.random.Generator)
        env.np_random = np.random.default_rng(7)
        assert env.np_random.random() == np.random.default_rng(7).random()
        assert env.get_wrapper_attr("_max_episode_steps") == 500
        assert env.has_wrapper_attr("gravity")
        assert not env.has_wrapper_attr("levity")
        assert env.set_wrapper_attr("gravity", 1.6, force=False)
        assert not env.set_wrapper_attr("levity", 1, force=False)
        assert env.set_wrapper_attr("levity", 1)
        assert (env.levity, env.gravity, envs[0].gravity) == (1, 1.6, 9.8)


@each_setup
def test_handles_of_environments_that_differ(setup: dict[str, Any]) -> None:
    """Each has the properties of its environment; handles of the same environment are equal."""
    made = [("CartPole-v1", None), ("CartPole-v1", "rgb_array"), ("CartPole-v0", "rgb_array")] * 2
    factories = [partial(gymnasium.make, env_id, render_mode=mode) for env_id, mode in made]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of CartPole-v0
        envs = agym.make(factories, **setup)
    with envs, agym.make(Tally, 6) as others:
        assert [(env.spec and env.spec.id, env.render_mode) for env in envs] == made
        of_groups = [env for group in envs.split(2) for env in group]
        assert {env: env.render_mode for env in of_groups} == {env: env.render_mode for env in envs}
        assert envs[2].unwrapped == envs[2].unwrapped != envs[2]
        assert len({*envs, *envs, *of_groups}) == 6
        assert envs[2] != others[2]


@each_setup
def test_a_block_closes_one_environment(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 3, **setup) as envs:
        envs.reset()
        with envs[1] as env:
            env.step(0)
            assert not env.closed
        assert envs[1].closed
        assert repr(env).endswith("[1] (closed)")
        envs.step([0, 0], env_ids=[0, 2])
        other = envs[0]
    other.close()
    assert other.closed
    assert repr(other).endswith("closed)[0]")


@everywhere
async def test_an_async_handle(setup: Setup) -> None:
    async with agym.make_async(setup.of(3, length=99), **setup.options) as envs:
        await envs.reset()
        async with envs[1] as env:
            assert (env.spec, env.render_mode) == (None, "ansi")
            assert env.metadata["render_fps"] == 7
            with pytest.raises(AttributeError, match="environment 1 has no attribute 'levity'"):
                await env.get_attr("levity")
            assert (await env.step(0))[0].tolist() == [1, 1, 0]
        assert envs[1].closed
        await env.close()
        assert not envs[0].closed
    assert envs[0].closed


# ---------------------------------------------------------------- Gymnasium's wrappers around one


def _play(env: gymnasium.Env[Any, Any], seed: int = 3, steps: int = 12) -> list[Any]:
    """Reset where an episode ends, and list what came."""
    env.action_space.seed(seed)
    seen: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        *result, info = env.step(env.action_space.sample())
        info.pop("episode", None)  # has a time in it
        seen.append([*result, info])
        if result[2] or result[3]:
            seen.append(env.reset())
    return seen


# Wrappers of Gymnasium's, innermost first, and their arguments.
WRAPPERS: dict[str, dict[str, dict[str, Any]]] = {
    "episodes": {
        "TimeLimit": {"max_episode_steps": 4},
        "FrameStackObservation": {"stack_size": 2},
        "RecordEpisodeStatistics": {},
    },
    "time": {"TimeLimit": {"max_episode_steps": 5}, "TimeAwareObservation": {}},
    "observation": {
        "TransformObservation": {"func": lambda values: values * 2, "observation_space": None},
        "DtypeObservation": {"dtype": np.float64},
        "FlattenObservation": {},
    },
    "reward": {
        "TransformReward": {"func": lambda reward: reward - 1},
        "ClipReward": {"min_reward": -1, "max_reward": 1},
    },
    "normalized": {"NormalizeObservation": {}},
    "checks": {"PassiveEnvChecker": {}, "OrderEnforcing": {}},
    "autoreset": {"Autoreset": {}},
}


def wrapped(env: Any, name: str) -> Any:
    for wrapper, arguments in WRAPPERS[name].items():
        env = getattr(wrappers, wrapper)(env, **arguments)
    return env


@each_setup
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_give_what_they_give_around_the_environment(
    name: str, setup: dict[str, Any]
) -> None:
    with agym.make("CartPole-v1", 3, **setup) as envs:
        ours, theirs = wrapped(envs[1], name), wrapped(gymnasium.make("CartPole-v1"), name)
        assert ours.observation_space == theirs.observation_space
        assert same(_play(ours), _play(theirs))
        assert ours.unwrapped.gravity == 9.8
        assert ours.get_wrapper_attr("gravity") == 9.8
        assert ours.spec.id == "CartPole-v1"
        ours.set_wrapper_attr("gravity", 1.6)
        assert envs.gravity == [9.8, 1.6, 9.8]
        ours.close()
        theirs.close()
        assert envs[1].closed
        envs.reset(env_ids=[0, 2])


@each_setup
def test_wrappers_around_nested_spaces(setup: dict[str, Any]) -> None:
    def keep_position(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        return wrappers.FilterObservation(env, ["position"])

    with agym.make(Nested, 2, **setup) as envs:
        for i, wrap in enumerate((wrappers.FlattenObservation, keep_position)):
            assert same(_play(wrap(envs[i])), _play(wrap(Nested())))


@each_setup
def test_wrappers_that_render(setup: dict[str, Any]) -> None:
    pytest.importorskip("pygame", reason="the extra `render`")
    with agym.make("CartPole-v1", 2, render_mode="rgb_array", **setup) as envs:
        env = wrappers.RenderCollection(envs[1])
        env.reset(seed=0)
        env.step(0)
        frames: Any = env.render()
        assert [frame.shape for frame in frames] == [(400, 600, 3)] * 2


@pytest.mark.full
def test_record_video(tmp_path: Path) -> None:
    pytest.importorskip("pygame", reason="the extra `render`")
    pytest.importorskip("moviepy", reason="RecordVideo needs moviepy")
    pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # no thread that watches progress bars
    with agym.make("CartPole-v1", 2, render_mode="rgb_array", **FORKED, workers=2) as envs:
        env = wrappers.RecordVideo(envs[1], str(tmp_path / "videos"), disable_logger=True)
        _play(env)
        env.close()
        assert [*(tmp_path / "videos").glob("*.mp4")]


@each_setup
def test_gymnasium_checks_one(setup: dict[str, Any]) -> None:
    """And finds no more than it finds in the environment itself."""
    with agym.make("CartPole-v1", 2, **setup) as envs:
        bare = gymnasium.make("CartPole-v1").unwrapped
        found = []
        for env in (envs[1].unwrapped, bare):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                check_env(env, skip_render_check=True)
            found.append([str(warning.message) for warning in caught])
        assert found[0] == found[1]


# ---------------------------------------------------------------- what a batch says of itself


@everywhere
@each_api
def test_batches_tell_backend_workers_and_figures(api: str, setup: Setup) -> None:
    """The figures after closing are the last ones."""
    with played(api, setup.of(4, length=99), **setup.options) as envs:
        envs.reset()
        for _ in range(5):
            envs.step([0] * 4)
        workers = {"serial": 1, "asyncio": 1, "thread": 4}
        count = workers.get(setup.name, setup.options.get("workers"))
        api_itself = envs.envs
        assert (api_itself.closed, api_itself.workers) == (False, count)
        assert api_itself.backend == setup.backend
        assert "closed" not in repr(api_itself)
        before = envs.stats()
        assert len(before.workers) == count
        (group, _) = api_itself.split(2)
        envs.close()
        for one in (api_itself, group):
            assert (one.closed, one.workers) == (True, count)
            assert one.backend == setup.backend
            assert repr(one).endswith(f"backend={one.backend!r}, closed)")
        after = envs.stats()
        assert [env.steps for env in after.envs] == [env.steps for env in before.envs] == [5] * 4
        assert after.seconds >= before.seconds
        assert [worker.pid for worker in after.workers] == [w.pid for w in before.workers]
        assert "20 steps" in str(after)
        assert group.stats() is after


@each_setup
@pytest.mark.parametrize("name", ["AgymVectorEnv", "AgymVecEnv"])
def test_batches_of_other_libraries_tell_it_too(name: str, setup: dict[str, Any]) -> None:
    if name == "AgymVecEnv":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
        envs: Any = agym.sb3.make_vec_env("CartPole-v1", 4, **setup)
        shown = f"AgymVecEnv(CartPole-v1, num_envs=4, backend={name_of(setup)!r}"
    else:
        envs = agym.make_vec("CartPole-v1", 4, **setup)
        shown = "AgymVectorEnv(CartPole-v1, num_envs=4"
    assert (envs.closed, envs.backend) == (False, name_of(setup))
    assert envs.workers == setup.get("workers", 1)
    assert repr(envs) == f"{shown})"
    envs.close()
    assert (envs.closed, envs.backend) == (True, name_of(setup))
    assert repr(envs) == f"{shown}, closed)"
