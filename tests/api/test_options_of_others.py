"""Options of other libraries: refused with agym's name for them, never swallowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from gymnasium.envs.registration import EnvSpec

import agym
from tests.support.envs.plain_envs import Tally
from tests.support.envs.vector_envs import Tally as VectorTally

# What each is called by agym; ``None`` where it is no single name.
OTHERS: dict[str, str | None] = {
    "n_envs": "num_envs",
    "num_workers": "workers",
    "num_processes": "workers",
    "vec_env_cls": "backend",
    "vectorization_mode": "backend",
    "autoreset_mode": "autoreset",
    "batch_size": "min_envs",
    "wrapper_class": "gymnasium.make",
    "env_kwargs": "one by one",
    "shared_memory": None,
    "spares": "docs/howto/rate_limits.md",
    "fleet": "rate_limit",
    "hedge": "recv(min_envs",
}


class Swallows(Tally):
    """Takes whatever it is given, as many environments do."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__()
        self.keywords = keywords


class Names(Tally):
    """Really has parameters of such names."""

    def __init__(self, n_envs: int = 0, context: str = "", num_env: int = 0) -> None:
        super().__init__()
        self.given = n_envs, context, num_env


class PassesOn(Names):
    """Passes on to one which has them."""

    def __init__(self, *, colour: str = "", **keywords: Any) -> None:
        super().__init__(**keywords)


SPEC = EnvSpec("Swallows-v0", entry_point=Swallows)
ENVS: dict[str, Any] = {
    "class": Swallows,
    "partial": partial(Swallows, colour="red"),
    "function": lambda **keywords: Swallows(**keywords),
    "list": [Swallows, partial(Swallows)],
    "spec": SPEC,
    "id": "CartPole-v1",
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "make": agym.make,
    "make_async": agym.make_async,
    "make_vec": agym.make_vec,
    "plan": agym.plan,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_refused_where_the_environment_would_swallow_them(function: str, name: str) -> None:
    with pytest.raises(agym.UsageTypeError, match=f"^`{name}` isn't an agym") as caught:
        FUNCTIONS[function](Swallows, **{name: 3})
    assert (OTHERS[name] or "leave it out") in str(caught.value)
    assert f"pass a factory: lambda: Swallows({name}=...)" in str(caught.value)


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_refused_whatever_makes_the_environment(function: str, env: str) -> None:
    with pytest.raises(
        agym.UsageTypeError, match=r"`n_envs` isn't an agym.* option; use `num_envs`"
    ):
        FUNCTIONS[function](ENVS[env], n_envs=8)


# What AsyncVectorEnv has, AgymVectorEnv has too.
GYMNASIUMS = {"shared_memory", "context", "daemon", "worker", "observation_mode", "autoreset_mode"}
# The number of functions is the number of environments.
NUMBERS = {name for name, ours in OTHERS.items() if ours == "num_envs"}


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - GYMNASIUMS))
def test_refused_by_the_vector_environment(name: str) -> None:
    ours = "env_fns" if name in NUMBERS else OTHERS[name]
    words = f"`{name}` isn't an AgymVectorEnv option; .*{re.escape(ours or 'leave it out')}"
    with pytest.raises(agym.UsageTypeError, match=words):
        agym.AgymVectorEnv([Tally], **{name: 3})


# What SB3's function has, agym's has too.
SB3S = {
    "n_envs", "start_index", "monitor_dir", "wrapper_class", "env_kwargs", "vec_env_kwargs",
    "monitor_kwargs", "wrapper_kwargs",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - SB3S))
def test_refused_by_those_of_stable_baselines3(name: str) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    for make in (
        partial(agym.sb3.make_vec_env, Swallows, 2, **{name: 3}),
        partial(agym.sb3.make_vec_env, Swallows, 2, vec_env_kwargs={name: 3}),
        partial(agym.sb3.make_vec_env, VectorTally, 2, backend="vector", **{name: 3}),
        partial(agym.sb3.make_atari_env, Swallows, 2, **{name: 3}),
        partial(agym.sb3.AgymVecEnv, [Tally], **{name: 3}),
    ):
        with pytest.raises(agym.UsageTypeError, match=f"`{name}` isn't an AgymVecEnv option; "):
            make()


def test_stable_baselines3_keeps_its_own() -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    made = agym.sb3.make_vec_env(
        Names, n_envs=2, start_index=1, env_kwargs={"n_envs": 5}, backend="serial"
    )
    try:
        assert made.get_attr("given") == [(5, "", 0)] * 2
    finally:
        made.close()


@pytest.mark.parametrize("env", [Names, PassesOn, partial(PassesOn, colour="red"), [Names]])
def test_what_a_constructor_names_it_gets(env: Any) -> None:
    given = {"n_envs": 8, "context": "snow", "num_env": 3}
    with agym.make(env, backend="serial", **given) as envs:
        assert envs.given == [(8, "snow", 3)]
    vector = agym.make_vec(env, backend="serial", **given)
    try:
        assert vector.get_attr("given") == ((8, "snow", 3),)
    finally:
        vector.close()
    with pytest.raises(agym.UsageTypeError, match=r"`num_workers` isn't .*; use `workers`"):
        agym.make(env, num_workers=8)


def test_what_a_registered_constructor_names_it_gets() -> None:
    spec = EnvSpec("Names-v0", entry_point="tests.api.test_options_of_others:Names")
    with agym.make(spec, backend="serial", context="snow") as envs:
        assert envs.unwrapped.given == [(0, "snow", 0)]
    spec = EnvSpec("Registered-v0", entry_point=Swallows, kwargs={"start_index": 1})
    with agym.make(spec, backend="serial", start_index=2) as envs:
        assert envs.unwrapped.keywords == [{"start_index": 2}]


