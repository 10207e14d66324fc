"""One default for all APIs, `auto`, by one rule."""

from __future__ import annotations

import os
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
from tests.support.equality import same

# Twice as many of these take a millisecond, which processes halve.
COMPUTES = Profile("Computes", 1e-3, 1e-5, 2e-3)


class Computes(Tally):
    """Known to compute for long, by a profile that is remembered."""


@pytest.fixture(autouse=True)
def profile(full_cores: None) -> None:
    remember_profile(Computes, COMPUTES, None)


def backend_of_async(env: Any) -> str:
    with opened("async", env, 8) as envs:
        return str(envs.backend)


def backend_of(make: Callable[..., Any], env: Any) -> str:
    with closing(make(env)) as envs:
        return str(envs.backend)


APIS: dict[str, Callable[[Any], str]] = {
    "make": partial(backend_of, lambda env: agym.make(env, 8)),
    "make_async": backend_of_async,
    "make_vec": partial(backend_of, lambda env: agym.make_vec(env, 8)),
    "AgymVectorEnv": partial(backend_of, lambda env: agym.AgymVectorEnv([env] * 8)),
    "AgymVecEnv": partial(backend_of, lambda env: agym.sb3.AgymVecEnv([env] * 8)),
}


@pytest.fixture(params=APIS)
def backend_by_api(request: pytest.FixtureRequest) -> tuple[str, Callable[[Any], str]]:
    """An API, and a function that opens environments with it and returns the backend."""
    if request.param == "AgymVecEnv":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    return request.param, APIS[request.param]


@pytest.mark.full
@needs_cores
def test_what_computes_for_long_goes_to_processes(backend_by_api: Any) -> None:
    api, backend = backend_by_api
    # Functions that Stable-Baselines3 calls are never measured.
    assert backend(Computes) == ("serial" if api == "AgymVecEnv" else "process")


def test_of_what_nothing_is_known_no_process_is_started(backend_by_api: Any) -> None:
    api, backend = backend_by_api
    assert backend(Tally) == ("thread" if api == "make_async" else "serial")


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
    first, *_ = make_factories("CartPole-v1", 8, {})
    remember_profile(first, Profile("CartPole-v1", 0.0, 1e-3, 1e-3), None)
    engine = build("CartPole-v1", 8, {}, Options())
    assert type(engine.backend.options.spec) is ProcessWithCaller
    assert engine.traffic.learn is not None


@needs_cores
def test_then_batches_are_those_of_serial() -> None:
    def play(**options: Any) -> list[Any]:
        with agym.make(Computes, 8, autoreset="next_step", **options) as envs:
            assert len({worker.pid for worker in envs.stats().workers}) == envs.workers
            assert envs.stats().workers[-1].pid == os.getpid()
            return [envs.reset(seed=3), *(envs.step([k] * 8) for k in range(9))]

    assert same(play(), play(backend="serial"))


@pytest.fixture
def registered() -> Iterator[str]:
    gymnasium.register("Computes-v0", entry_point=Computes, disable_env_checker=True)
    yield "Computes-v0"
    gymnasium.registry.pop("Computes-v0", None)


@pytest.mark.full
@needs_cores
def test_registered_environments_too(registered: str) -> None:
    plan = agym.plan(registered, 8)  # of one's own, so it is measured when asked
    assert APIS["make_vec"](registered) == plan.backend


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AgymVectorEnv", {"context": "fork"}),
        ("AgymVectorEnv", {"max_concurrency": 2}),
        ("AgymVecEnv", {"start_method": "fork"}),
    ],
)
def test_an_option_of_processes_takes_processes(name: str, options: dict[str, Any]) -> None:
    if name == "AgymVecEnv":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    kind: Any = agym.AgymVectorEnv if name == "AgymVectorEnv" else agym.sb3.AgymVecEnv
    assert backend_of(lambda env: kind([env] * 2, **options), Tally) == "process"


@pytest.mark.full
@needs_cores
def test_stable_baselines3_measures_a_sample_or_an_id_without_wrappers() -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    sample = TrustedFactory(Computes, "Computes")
    remember_profile(sample, COMPUTES, None)
    of_sample = partial(agym.sb3.AgymVecEnv, [Tally] * 8)
    assert backend_of(lambda sample: of_sample(sample=sample), sample) == "process"
    for wrapper, name in ((None, "process"), (gymnasium.Wrapper, "serial")):
        make = partial(agym.sb3.make_vec_env, n_envs=512, wrapper_class=wrapper)
        assert backend_of(make, "Acrobot-v1") == name
