"""Options of other libraries, of former versions, and misspelt: refused, and never swallowed."""

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

PROCESS, RAY = "use backend=agym.backends.Process({})", "use backend=agym.backends.Ray({})"
FAULTS = "use on_fault=agym.FaultPolicy({})"
REMEDIES = {
    # Other libraries.
    "n_envs": "use `num_envs`",
    "num_workers": "use `workers`",
    "num_processes": "use `workers`",
    "vec_env_cls": "use `backend`",
    "vectorization_mode": "use `backend`",
    "autoreset_mode": "use `autoreset`",
    "batch_size": "use recv(min_envs=...)",
    "wrapper_class": "pass a factory that wraps: lambda: Wrapper(gymnasium.make(...))",
    "env_kwargs": "one by one as keywords",
    "shared_memory": "leave it out",
    "spares": "docs/howto/rate_limits.md",
    "fleet": "use rate_limit=",
    "hedge": "send and recv(min_envs=...)",
    # Former versions: the option belongs to an object now.
    "start_method": PROCESS.format("start_method=..."),
    "pin": PROCESS.format("pin=..."),
    "recycle": PROCESS.format("recycle=..."),
    "recycle_episodes": PROCESS.format("recycle=agym.Recycle(episodes=...)"),
    "recycle_rss_mb": PROCESS.format("recycle=agym.Recycle(rss_mb=...)"),
    "max_concurrency": "use backend=agym.backends.Asyncio(max_concurrency=...)",
    "resources": RAY.format("resources=..."),
    "placement": RAY.format("placement=..."),
    "runtime_env": RAY.format("runtime_env=..."),
    "address": RAY.format("address=..."),
    "workers_per_node": RAY.format("workers_per_node=..."),
    "max_restarts": FAULTS.format("'restart', max_restarts=..."),
    "restart_window": FAULTS.format("'restart', restart_window=..."),
    "replay_limit": FAULTS.format("'replay', replay_limit=..."),
    "capsule_dir": FAULTS.format("capsule_dir=..."),
    # Misspelt.
    "backends": "did you mean `backend`?",
    "auto_reset": "did you mean `autoreset`?",
    "episode_stat": "did you mean `episode_stats`?",
    "num_env_s": "did you mean `num_envs`?",
    "numenvs": "did you mean `num_envs`?",
    "time_out": "did you mean `timeout`?",
    "max_restart": "did you mean `max_restarts`? If so, use on_fault=agym.FaultPolicy('restart',",
}


