"""When twins are used, and what is said where they are not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from typer.testing import CliRunner

import agym
from agym.cli.app import app
from agym.core.hosts.vector import twins as registry
from agym.core.planning import verdicts
from agym.twins.registration import twin_class
from tests.support.readme import blocks

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(autouse=True)
def two_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are quick with two environments of toy text, which compile nothing."""
    for name in ("CliffWalkingEnv", "FrozenLakeEnv"):
        monkeypatch.setattr(twin_class(name), "min_envs", 2)


def test_few_environments_of_toy_text_are_the_originals() -> None:
    for count, backend in ((15, "serial"), (16, "twin")):
        with agym.make("Taxi-v4", count) as envs:
            assert envs.backend == backend
    candidates = agym.plan("Taxi-v4", 15).candidates
    assert "its twin is faster only with 16 environments" in candidates[-1].remark


def cliff(**keywords: Any) -> Any:
    return gymnasium.make("CliffWalking-v1", **keywords)


def cleanrl(env_id: str) -> Any:
    env = wrappers.RecordEpisodeStatistics(gymnasium.make(env_id))
    return wrappers.NormalizeReward(env, gamma=0.99)


def changed() -> Any:
    env = cliff()
    env.unwrapped.is_slippery = True
    return env


def seeded() -> Any:
    env = cliff()
    env.reset(seed=1)
    return env


CHANGED = "has changed CliffWalking-v1, or has reset it"
FUNCTION = "TransformReward has a function"
LIMIT = 1


def restored() -> Any:
    env = wrappers.NormalizeReward(cliff())
    env.return_rms.var = 4.0
    return env


def patched() -> Any:
    env = cliff()
    env.step = lambda action: env.env.step(0)
    return env


def respaced() -> Any:
    env = cliff()
    env.observation_space = gymnasium.spaces.Box(0, 99, (), np.int64)
    return env


def transformed(function: Callable[[Any], Any]) -> Any:
    return wrappers.TransformReward(cliff(), function)


class Own(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper of the user's."""


def alternating() -> Callable[[], Any]:
    made: list[Any] = []

    def make() -> Any:
        made.append(cliff(is_slippery=bool(len(made) % 2)))
        return made[-1]

    return make


def named(made: Callable[[], Any], count: int = 4) -> str:
    """The backend of functions, and for `serial` the reason in the plan."""
    with agym.make([made] * count) as envs:
        return envs.backend


def test_ids_and_functions_get_a_twin() -> None:
    with agym.make("CliffWalking-v1", 2) as envs:
        assert "backend='twin'; with arrays, equal to the original in 1,600 steps" in repr(envs)
    assert named(cliff) == "twin"
    assert named(partial(cleanrl, "CliffWalking-v1")) == "twin"
    with closing(agym.make_vec([partial(cleanrl, "CliffWalking-v1")] * 2)) as vector:
        assert "twin, with arrays, equal to the original" in repr(vector)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Own(cliff()), "the wrapper Own is not among the wrappers of twins"),
        (
            lambda: wrappers.TimeLimit(wrappers.TimeLimit(cliff(), 9), 7),
            "the wrapper TimeLimit is not among",
        ),
        (
            lambda: wrappers.TransformReward(cliff(), np.tanh),
            "TransformReward has a function that may do more than call NumPy's abs, clip",
        ),
        (lambda: transformed(lambda r, *, k=2: np.clip(r, 0, k)), FUNCTION),
        (lambda: transformed(lambda r: np.clip(r, 0, LIMIT)), FUNCTION),
        (lambda: transformed(lambda r: -r), FUNCTION),
        (lambda: transformed(lambda r: np.clip(r, 0, 1, out=None)), FUNCTION),
        (lambda: transformed(lambda r: np.random.rand()), FUNCTION),  # noqa: NPY002
        (changed, CHANGED),
        (seeded, CHANGED),
        (restored, CHANGED),
        (patched, CHANGED),
        (respaced, CHANGED),
        (alternating(), "its factories make different environments"),
    ],
)
def test_the_plan_names_what_prevents_it(make: Callable[[], Any], why: str) -> None:
    assert named(make) != "twin"
    remark = next(each.remark for each in agym.plan(make, 4).candidates if each.backend == "twin")
    assert why in remark
    with pytest.raises(agym.UsageError, match="backend='twin' can't run"):
        agym.make(make, 4, backend="twin")


@pytest.mark.parametrize("changes_at", [3, 99])
def test_each_function_is_called_once_per_environment(changes_at: int) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(cliff(is_slippery=len(made) >= changes_at))
        return made[-1]

    with agym.make([make] * 5, backend="auto") as envs:
        assert envs.backend == ("twin" if changes_at > 5 else "serial")
        assert len(made) == 5
        if changes_at < 5:
            assert [env.unwrapped.is_slippery for env in made] == envs.get_attr("is_slippery")


