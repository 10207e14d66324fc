"""``infos=`` and ``episode_stats=``: what is told of infos, and statistics of episodes."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

import agym
from tests.support.backends import with_own
from tests.support.drivers import APART, FORKED, SERIAL, Setup, each_mode
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Tally
from tests.support.envs.scripted_envs import Info, Telling, messages
from tests.support.equality import same

setups = pytest.mark.parametrize("setup", [SERIAL, *APART], ids=lambda setup: setup.name)
MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}
KINDS: dict[str, Any] = {
    "float": float, "float32": np.float32, "float64": np.float64, "int": int
}  # fmt: skip
STEPS = 40


class Rewarding(Tally):
    """Rewards of a kind that do not add up exactly; episodes of different lengths."""

    def __init__(self, kind: str = "float") -> None:
        super().__init__()
        self.kind = kind

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        self.length = int(self.np_random.integers(1, 7))
        return observation, info

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        reward = KINDS[self.kind](self.np_random.normal() * 10)
        return observation, reward, terminated, truncated, info

    def _observe(self, action: Any) -> Any:
        return np.array([0, self.now, action], np.float64)  # another one may take its place


def of(setup: Setup, make: Any) -> Any:
    return make if setup.tally is not AsyncTally else partial(AsyncTally, make)


def timeless(info: Info) -> Info:
    """An info without what a clock said; that is a number of seconds."""
    info = {**info}
    if "episode" in info:
        episode = info["episode"] = {**info["episode"]}
        seconds = episode["t"]
        assert type(seconds) is float
        assert 0 <= seconds < 60
        assert round(seconds, 6) == seconds
        episode["t"] = "seconds"
    if "final_info" in info:
        info["final_info"] = timeless(info["final_info"])
    return info


def wrapped(mode: str, seed: int, kind: str) -> list[Info]:
    """What one environment in Gymnasium's wrapper tells, after Gymnasium's rules."""
    env = RecordEpisodeStatistics(Rewarding(kind))
    _, info = env.reset(seed=seed)
    infos, over = [info], False
    for _ in range(STEPS):
        if over and mode == "disabled":
            infos.append({})
        elif over:
            infos.append(env.reset()[1])
            over = False
        else:
            observation, _, terminated, truncated, info = env.step(1)
            over = terminated or truncated
            if over and mode == "same_step":
                info = {**env.reset()[1], "final_obs": observation, "final_info": info}
                over = False
            infos.append(info)
    return [timeless(info) for info in infos]


@setups
@each_mode
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_gymnasiums(setup: Setup, mode: str, kind: str) -> None:
    factories = [of(setup, partial(Rewarding, kind))] * 3
    with agym.make(factories, autoreset=mode, episode_stats=True, **setup.options) as envs:
        rows = [envs.reset(seed=5)[1]]
        rows += [envs.step([1, 1, 1])[4] for _ in range(STEPS)]
    for i in range(3):
        told = [timeless(row[i]) for row in rows]
        assert same(told, wrapped(mode, 5 + i, kind))
        assert [[*info] for info in told] == [[*info] for info in wrapped(mode, 5 + i, kind)]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_the_gymnasium_api_tells_them_as_gymnasiums_own(mode: str) -> None:
    theirs = SyncVectorEnv(
        [lambda: RecordEpisodeStatistics(Rewarding())] * 3, autoreset_mode=MODES[mode]
    )
    ours = agym.make_vec(Rewarding, 3, backend="serial", autoreset=mode, episode_stats=True)
    with closing(ours), closing(theirs):
        ours.reset(seed=3)
        theirs.reset(seed=3)
        for _ in range(STEPS):
            infos = [envs.step(np.ones(3, np.int64))[4] for envs in (ours, theirs)]
            mine, others = (info.get("final_info", info) for info in infos)
            assert mine.keys() == others.keys()
            if "episode" in mine:
                for key in ("r", "l", "_r", "_l", "_t"):
                    assert same(mine["episode"][key], others["episode"][key])
                assert same(mine["_episode"], others["_episode"])


@setups
@each_mode
def test_without_infos_nothing_is_sent(setup: Setup, mode: str) -> None:
    script: list[Info] = [{"name": "text", "episode": {"r": 1}}]
    factories = [of(setup, partial(Telling, script, 2))] * 2
    with agym.make(factories, autoreset=mode, infos="none", **setup.options) as envs:
        assert envs.reset(seed=0)[1] == [{}, {}]
        with messages(envs) as seen:
            for _ in range(6):
                envs.step([0, 0])
        assert seen == []


@setups
def test_what_an_environment_tells_by_itself_stays(setup: Setup) -> None:
    script: list[Info] = [{"episode": {"r": -1.0, "mine": True}}]
    for option in ({"infos": "episode"}, {"episode_stats": True}):
        factories = [of(setup, partial(Telling, script, 1))]
        with agym.make(factories, **setup.options, **option) as envs:
            envs.reset(seed=0)
            assert envs.step([0])[4] == script


@pytest.mark.full
@each_mode
def test_statistics_and_infos_stay_as_they_are_when_workers_are_recycled(mode: str) -> None:
    def play(**options: Any) -> list[list[Info]]:
        with agym.make([Rewarding] * 4, autoreset=mode, episode_stats=True, **options) as envs:
            rows = [envs.reset(seed=2)[1]]
            for _ in range(600):
                result = envs.step([1] * 4)
                rows.append(result.infos)
                if mode == "disabled" and any(result.terminated):
                    over = [i for i in range(4) if result.terminated[i]]
                    rows.append(envs.reset(env_ids=over)[1])
            if options["backend"] != "serial":
                assert all(worker.restarts for worker in envs.stats().workers)
        return [[timeless(info) for info in row] for row in rows]

    recycle = agym.Recycle(episodes=3)
    recycled = play(**with_own(FORKED, recycle=recycle), workers=2)
    expected = play(backend="serial")

    def seen(rows: list[list[Info]]) -> list[Any]:
        infos = [info for row in rows for info in row]
        return [(i.get("draw"), i.get("final_info", i).get("episode")) for i in infos]

    assert seen(recycled) == seen(expected)
    assert sum(end is not None for _, end in seen(recycled)) > 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"infos": "some"}, "infos='some' is unknown: use one of all, episode, none"),
        ({"infos": None}, "infos=None is unknown"),
        ({"episode_stats": 1}, "episode_stats=1 must be True or False"),
        ({"infos": "none", "episode_stats": True}, "infos='none': use infos='episode'"),
    ],
)
def test_options_that_cannot_be(options: Any, words: str) -> None:
    with pytest.raises(agym.UsageError, match=words):
        agym.make(Tally, **options)


class Program(gymnasium.vector.VectorEnv):  # type: ignore[type-arg]
    """A program, of which nothing is made here."""


@pytest.mark.parametrize("options", [{"infos": "episode"}, {"episode_stats": True}])
def test_programs_are_not_followed(options: Any) -> None:
    with pytest.raises(agym.UsageError, match=r"follows single environments.*VecMonitor"):
        agym.make(Program, 2, **options)
