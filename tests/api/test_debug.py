"""Debug mode: a view that has expired shows it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.drivers import APIS, SETUPS, opened
from tests.support.envs.plain_envs import Nested, Tally
from tests.support.equality import same
from tests.support.insides import engine_of

VIEWS: dict[str, Any] = {"autoreset": "next_step", "output": "array", "copy": False}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("api", APIS)
def test_expired_views_are_poisoned(setup: dict[str, Any], api: str) -> None:
    with agym.debug(), opened(api, Tally, 3, **VIEWS, **setup) as envs:
        first = envs.reset(seed=0)
        second = envs.step([1, 1, 1])
        kept = second.observations.copy()
        assert not is_poisoned(first.observations)
        third = envs.step([1, 1, 1])
        assert is_poisoned(first.observations)
        assert same(second.observations, kept)
        envs.reset(env_ids=[1])  # is no whole batch
        assert same(second.observations, kept)
        envs.step([1, 1, 1])
        assert is_poisoned(second.observations)
        assert is_poisoned(second.rewards)
        assert second.truncated.all()
        assert not is_poisoned(third.observations)
        assert not is_poisoned(third.rewards)


def is_poisoned(array: Any) -> bool:
    worst = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max
    return bool(
        np.array_equal(array, np.full_like(array, worst), equal_nan=array.dtype.kind == "f")
    )


@pytest.mark.parametrize("setup", SETUPS)
def test_what_was_received_expires_when_its_environment_goes_on(setup: dict[str, Any]) -> None:
    with agym.debug(), agym.make(Tally, 3, **VIEWS, **setup) as envs:
        envs.reset(seed=0)
        envs.send([1, 2, 3])
        batch = envs.recv(min_envs=3)
        assert not is_poisoned(batch.rewards)
        row = [*batch.env_ids].index(1)
        envs.send([2], env_ids=[1])
        assert is_poisoned(batch.rewards[row : row + 1])
        others = [k for k in range(3) if k != row]
        assert not np.isnan(batch.rewards[others]).any()
        envs.recv(min_envs=1)


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_results_are_the_same(setup: dict[str, Any], mode: Any) -> None:
    options = {**VIEWS, "autoreset": mode}

    def play() -> list[Any]:
        with agym.make(partial(Tally), 3, **options, **setup) as envs:
            batches = [envs.reset(seed=0)]
            told = [batches[0].observations.copy()]
            told += ([part.copy() for part in envs.step([k % 3] * 3)[:4]] for k in range(8))
            return told

    plain = play()
    with agym.debug():
        assert same(play(), plain)
        with agym.debug(False):
            assert same(play(), plain)


@pytest.mark.parametrize("setup", SETUPS)
def test_steps_into_arrays_of_the_callers_count(setup: dict[str, Any]) -> None:
    with agym.debug(), agym.make(Tally, 3, **VIEWS, **setup) as envs:
        first = envs.reset(seed=0)
        for _ in range(2):
            envs.step([1, 1, 1], out=np.zeros_like(first.observations))
        assert is_poisoned(first.observations)


async def test_what_counts_is_where_they_are_made() -> None:
    with agym.debug():
        envs = agym.make_async(Tally, 3, **VIEWS)
    async with envs:
        first, _ = await envs.reset(seed=0)
        for _ in range(2):
            await envs.step([1, 1, 1])
        assert is_poisoned(first)


def test_it_is_on_until_it_is_switched_off() -> None:
    agym.debug()
    try:
        with agym.make(Nested, 2, **VIEWS) as envs:
            assert engine_of(envs).rows.opened.batches._views is not None
    finally:
        agym.debug(False)
    with agym.make(Nested, 2, **VIEWS) as envs:
        assert engine_of(envs).rows.opened.batches._views is None
