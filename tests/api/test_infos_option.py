"""``infos=`` and ``episode_stats=``: what is told of infos, and statistics of episodes."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

import agym
from agym.core.hosts.episode import MODES
from tests.api.vector.test_vector_oracle import assert_same_infos
from tests.support.backends import with_own
from tests.support.drivers import FORKED, Setup, each_mode, everywhere
from tests.support.envs.plain_envs import Tally
from tests.support.envs.scripted_envs import Info, Telling, messages
from tests.support.patience import patience

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


@everywhere
@each_mode
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_gymnasiums(setup: Setup, mode: str, kind: str) -> None:
    """As those of Gymnasium's wrapper around each environment, but for the seconds."""
    make = partial(Rewarding, kind)
    options: dict[str, Any] = {"autoreset_mode": MODES[mode]}
    theirs = SyncVectorEnv([lambda: RecordEpisodeStatistics(make())] * 3, **options)
    factories = [setup.adapt(make)] * 3
    ours = agym.AgymVectorEnv(factories, episode_stats=True, **options, **setup.options)
    with closing(ours), closing(theirs):
        for envs in (ours, theirs):
            envs.reset(seed=5)
        for _ in range(STEPS):
            mine, others = (envs.step(np.ones(3, np.int64)) for envs in (ours, theirs))
            done = others[2] | others[3]
            assert_same_infos(mine[4], others[4])
            for info in (mine[4], mine[4].get("final_info", {})):
                seconds = info.get("episode", {"t": np.zeros(3)})["t"]
                assert (np.round(seconds, 6) == seconds).all()
                assert (seconds < 60).all()
            if mode == "disabled" and done.any():
                for envs in (ours, theirs):
                    envs.reset(options={"reset_mask": done.copy()})


@everywhere
@each_mode
def test_without_infos_nothing_is_sent(setup: Setup, mode: str) -> None:
    script: list[Info] = [{"name": "text", "episode": {"r": 1}}]
    factories = [setup.adapt(partial(Telling, script, 2))] * 2
    with agym.make(factories, autoreset=mode, infos="none", **setup.options) as envs:
        assert envs.reset(seed=0)[1] == [{}, {}]
        with messages(envs) as seen:
            for _ in range(6):
                envs.step([0, 0])
        assert seen == []


@everywhere
def test_what_an_environment_tells_by_itself_stays(setup: Setup) -> None:
    script: list[Info] = [{"episode": {"r": -1.0, "mine": True}}]
    for option in ({"infos": "episode"}, {"episode_stats": True}):
        factories = [setup.adapt(partial(Telling, script, 1))]
        with agym.make(factories, **setup.options, **option) as envs:
            envs.reset(seed=0)
            assert envs.step([0])[4] == script


@pytest.mark.full
@each_mode
def test_statistics_and_infos_stay_as_they_are_when_workers_are_recycled(mode: str) -> None:
    def play(rounds: int, **options: Any) -> tuple[int, list[list[Info]]]:
        """Play so many rounds, and more until all workers were replaced."""
        end = time.monotonic() + patience(3)
        with agym.make([Rewarding] * 4, autoreset=mode, episode_stats=True, **options) as envs:
            rows = [envs.reset(seed=2)[1]]
            for k in count(1):
                result = envs.step([1] * 4)
                rows.append(result.infos)
                if mode == "disabled" and any(result.terminated):
                    over = [i for i in range(4) if result.terminated[i]]
                    rows.append(envs.reset(env_ids=over)[1])
                workers = envs.stats().workers if k >= rounds else ()
                if workers and (envs.backend == "serial" or all(w.restarts for w in workers)):
                    return k, rows
                assert time.monotonic() < end, workers
        raise AssertionError

    recycle = agym.Recycle(episodes=3)
    rounds, recycled = play(600, **with_own(FORKED, recycle=recycle), workers=2)
    _, expected = play(rounds, backend="serial")

    def seen(rows: list[list[Info]]) -> list[Any]:
        infos = [info for row in rows for info in row]
        episodes = [info.get("final_info", info).get("episode", {}) for info in infos]
        draws = [info.get("draw") for info in infos]
        return [(d, e.get("r"), e.get("l")) for d, e in zip(draws, episodes, strict=True)]

    assert seen(recycled) == seen(expected)
    assert sum(end is not None for *_, end in seen(recycled)) > 100


FOLLOWS = r"follows single environments.*VecMonitor"
BAD: list[tuple[Any, dict[str, Any], str]] = [
    (Tally, {"infos": "some"}, "infos='some' is unknown: use one of all, episode, none"),
    (Tally, {"infos": None}, "infos=None is unknown"),
    (Tally, {"episode_stats": 1}, "episode_stats=1 must be True or False"),
    (Tally, {"infos": "none", "episode_stats": True}, "infos='none': use infos='episode'"),
    (SyncVectorEnv, {"infos": "episode"}, FOLLOWS),
    (SyncVectorEnv, {"episode_stats": True}, FOLLOWS),
]


@pytest.mark.parametrize(("env", "options", "words"), BAD)
def test_options_that_are_refused(env: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(agym.UsageError, match=words):
        agym.make(env, 2, **options)
