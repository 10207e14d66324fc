"""When twins are used, and what they do in the APIs of agym."""

from __future__ import annotations

import os
import pickle
import signal
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
from agym.core.hosts.vector.twins import PartialStepError
from agym.core.planning import verdicts
from agym.twins.registration import twin_class
from tests.support.equality import same_values
from tests.support.readme import blocks
from tests.twins.needs import needs

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


# ---------------------------------------------------------------- what agym offers


@pytest.mark.once
@pytest.mark.parametrize("env_id", ["Taxi-v4", "CartPole-v1", "Blackjack-v1", "Hopper-v5"])
def test_a_snapshot_continues_with_the_same_bits(env_id: str) -> None:
    needs(env_id)
    with agym.make(env_id, 3, backend="twin", max_episode_steps=30, output="array") as envs:
        envs.reset(seed=1)
        envs.action_space.seed(0)
        actions = [envs.action_space.sample() for _ in range(40)]
        for each in actions[:7]:
            envs.step(each)
        states = envs.snapshot()
        once = [tuple(envs.step(each)) for each in actions]
        envs.restore(states)
        assert same_values(once, [tuple(envs.step(each)) for each in actions])
        children = envs[1].branch(2) if hasattr(envs[1], "branch") else None
        assert children is None or len(children) == 2


@pytest.mark.full
@pytest.mark.parametrize(
    "env_id",
    [
        "CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1",
        "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1",
    ],
)  # fmt: skip
def test_pictures_are_those_of_the_original(env_id: str) -> None:
    pytest.importorskip("pygame", reason="the extra `render`")
    needs(env_id)
    frames = []
    for backend in ("serial", "twin"):
        with agym.make(env_id, 2, backend=backend, render_mode="rgb_array") as envs:
            envs.reset(seed=4)
            envs.action_space.seed(0)
            for _ in range(5):
                envs.step([*envs.action_space.sample()])
            frames.append([*envs.render()])
    assert same_values(*frames)


def test_what_a_twin_has_not_is_refused_with_the_remedy() -> None:
    with agym.make("CliffWalking-v1", 2, backend="twin") as envs:
        envs.reset(seed=5)
        for ask in (
            lambda: envs.get_attr("s"),
            lambda: envs.set_attr("is_slippery", True),
            lambda: envs.call("close"),
            lambda: envs.call(repr),
        ):
            with pytest.raises(agym.AgymError, match=r"the twin of CliffWalking.*backend='serial'"):
                ask()
        assert envs.get_attr("render_mode") == [None, None]
        assert envs.get_attr("is_slippery") == [False, False]
        first, second = envs.get_attr("np_random_seed")
        assert (first, second) == (5, 6)
    with closing(agym.make_vec("CliffWalking-v1", 2, backend="twin")) as vector:
        assert vector.get_attr("is_slippery") == (False, False)
    with agym.make("FrozenLake-v1", 2, backend="twin") as lakes:
        with pytest.raises(ValueError, match="read-only"):
            lakes.get_attr("desc")[0][:] = b"F"
        with pytest.raises(agym.AgymError, match="can't access 'P' of single environments"):
            lakes.get_attr("P")


def test_options_of_reset_are_ignored_or_refused() -> None:
    with agym.make("CliffWalking-v1", 2, backend="twin") as envs:
        envs.reset(options={"low": 3})  # as the original ignores them
    needs("CartPole-v1")
    with agym.make("CartPole-v1", 2, backend="twin") as envs:
        envs.reset(options={"colour": "red"})
        with pytest.raises(agym.AgymError, match=r"options\['(low|high)'\].*backend='serial'"):
            envs.reset(options={"low": -0.1, "high": 0.1})


def test_a_twin_can_be_pickled_open_or_closed() -> None:
    envs = agym.make_vec("CliffWalking-v1", 2)
    envs.action_space.seed(7)
    copy = pickle.loads(pickle.dumps(envs))
    assert repr(copy) == repr(envs)
    assert [*copy.action_space.sample()] == [*envs.action_space.sample()]
    for each in (envs, copy):
        each.close()
    assert pickle.loads(pickle.dumps(envs)).closed


def test_attributes_through_sb3() -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    with closing(agym.sb3.make_vec_env("CliffWalking-v1", 2, backend="twin")) as envs:
        assert envs.has_attr("is_slippery")
        assert not envs.has_attr("colour")
        with pytest.raises(agym.EnvError, match="can't access 'is_slippery'"):
            envs.set_attr("is_slippery", True)
        with pytest.raises(agym.EnvError, match="can't access 'render'"):
            envs.env_method("render")


