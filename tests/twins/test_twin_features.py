"""What agym offers works with twins, or is refused with the remedy."""

from __future__ import annotations

import os
import pickle
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers

import agym
from agym.core.hosts.vector.twins import PartialStepError
from agym.twins import layers
from agym.twins.registration import twin_class
from tests.support.equality import same_values
from tests.twins.needs import needs

pytestmark = pytest.mark.usefixtures("own_folder")


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


def counted(env_id: str) -> Any:
    return wrappers.RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=3))


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CartPole-v1", "MountainCarContinuous-v0"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_ended_episodes_continue_in_another_mode_as_the_originals(env_id: str, mode: str) -> None:
    """One of the restored environments is over, and the other ends in the next step."""
    needs(env_id)
    results = []
    for backend in ("serial", "twin"):
        options: Any = {"backend": backend, "output": "array"}
        make = [partial(counted, env_id)] * 2
        with agym.make(make, autoreset="next_step", **options) as envs:
            envs.reset(seed=3)
            envs.action_space.seed(4)
            envs.step(envs.action_space.sample()[:1], env_ids=[0])
            actions = [envs.action_space.sample() for _ in range(12)]
            before = [envs.step(each) for each in actions[:2]]
            assert before[1].truncated.tolist() == [True, False]
            states = envs.snapshot()
        with agym.make(make, autoreset=mode, **options) as envs:
            envs.reset(seed=9)
            envs.restore(states)
            results.append([untimed(tuple(envs.step(each))) for each in actions[2:]])
    assert same_values(*results)


def untimed(result: Any) -> Any:
    """Remove the times of episodes from a result."""
    for info in result[-1]:
        for each in (info, info.get("final_info", {})):
            each.get("episode", {}).pop("t", None)
    return result


def test_steps_of_some_take_actions_of_double_precision() -> None:
    needs("Pendulum-v1")
    results = []
    for backend in ("serial", "twin"):
        with agym.make("Pendulum-v1", 3, backend=backend, output="array") as envs:
            envs.reset(seed=0)
            steps = [envs.step(np.array([[0.3]]), env_ids=[i]) for i in (1, 2, 1)]
            results.append([tuple(each) for each in steps])
    assert same_values(*results)
    with agym.make("Pendulum-v1", 2, backend="twin") as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.EnvError, match="use float32 or float64"):
            envs.step(np.zeros((2, 1), np.float16))


def test_the_callers_changes_of_infos_stay_out_of_snapshots() -> None:
    with agym.make("FrozenLake-v1", 2, backend="twin") as envs:
        envs.reset(seed=0)
        envs.step([0, 1]).infos[0]["mine"] = 1
        assert "mine" not in envs.restore(envs.snapshot()).infos[0]


def test_monitors_add_returns_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on, ``sum`` compensates rounding errors."""
    monkeypatch.setattr(layers, "sys", SimpleNamespace(version_info=(3, 12)))
    monitor = layers.Monitored(SimpleNamespace(t_start=0.0), 2)
    rewards, flags = np.array([0.1, 1e16]), np.zeros(2, bool)
    for ids in (slice(0, 2), np.array([0, 1])) * 2:
        monitor.reward(layers.Stepped(ids, None, rewards, flags, flags))
        rewards = np.array([0.1, 1.0])
    assert monitor.episodes(np.array([0, 1]))["r"].tolist() == [0.4, 1e16 + 3]


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
    envs = agym.make_vec("CliffWalking-v1", 16)
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
