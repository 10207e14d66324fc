"""What is measured of one environment, and that nobody notices."""

from __future__ import annotations

import random
import threading
import time
import warnings
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from agym.api.options.environments import make_factories
from agym.core.planning import sampling
from agym.core.planning.sampling import make_sample, measure, measure_on_loop, name_of, obstacle
from tests.support.envs.costly_envs import AsyncCostly, Costly
from tests.support.envs.plain_envs import Result, Tally


class Talks(Tally):
    """Tells more than numbers."""

    def step(self, action: Any) -> Result:
        *result, info = super().step(action)
        return *result, {**info, "text": "x" * 100}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def lines(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()]


def test_what_sleeps_waits_and_what_computes_does_not(log: Path) -> None:
    for sleeps, computes in ((0.0, 0.002), (0.005, 0.0)):
        factory = partial(Costly, str(log), sleeps=sleeps, computes=computes)
        profile = measure(make_sample(factory), factory)
        assert profile.step >= sleeps + computes
        assert (profile.waiting > 0.5) == (sleeps > 0)
        assert sleeps or profile.waiting == 0.0


def test_values_of_infos_are_counted() -> None:
    less, more = (measure(make_sample(kind), kind).infos for kind in (Tally, Talks))
    assert more == less + 1


def test_coroutine_environments_are_measured_on_a_loop(log: Path) -> None:
    profile = measure_on_loop(partial(AsyncCostly, str(log), 0.005))
    assert profile.coroutine
    assert profile.waiting > 0.5
    assert lines(log) == ["made", "closed"]


def test_a_sample_is_made_once_and_closed_and_leaves_nothing_changed(log: Path) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    expected = random.random(), np.random.rand()  # noqa: NPY002
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    filters = list(warnings.filters)
    factory = partial(Costly, str(log))
    sample = make_sample(factory)
    measure(sample, factory)
    sample.close()
    # The caller's random numbers and warnings are as they were.
    assert (random.random(), np.random.rand()) == expected  # noqa: NPY002
    assert warnings.filters == filters
    assert lines(log) == ["made", "closed"]


def test_one_that_the_caller_owns_is_not_closed(log: Path) -> None:
    env = Costly(str(log))
    for factory in (lambda: env, lambda: gymnasium.wrappers.TimeLimit(env, 9)):
        sample = make_sample(factory)
        assert sample.existing
        measure(sample, factory)
        sample.close()
    assert lines(log) == ["made"]


@pytest.mark.parametrize("waits", [False, True])
def test_what_others_take_of_the_core_is_not_construction(
    waits: bool, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is not made again, however little it computes."""
    env = Costly(str(log))
    calls = []

    def factory() -> Any:
        calls.append(1)
        if waits:
            time.sleep(0.001)
        return env

    clock = count(0, 60)  # a minute passes meanwhile
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    sample = make_sample(factory)
    assert sample.existing == (not waits)
    assert len(calls) == (1 if waits else 2)
    assert (sample.construction == 60) == waits


def test_whether_it_can_be_sent_to_another_process() -> None:
    lock = threading.Lock()
    assert not obstacle([Tally, Tally])
    assert not obstacle([lambda: Tally(length=4)])
    assert "pickled" in obstacle([Tally, lambda: lock and Tally()])


def test_names() -> None:
    assert name_of(make_factories("CartPole-v1", 2, {})[1]) == "CartPole-v1"
    assert name_of(partial(Tally, length=3)) == "Tally"