# Options of make in former versions: where each has gone.
MOVED = {
    "start_method": "backend=agym.backends.Process(start_method=...)",
    "pin": "backend=agym.backends.Process(pin=...)",
    "recycle": "backend=agym.backends.Process(recycle=...)",
    "recycle_episodes": "backend=agym.backends.Process(recycle=agym.Recycle(episodes=...))",
    "recycle_rss_mb": "backend=agym.backends.Process(recycle=agym.Recycle(rss_mb=...))",
    "max_concurrency": "backend=agym.backends.Asyncio(max_concurrency=...)",
    "resources": "backend=agym.backends.Ray(resources=...)",
    "placement": "backend=agym.backends.Ray(placement=...)",
    "runtime_env": "backend=agym.backends.Ray(runtime_env=...)",
    "address": "backend=agym.backends.Ray(address=...)",
    "workers_per_node": "backend=agym.backends.Ray(workers_per_node=...)",
    "max_restarts": "on_fault=agym.FaultPolicy('restart', max_restarts=...)",
    "restart_window": "on_fault=agym.FaultPolicy('restart', restart_window=...)",
    "replay_limit": "on_fault=agym.FaultPolicy('replay', replay_limit=...)",
    "capsule_dir": "on_fault=agym.FaultPolicy(capsule_dir=...)",
}


@pytest.mark.parametrize("name", MOVED)
def test_options_that_moved_to_an_object_are_refused_with_their_new_place(name: str) -> None:
    refusing: list[tuple[str, Callable[..., Any]]] = [
        *(("agym", partial(make, Swallows, 2)) for make in (agym.make, agym.make_async)),
        ("agym", partial(agym.make_vec, Swallows, 2)),
        ("AgymVectorEnv", partial(agym.AgymVectorEnv, [Tally])),
    ]
    for where, make in refusing:
        if (where, name) == ("AgymVectorEnv", "max_concurrency"):
            continue  # AsyncVectorEnv has it
        words = re.escape(f"`{name}` isn't an {where} option; use {MOVED[name]}")
        for options in ({}, {"backend": "process", "on_fault": "restart"}):
            with pytest.raises(agym.UsageTypeError, match=words):
                make(**options, **{name: 3})
    if name != "max_concurrency":
        with pytest.raises(agym.UsageTypeError, match=f"`{name}` isn't an agym.plan option"):
            agym.plan(Swallows, **{name: 3})


@pytest.mark.parametrize("name", sorted(MOVED.keys() - {"start_method"}))  # SubprocVecEnv has it
def test_options_that_moved_are_refused_by_those_of_stable_baselines3(name: str) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    words = re.escape(f"`{name}` isn't an AgymVecEnv option; use {MOVED[name]}")
    for make in (
        partial(agym.sb3.make_vec_env, Swallows, 2, **{name: 3}),
        partial(agym.sb3.AgymVecEnv, [Tally], **{name: 3}),
    ):
        with pytest.raises(agym.UsageTypeError, match=words):
            make()


def test_misspelt_options_of_objects_are_refused_with_the_object() -> None:
    words = re.escape("did you mean `max_restarts`? If so, use on_fault=agym.FaultPolicy(")
    with pytest.raises(agym.UsageTypeError, match=words):
        agym.make(Swallows, 2, max_restart=3)


def test_a_vector_environment_that_cannot_be_imported_is_not_needed() -> None:
    spec = EnvSpec("Half-v0", entry_point=Swallows, vector_entry_point="no_such_module:Vector")
    with agym.make(spec, 2, backend="serial", colour="red") as envs:
        envs.reset()
    with pytest.raises(agym.UsageTypeError, match=r"`num_workers` isn't .*; use `workers`"):
        agym.make(spec, 2, backend="serial", num_workers=2)


class Pins(Tally):
    """Really has a parameter that is called like an option of an object."""

    def __init__(self, pin: int = 0) -> None:
        super().__init__()
        self.given = pin


def test_what_moved_is_for_an_environment_that_names_it() -> None:
    with agym.make(Pins, 1, backend="serial", pin=3) as envs:
        assert envs.given == [3]


MISSPELT = {
    "backends": "backend",
    "auto_reset": "autoreset",
    "episode_stat": "episode_stats",
    "num_env_s": "num_envs",
    "numenvs": "num_envs",
    "time_out": "timeout",
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", MISSPELT)
def test_misspelt_options_are_not_swallowed(name: str, function: str) -> None:
    with pytest.raises(agym.UsageTypeError, match=f"{name}.*did you mean `{MISSPELT[name]}`"):
        FUNCTIONS[function](Swallows, **{name: 3})


def test_what_is_like_no_option_is_for_the_environment() -> None:
    with agym.make(Swallows, backend="serial", gravity=3, env_type="moon", seed=1) as envs:
        assert envs.keywords == [{"gravity": 3, "env_type": "moon", "seed": 1}]


class Takes(VectorTally):
    """A program whose keywords are not in its signature, as those of ``envpool.make``."""

    def __init__(self, num_envs: int, **keywords: Any) -> None:
        super().__init__(num_envs)
        self.batch_size = keywords["batch_size"]
        self.num_threads = keywords["num_threads"]


def test_programs_have_threads_and_batches_of_their_own() -> None:
    with agym.make(
        Takes, 4, backend="vector", autoreset="next_step", batch_size=4, num_threads=3
    ) as envs:
        assert envs.num_threads == [3] * 4
    with pytest.raises(
        agym.UsageTypeError, match=r"`n_envs` isn't an agym.* option; use `num_envs`"
    ):
        agym.make(Takes, backend="vector", n_envs=4)
