"""One default for all APIs, `auto`, by one rule."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
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
from tests.support.envs.costly_envs import needs_cores
from tests.support.envs.plain_envs import Tally
from tests.support.equality import same
from tests.support.insides import backend_of

# Twice as many of these take a millisecond, which processes halve.
COMPUTES = Profile("Computes", 1e-3, 1e-5, 2e-3)


class Computes(Tally):
    """Known to compute for long, by a profile that is remembered."""


@pytest.fixture(autouse=True)
def profile(full_cores: None) -> None:
    remember_profile(Computes, COMPUTES, None)


async def _opened(envs: Any) -> str:
    async with envs:
        return name_of(envs)


def name_of(envs: Any) -> str:
    runner = getattr(envs, "runner", envs)
    return str(backend_of(runner).options.spec.name)


def by_make_async(env: Any) -> str:
    async def main() -> str:
        return await _opened(agym.make_async(env, 8))

    return asyncio.run(main())


def closing(make: Callable[[Any], Any]) -> Callable[[Any], str]:
    def named(env: Any) -> str:
        envs = make(env)
        try:
            return name_of(envs)
        finally:
            envs.close()

    return named


APIS = {
    "make": closing(lambda env: agym.make(env, 8)),
    "make_async": by_make_async,
    "make_vec": closing(lambda env: agym.make_vec(env, 8)),
    "AgymVectorEnv": closing(lambda env: agym.AgymVectorEnv([env] * 8)),
}


@pytest.mark.full
@needs_cores
@pytest.mark.parametrize("api", APIS)
def test_what_computes_for_long_goes_to_processes(api: str) -> None:
    assert APIS[api](Computes) == "process"


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
    assert engine.calls.traffic.learn is not None


@needs_cores
def test_then_batches_are_those_of_serial() -> None:
    def play(**options: Any) -> list[Any]:
        with agym.make(Computes, 8, autoreset="next_step", **options) as envs:
            assert len({worker.pid for worker in envs.stats().workers}) == envs.workers
            assert envs.stats().workers[-1].pid == os.getpid()
            return [envs.reset(seed=3), *(envs.step([k] * 8) for k in range(9))]

    assert same(play(), play(backend="serial"))


@pytest.mark.parametrize("api", APIS)
def test_of_what_nothing_is_known_no_process_is_started(api: str) -> None:
    assert APIS[api](Tally) == ("thread" if api == "make_async" else "serial")


@pytest.fixture
def registered() -> Iterator[str]:
    gymnasium.register("Computes-v0", entry_point=Computes, disable_env_checker=True)
    yield "Computes-v0"
    gymnasium.registry.pop("Computes-v0", None)


@pytest.mark.full
@needs_cores
def test_registered_environments_too(registered: str) -> None:
    agym.plan(registered, 8)  # of one's own, so it is measured when asked
    envs = agym.make_vec(registered, 8)
    try:
        assert name_of(envs) == agym.plan(registered, 8).backend
    finally:
        envs.close()


@pytest.mark.parametrize("options", [{"context": "fork"}, {"max_concurrency": 2}])
def test_what_only_processes_have_takes_processes(options: dict[str, Any]) -> None:
    envs = agym.AgymVectorEnv([Tally] * 2, **options)
    try:
        assert name_of(envs) == "process"
    finally:
        envs.close()


class TestSB3:
    @pytest.fixture(autouse=True)
    def sb3(self) -> None:
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")

    def test_unknown_environments_stay(self) -> None:
        envs = agym.sb3.AgymVecEnv([Tally] * 2)
        assert name_of(envs) == "serial"
        envs.close()

    def test_a_start_method_takes_processes(self) -> None:
        envs = agym.sb3.AgymVecEnv([Tally] * 2, start_method="fork")
        assert name_of(envs) == "process"
        envs.close()

    @pytest.mark.full
    @needs_cores
    def test_a_sample_is_measured_instead(self) -> None:
        sample = TrustedFactory(Computes, "Computes")
        remember_profile(sample, COMPUTES, None)
        envs = agym.sb3.AgymVecEnv([Tally] * 8, sample=sample)
        assert name_of(envs) == "process"
        envs.close()

    @pytest.mark.full
    @needs_cores
    def test_ids_are_measured_and_wrappers_of_ones_own_are_not(self) -> None:
        for wrapper, name in ((None, "process"), (gymnasium.Wrapper, "serial")):
            envs = agym.sb3.make_vec_env("Acrobot-v1", 512, wrapper_class=wrapper)
            assert name_of(envs) == name
            envs.close()