class Swallows(Tally):
    """Takes whatever it is given, as many environments do."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__()
        self.keywords = keywords


MAKERS = [agym.make, agym.make_async, agym.make_vec]
# By the name that errors have: functions, what they say instead, and other libraries' names that
# are theirs.
REFUSING: dict[str, tuple[list[Callable[..., Any]], str, set[str]]] = {
    "agym": ([partial(make, Swallows) for make in MAKERS], "", set()),
    "agym.plan": ([partial(agym.plan, Swallows)], "leave it out|for this machine", set()),
    "AgymVectorEnv": (
        [partial(agym.AgymVectorEnv, [Tally])],
        "env_fns has one function per environment",
        {"shared_memory", "autoreset_mode", "max_concurrency"},
    ),
    "AgymVecEnv": (
        [
            lambda **options: agym.sb3.make_vec_env(Swallows, 2, **options),
            lambda **options: agym.sb3.make_vec_env(Swallows, 2, vec_env_kwargs=options),
            lambda **options: agym.sb3.make_vec_env(VectorTally, 2, backend="vector", **options),
            lambda **options: agym.sb3.make_atari_env(Swallows, 2, **options),
            lambda **options: agym.sb3.AgymVecEnv([Tally], **options),
        ],
        "Stable-Baselines3 resets in the same step",
        {"n_envs", "wrapper_class", "env_kwargs", "start_method"},
    ),
}


@pytest.mark.parametrize("where", REFUSING)
def test_a_name_that_is_no_option_is_refused_with_a_remedy(where: str) -> None:
    """Also where the environment would swallow it."""
    if where == "AgymVecEnv":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    functions, instead, own = REFUSING[where]
    for name in REMEDIES.keys() - own:
        remedy = "|".join([re.escape(REMEDIES[name]), *([instead] if instead else [])])
        for function in functions:
            with pytest.raises(agym.UsageTypeError) as caught:
                function(**{name: 3})
            match = rf"`{name}` isn't an {re.escape(where)} option; .*({remedy})"
            assert re.match(match, str(caught.value))
            factory = f"pass a factory: lambda: Swallows({name}=...)"
            assert (factory in str(caught.value)) is where.startswith("agym")
    if where.startswith("Agym"):
        for name in ("autoreset", "output", "render_mode"):
            with pytest.raises(agym.UsageTypeError, match=f"`{name}` isn't an {where} option"):
                functions[0](**{name: "x"})


ENVS: dict[str, Any] = {
    "class": Swallows,
    "partial": partial(Swallows, colour="red"),
    "function": lambda **keywords: Swallows(**keywords),
    "list": [Swallows, partial(Swallows)],
    "spec": EnvSpec("Swallows-v0", entry_point=Swallows),
    "broken": EnvSpec("Half-v0", entry_point=Swallows, vector_entry_point="no_such_module:Vector"),
    "id": "CartPole-v1",
}


@pytest.mark.parametrize("env", ENVS)
def test_names_are_refused_whatever_makes_the_environment(env: str) -> None:
    for function in (*MAKERS, agym.plan):
        with pytest.raises(agym.UsageTypeError, match=r"`n_envs` isn't .*; use `num_envs`"):
            function(ENVS[env], n_envs=8)


# ---------------------------------------------------------------- what environments get


class Names(Tally):
    """Really has parameters of such names."""

    def __init__(self, n_envs: int = 0, context: str = "", pin: int = 0) -> None:
        super().__init__()
        self.given = n_envs, context, pin


class PassesOn(Names):
    """Passes keywords on to a class that has the parameters."""

    def __init__(self, *, colour: str = "", **keywords: Any) -> None:
        super().__init__(**keywords)


@pytest.mark.parametrize("env", [Names, PassesOn, partial(PassesOn, colour="red"), [Names]])
def test_an_environment_gets_what_its_constructor_names(env: Any) -> None:
    given = {"n_envs": 8, "context": "snow", "pin": 3}
    with agym.make(env, backend="serial", **given) as envs:
        assert envs.given == [(8, "snow", 3)]
    vector = agym.make_vec(env, backend="serial", **given)
    try:
        assert vector.get_attr("given") == ((8, "snow", 3),)
    finally:
        vector.close()
    with pytest.raises(agym.UsageTypeError, match=r"`num_workers` isn't .*; use `workers`"):
        agym.make(env, num_workers=8)


def test_a_registered_environment_gets_what_its_constructor_or_spec_names() -> None:
    spec = EnvSpec("Names-v0", entry_point="tests.api.test_options_of_others:Names")
    with agym.make(spec, backend="serial", context="snow") as envs:
        assert envs.unwrapped.given == [(0, "snow", 0)]
    spec = EnvSpec("Registered-v0", entry_point=Swallows, kwargs={"start_index": 1})
    with agym.make(spec, backend="serial", start_index=2) as envs:
        assert envs.unwrapped.keywords == [{"start_index": 2}]


def test_an_environment_gets_what_resembles_no_option() -> None:
    for env in (Swallows, ENVS["broken"]):
        with agym.make(env, backend="serial", gravity=3, env_type="moon", seed=1) as envs:
            assert envs.unwrapped.keywords == [{"gravity": 3, "env_type": "moon", "seed": 1}]


def test_stable_baselines3_keeps_its_own_options() -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    made = agym.sb3.make_vec_env(
        Names, n_envs=2, start_index=1, env_kwargs={"n_envs": 5}, vec_env_kwargs={"workers": 2}
    )
    assert (made.workers, made.get_attr("given")) == (2, [(5, "", 0)] * 2)
    made.close()


class Takes(VectorTally):
    """A program whose keywords are not in its signature, as those of ``envpool.make``."""

    def __init__(self, num_envs: int, **keywords: Any) -> None:
        super().__init__(num_envs)
        self.taken = keywords["batch_size"], keywords["num_threads"]


def test_programs_have_threads_and_batches_of_their_own() -> None:
    with agym.make(Takes, 4, backend="vector", batch_size=4, num_threads=3) as envs:
        assert envs.taken == [(4, 3)] * 4
    with pytest.raises(agym.UsageTypeError, match=r"`n_envs` isn't an agym.* option"):
        agym.make(Takes, backend="vector", n_envs=4)
