"""One default for all APIs, `auto`, by one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import pytest

import agym
from agym.api.options.build import build
from agym.api.options.environments import make_factories
from agym.api.options.options import Options
from agym.core.backends.options import Process, ProcessWithCaller
from agym.core.planning.caching import remember_profile
from agym.core.planning.model import Profile
from agym.core.planning.sampling import TrustedFactory
from tests.support.drivers import opened
from tests.support.envs.costly_envs import needs_cores
from tests.support.envs.plain_envs import Tally

# Twice as many of these take a millisecond, which processes halve.
COMPUTES = Profile("Computes", 1e-3, 1e-5, 2e-3)


class Computes(Tally):
    """Known to compute for long, by a profile that is remembered."""


@pytest.fixture(autouse=True)
def profile(full_cores: None) -> None:
    remember_profile(Computes, COMPUTES, None)


APIS: dict[str, Callable[..., Any]] = {
    "make": agym.make,
    "make_async": partial(opened, "async"),
    "make_vec": agym.make_vec,
    "AgymVectorEnv": lambda env, count, **options: agym.AgymVectorEnv([env] * count, **options),
    "AgymVecEnv": lambda env, count, **options: agym.sb3.AgymVecEnv([env] * count, **options),
    "sb3.make_vec_env": lambda env, count, **options: agym.sb3.make_vec_env(env, count, **options),
}


def backend_of(api: str, env: Any, count: int = 8, **options: Any) -> str:
    """Open environments with an API, and return the name of their backend."""
    if api in ("AgymVecEnv", "sb3.make_vec_env"):
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    envs = APIS[api](env, count, **options)
    with envs if api == "make_async" else closing(envs) as envs:
        return str(envs.backend)


@pytest.mark.full
@needs_cores
@pytest.mark.parametrize("api", ["make", "make_async", "make_vec", "AgymVectorEnv"])
def test_what_computes_for_long_goes_to_processes(api: str) -> None:
    assert backend_of(api, Computes) == "process"


@pytest.mark.parametrize("api", ["make", "make_async", "make_vec", "AgymVectorEnv", "AgymVecEnv"])
def test_of_what_nothing_is_known_no_process_is_started(api: str) -> None:
    assert backend_of(api, Tally) == ("thread" if api == "make_async" else "serial")


class AlsoComputes(Computes):
    """Another class, of which nothing is known."""


def chosen(factories: Any = (Computes,) * 8, blocking: bool = True, **options: Any) -> type:
    engine = build([*factories], None, {}, Options(**options), blocking=blocking)
    return type(engine.backend.options.spec)


@needs_cores
def test_the_callers_thread_is_one_of_the_workers_where_it_only_waits() -> None:
    assert chosen() is chosen(workers=2) is chosen(episode_stats=True) is ProcessWithCaller
    assert chosen(timeout=9.0) is chosen(on_fault="restart") is chosen(rate_limit=1e6) is Process
    assert chosen(blocking=False) is Process
    assert (
        chosen([*[Computes] * 7, AlsoComputes]) is chosen([AlsoComputes] * 8, workers=2) is Process
    )


@needs_cores
def test_all_environments_of_an_id_are_of_one_kind() -> None:
    """Although only the first one is checked as it steps, by Gymnasium."""
    rendered = {"render_mode": "rgb_array"}  # so that it is not a twin
    first, *_ = make_factories("CartPole-v1", 8, rendered)
    remember_profile(first, Profile("CartPole-v1", 0.0, 1e-3, 1e-3), None)
    engine = build("CartPole-v1", 8, rendered, Options())
    assert type(engine.backend.options.spec) is ProcessWithCaller
    assert engine.traffic.learn is not None


@pytest.fixture
def registered() -> Iterator[str]:
    gymnasium.register("Computes-v0", entry_point=Computes, disable_env_checker=True)
    yield "Computes-v0"
    gymnasium.registry.pop("Computes-v0", None)


@pytest.mark.full
@needs_cores
def test_registered_environments_too(registered: str) -> None:
    plan = agym.plan(registered, 8)  # of one's own, so it is measured when asked
    assert backend_of("make_vec", registered) == plan.backend


@pytest.mark.parametrize(
    ("api", "options"),
    [
        ("AgymVectorEnv", {"context": "fork"}),
        ("AgymVectorEnv", {"max_concurrency": 2}),
        ("AgymVecEnv", {"start_method": "fork"}),
    ],
)
def test_an_option_of_processes_takes_processes(api: str, options: dict[str, Any]) -> None:
    assert backend_of(api, Tally, 2, **options) == "process"


@pytest.mark.full
@needs_cores
def test_stable_baselines3_measures_a_sample_or_an_id_without_wrappers() -> None:
    sample = TrustedFactory(Computes, "Computes")
    remember_profile(sample, COMPUTES, None)
    assert backend_of("AgymVecEnv", Tally, sample=sample) == "process"
    assert backend_of("AgymVecEnv", Computes) == "serial"  # functions are never measured
    early = {"allow_early_resets": False}  # which no twin has
    for options, name in (
        ({}, "twin"),
        ({"monitor_kwargs": early}, "process"),
        ({"wrapper_class": gymnasium.Wrapper}, "serial"),
    ):
        assert backend_of("sb3.make_vec_env", "Acrobot-v1", 512, **options) == name