@pytest.mark.parametrize("backend", ["auto", "twin"])
def test_episodes_through_sb3_are_those_of_its_monitor(backend: str) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    from stable_baselines3.common.env_util import make_vec_env

    keywords = {"env_kwargs": {"max_episode_steps": 3}, "seed": 0}
    episodes = []
    for make in (make_vec_env, partial(agym.sb3.make_vec_env, backend=backend)):
        with closing(make("CliffWalking-v1", 16, **keywords)) as envs:
            assert make is make_vec_env or envs.backend == "twin"
            envs.reset()
            infos = [envs.step(np.arange(16) % 4)[3] for _ in range(3)][-1]
            episodes.append([{**info["episode"], "t": 0.0} for info in infos])
            assert all(type(info["episode"]["t"]) is float for info in infos)
    assert same_values(*episodes)
    assert [[*map(type, each.values())] for each in episodes[1]] == [[float, int, float]] * 16


def test_first_k_batches_and_groups() -> None:
    with agym.make("CliffWalking-v1", 4, backend="twin", autoreset="next_step") as envs:
        envs.reset(seed=0)
        envs.send([0] * 4)
        assert sorted(envs.recv(min_envs=4).env_ids) == [0, 1, 2, 3]
        one, two = envs.split(2)
        one.step([1, 1])
        two.step([2, 2])
        with pytest.raises(agym.UsageError, match="include all of them"):
            envs[1].close()
        envs.step([0, 1, 0, 1])


async def test_a_slow_twin_steps_in_a_thread_and_a_fast_one_does_not() -> None:
    async with agym.make_async("CliffWalking-v1", 2, backend="twin") as fast:
        await fast.reset(seed=0)
        assert fast._backend.runs_in_caller
    needs("HalfCheetah-v5")
    async with agym.make_async("HalfCheetah-v5", 64, backend="twin") as slow:
        await slow.reset(seed=0)
        assert not slow._backend.runs_in_caller


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_steps_with_threads_of_its_own() -> None:
    needs("HalfCheetah-v5")
    with closing(agym.make_vec("HalfCheetah-v5", 4)) as envs:
        envs.reset(seed=0)
        actions = envs.action_space.sample()
        envs.step(actions)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(30)
            os.write(writer, envs.step(actions)[0].tobytes())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.close(writer)
        with os.fdopen(reader, "rb") as end:
            assert end.read() == envs.step(actions)[0].tobytes()
        assert status == 0


# ---------------------------------------------------------------- failures


@pytest.fixture
def crowded(tmp_path: Path) -> str:
    """A model whose memory is too small for a HalfCheetah with many contacts."""
    needs("HalfCheetah-v5")
    assets = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
    text = (assets / "half_cheetah.xml").read_text()
    path = tmp_path / "crowded.xml"
    path.write_text(text.replace("<compiler", "<size memory='8K'/>\n<compiler", 1))
    return str(path)


def flailing(envs: Any, steps: int = 400) -> Any:
    """Step until something fails: environment 1 moves, and environment 0 hardly does."""
    rng = np.random.default_rng(0)
    for _ in range(steps):
        actions = rng.uniform(-1, 1, (2, 6)).astype(np.float32)
        actions[0] *= 0.01
        envs.step(actions)
    raise AssertionError("nothing failed")


def test_a_simulation_that_raises_fails_alone(crowded: str) -> None:
    # The class itself, because the comparison with originals would fail, too.
    cls: Any = twin_class("HalfCheetahEnv")
    with agym.make(cls, 2, backend="vector", output="array", xml_file=crowded) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.EnvError, match=r"environment 1 raised in step.*stack overflow"):
            flailing(envs)
        with pytest.raises(agym.ResetNeededError, match="environment 1"):
            envs.step(np.zeros((2, 6), np.float32))
        envs[1].reset()
        envs.step(np.zeros((2, 6), np.float32))
    with closing(cls(2, xml_file=crowded)) as vector:
        vector.reset(seed=0)
        with pytest.raises(PartialStepError, match=r"environment 1: .*stack overflow"):
            flailing(vector)
        vector.reset(options={"reset_mask": np.array([False, True])})
        vector.step(np.zeros((2, 6), np.float32))
