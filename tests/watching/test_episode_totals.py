"""Returns and lengths are those of whole episodes, from whichever step on they are counted."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.watching.live.metrics import Metrics
from agym.watching.live.series import MAX_POINTS, Series
from tests.support.backends import FORK
from tests.support.drivers import SETUPS, each_mode
from tests.support.patience import deadline

LENGTH, RAISE, WAIT = 10, 1, 2


class Steady(gymnasium.Env[Any, Any]):
    """Every episode has ten steps, and a return of ten."""

    observation_space = spaces.Discrete(LENGTH + 1)
    action_space = spaces.Discrete(1)
    done = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.done = 0
        return self.done, {}

    def step(self, action: Any) -> Any:
        if action == RAISE:
            raise ValueError("boom")
        if action == WAIT:
            time.sleep(60)  # its worker is killed long before
        self.done += 1
        return self.done, 1.0, self.done == LENGTH, False, {}


def reporting() -> Any:
    return gymnasium.wrappers.RecordEpisodeStatistics(Steady())


class Log:
    """Whatever counts episodes, while a program steps environments."""

    def __init__(self) -> None:
        self.points: dict[str, list[float]] = {"return": [], "length": [], "ended": []}
        self.metrics: Any = None

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        where, _, name = tag.partition("/")
        if where == "episodes":
            self.points[name].append(value)

    @property
    def page(self) -> list[float]:
        """The returns that the page draws."""
        return [each[1] for each in self.metrics.read()["dots"]]

    def check(self, least: int) -> None:
        """Check that there were episodes, and that each was a whole one."""
        assert {*self.points["return"], *self.points["length"]} == {float(LENGTH)}
        assert {*self.page} == {float(LENGTH)}
        assert sum(self.points["ended"]) == len(self.page) >= least


@contextmanager
def counting(envs: Any) -> Iterator[Log]:
    """A page that is looked at, and a log for TensorBoard, for a while."""
    log = Log()
    with agym.tensorboard(envs, log, every=1):
        log.metrics = Metrics(envs.tap)
        log.metrics.start()
        yield log
        envs.tap.remove_hook(log.metrics)


def staggered(envs: Any) -> None:
    """Bring the environments to different steps of their episodes."""
    envs.reset(seed=0)
    for k in range(3):
        envs.step([0] * 3)
        envs.reset(env_ids=[k])


@pytest.mark.parametrize("setup", SETUPS)
@each_mode
def test_an_episode_under_way_is_left_out(setup: dict[str, Any], mode: str) -> None:
    with agym.make([Steady] * 3, autoreset=mode, **setup) as envs:
        staggered(envs)
        envs.step([0] * 3)
        with counting(envs) as log:
            unknown = [row[2] for row in log.metrics.read()["envs"]]
            seen: set[float | None] = set()
            for t in range(60):
                envs.step([0] * 3)
                seen.update(row[2] for row in log.metrics.read()["envs"])
                if mode == "disabled" and t % 13 == 12:
                    envs.reset()
        log.check(least=9)
        assert unknown == [None] * 3
        assert seen == {None, *map(float, range(LENGTH))}


@each_mode
@pytest.mark.parametrize("env", [Steady, reporting])
def test_an_episode_that_was_seen_from_its_start_counts(env: Any, mode: str) -> None:
    """Also where the environment itself has seen all of it, and reports it."""
    with agym.make([env] * 3, autoreset=mode) as envs:
        if env is reporting:
            staggered(envs)
        else:
            envs.reset(seed=0)
        with counting(envs) as log:
            for _ in range(LENGTH):
                envs.step([0] * 3)
        log.check(least=3)


@pytest.mark.parametrize("setup", SETUPS)
@each_mode
def test_an_episode_from_a_snapshot_is_left_out(setup: dict[str, Any], mode: str) -> None:
    with agym.make([Steady] * 3, autoreset=mode, **setup) as envs:
        envs.reset(seed=0)
        for _ in range(4):
            envs.step([0] * 3)
        (snapshot,) = envs.snapshot([0])
        with agym.make([Steady] * 3, autoreset=mode, **setup) as others:
            others.reset(seed=1)
            others.restore(snapshot, [1])  # before any step, and before anybody counts
            with counting(others) as log:
                for t in range(40):
                    others.step([0] * 3)
                    if t in (2, 17):
                        others.restore(snapshot, [0, 2])
                    if t == 25:
                        others[0].branch(1, into=[1])
                    if mode == "disabled" and t in (11, 29):
                        others.reset()
            log.check(least=3)


@pytest.mark.once
@each_mode
@pytest.mark.parametrize(
    ("action", "on_fault"), [(RAISE, "raise"), (WAIT, "raise"), (RAISE, "restart")]
)
def test_results_that_nobody_got_are_missing(mode: str, action: int, on_fault: Any) -> None:
    """Where one environment raises or is late, the others have made their step too."""
    timeout = deadline(1.0) if action == WAIT else None
    options = {"backend": FORK, "workers": 3, "autoreset": mode, "timeout": timeout}
    faults = (4, 9, 10, 23) if on_fault == "raise" and action == RAISE else (9,)
    with agym.make([Steady] * 3, on_fault=on_fault, **options) as envs:
        envs.reset(seed=0)
        with counting(envs) as log:
            for t in range(60):
                try:
                    envs.step([action if t in faults else 0, 0, 0])
                except agym.AgymError:
                    assert t in faults
                    with suppress(agym.AgymError):
                        envs.restart([0])
                    envs.reset(env_ids=[0])
                if mode == "disabled" and t % 20 == 19:
                    envs.reset()
        log.check(least=3)


def test_a_page_that_comes_late_has_every_episode_since_it_was_made() -> None:
    """Each with its environment, and the steps at which it started and ended."""
    with agym.make([Steady] * 2, autoreset="same_step") as envs:
        envs.reset()
        for _ in range(5):
            envs.step([0, 0])
        metrics = Metrics(envs.tap)
        metrics.start()
        for _ in range(30):
            envs.step([0, 0])
        numbers = metrics.read()
        assert [row[3] for row in numbers["envs"]] == [LENGTH, LENGTH]
    # The episodes that were under way end after 20 steps, and do not count.
    whole = [(40, 20), (60, 40)]
    expected = [[end, 10.0, LENGTH, env, start] for end, start in whole for env in (0, 1)]
    assert numbers["dots"] == expected
    assert numbers["curve"] == [(each[0], 10.0, LENGTH) for each in expected]
    assert (numbers["steps"], numbers["mean"], numbers["mean_length"]) == (70, 10.0, LENGTH)
    header, *rows = metrics.episodes_csv().splitlines()
    assert header == "step,total,length,env,first_step,seconds"
    assert [row.rpartition(",")[0] for row in rows] == [
        ",".join(map(str, each)) for each in expected
    ]


@pytest.mark.parametrize("count", [1, 399, 400, 401, 5000])
def test_a_curve_has_few_points_and_loses_no_value(count: int) -> None:
    series = Series(1)
    for step in range(count):
        series.add(step, [float(step)])
    merged = 1 if count < MAX_POINTS else 2 ** math.ceil(math.log2(count / MAX_POINTS) + 1e-9)
    whole = count // merged
    assert len(series.points) == whole < MAX_POINTS
    assert series.points == [(mean, mean) for mean in np.arange(whole) * merged + (merged - 1) / 2]