def test_a_patched_original_is_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(lambda: gymnasium.make("CliffWalking-v1")) == "twin"
    original: Any = type(cliff().unwrapped)
    step = original.step
    with monkeypatch.context() as patch:
        patch.setattr(original, "step", lambda self, action: step(self, 3 - action))
        with agym.make("CliffWalking-v1", 2) as envs:
            assert envs.backend == "serial"
    with agym.make("CliffWalking-v1", 2) as envs:
        assert envs.backend == "twin"


def test_functions_that_make_the_same_environment_each_time_get_none() -> None:
    env = cliff()
    assert named(lambda: env) == "serial"
    env.reset(seed=0)
    env.close()


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 1}, {"timeout": 60.0}, {"on_fault": "restart"}, {"episode_stats": True},
        {"infos": "episode"}, {"render_mode": "rgb_array"}, {"backend": "serial"},
        {"rate_limit": 1000.0},
    ],
)  # fmt: skip
def test_options_that_need_single_environments_get_none(options: dict[str, Any]) -> None:
    with agym.make("CliffWalking-v1", 2, **options) as envs:
        assert envs.backend != "twin"


def test_one_environment_gets_none_unless_it_is_demanded() -> None:
    with agym.make("CliffWalking-v1", 1) as envs:
        assert envs.backend == "serial"
    with agym.make("CliffWalking-v1", 1, backend="twin") as envs:
        assert envs.backend == "twin"
        assert envs.step_buffer is not None


def test_an_error_says_why_there_is_no_twin() -> None:
    for env_id, why in [
        ("agym/CartPole-v1", "it is a rule book"), ("LunarLander-v3", "has no twin"),
    ]:  # fmt: skip
        with pytest.raises(agym.UsageError, match=why):
            agym.make(env_id, 4, backend="twin")


# ---------------------------------------------------------------- verdicts


class Wrong:
    """A twin whose rewards differ."""

    def __new__(cls, **keywords: Any) -> Any:
        envs: Any = twin_class("FrozenLakeEnv")(**keywords)
        play = envs.step

        def step(actions: Any) -> Any:
            observations, rewards, *rest = play(actions)
            return observations, rewards + (rewards > 0), *rest

        envs.step = step
        return envs


def test_a_twin_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv"
    monkeypatch.setitem(registry._twins, place, f"{__name__}:Wrong")
    monkeypatch.setattr(verdicts, "_known", {})
    keywords = {"desc": ["SG"], "is_slippery": False}  # arguments of no other test
    with agym.make("FrozenLake-v1", 4, **keywords) as envs:
        assert envs.backend == "serial"
    spec = copy(gymnasium.spec("FrozenLake-v1"))
    spec.kwargs = {**spec.kwargs, **keywords}
    verdict = verdicts.verdict_on(spec)
    assert "rewards" in verdict.difference
    assert "where the original has" in verdict.difference
    monkeypatch.setattr(verdicts, "_known", {})
    assert verdicts.verdict_on(spec) == verdict, "it is kept on disk"


def test_an_unreadable_verdict_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for damage in ("{}", '{"verdict": {"steps": "many"}}', '{"verdict": [1]}', "?"):
        monkeypatch.setattr(verdicts, "_known", {})
        with agym.make("CliffWalking-v1", 2) as envs:
            assert envs.backend == "twin"
        (record,) = (tmp_path / "agym").glob("env-*.json")
        record.write_text(damage)


def test_an_argument_that_the_original_refuses_is_not_blamed_on_the_twin() -> None:
    with pytest.raises(agym.EnvError, match="unexpected keyword argument 'colour'"):
        agym.make("FrozenLake-v1", 2, colour="red")


def test_the_twin_of_the_page_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_twins", {**registry._twins})
    monkeypatch.setattr(gymnasium.envs.registration, "registry", {**gymnasium.registry})
    monkeypatch.syspath_prepend(tmp_path)
    (code,) = (
        block.code for block in blocks("docs/tutorials/twins.md") if "class Walks" in block.code
    )
    for name, of_page in {
        "walks": code,
        "wrong_walks": code.replace("-1.0, 0.0", "-2.0, 0.0"),
    }.items():
        (tmp_path / f"{name}.py").write_text(of_page.partition("from agym.testing")[0])
        gymnasium.register(f"{name}-v0", f"{name}:Walk", max_episode_steps=20)
        agym.register_twin(f"{name}:Walk", f"{name}:Walks")
    for env in ("walks-v0", [lambda: gymnasium.make("walks-v0")] * 4):
        with agym.make(env, 4) as envs:
            assert envs.backend == "twin"
    with pytest.raises(agym.UsageError, match=r"rewards.* where the original has"):
        agym.make("wrong_walks-v0", 4, backend="twin")


def test_the_command_proves() -> None:
    result = CliRunner().invoke(app, ["prove", "CliffWalking-v1", "--steps", "100"])
    assert result.exit_code == 0, result.output
    assert "proven to be equal to the original in 2,400 steps" in result.output
    with agym.make("CliffWalking-v1", 2) as envs:
        assert "proven" in repr(envs)
    result = CliRunner().invoke(app, ["prove", "LunarLander-v3"])
    assert result.exit_code == 1
    assert "has no twin" in result.output
