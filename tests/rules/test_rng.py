"""Random numbers of a game: a hash that wastes nothing, and the same in Python and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.rules.compiling import methods_of
from agym.rules.rng import Rng, hashed, key_of, mix
from tests.rules.books import Steps
from tests.rules.playing import rng_of
from tests.support.core_selection import examples
from tests.support.equality import same

pytestmark = pytest.mark.xdist_group("compiled")

DRAWS = 20_000


def test_the_hash_is_one_to_one() -> None:
    for shift in (0, 16):
        hashes = {mix(x << shift) for x in range(2**16)}
        assert len(hashes) == 2**16
        assert all(0 <= x < 2**32 for x in hashes)
    assert len({hashed(key_of(1), number) for number in range(-(2**15), 2**15)}) == 2**16


def test_seeds_have_keys_of_their_own() -> None:
    seeds = [*range(10_000), 2**32, 2**32 + 1, 2**64, 3 * 2**64]
    keys = [key_of(seed) for seed in seeds]
    assert len({*keys}) == len(seeds)
    assert all(0 <= key < 2**32 for key in keys)


@pytest.mark.parametrize(
    ("draw", "share"),
    [
        (lambda rng: rng.random(), lambda x: x),
        (lambda rng: rng.uniform(-3.0, 5.0), lambda x: (x + 3) / 8),
        (lambda rng: rng.bits(), lambda x: x / 2**32),
        (lambda rng: rng.bits_at(rng.bits() % 2**31), lambda x: x / 2**32),
        (lambda rng: rng.integers(-7, 9), lambda x: (x + 7) / 16),
        (lambda rng: rng.normal(2.0, 3.0), NormalDist(2, 3).cdf),
    ],
    ids=["random", "uniform", "bits", "bits_at", "integers", "normal"],
)
def test_numbers_are_drawn_evenly(
    draw: Callable[[Rng], float], share: Callable[[float], float]
) -> None:
    """Each sixteenth of the distribution has its share, and so has each pair of neighbours."""
    rng = rng_of(3)
    shares = [share(draw(rng)) for _ in range(DRAWS)]
    assert all(0 <= one < 1 for one in shares)
    bins = (np.array(shares) * 16).astype(int)
    counts = np.bincount(bins, minlength=16)
    assert np.abs(counts - DRAWS / 16).max() < 5 * math.sqrt(DRAWS / 16)
    pairs = np.bincount(bins[:-1] // 4 * 4 + bins[1:] // 4, minlength=16)
    assert np.abs(pairs - DRAWS / 16).max() < 5 * math.sqrt(DRAWS / 16)


@given(st.integers(0, 2**32 - 1), st.integers(-(2**40), 2**40), st.integers(1, 2**31))
def test_integers_stay_within_their_limits(seed: int, low: int, count: int) -> None:
    rng = rng_of(seed)
    assert all(low <= rng.integers(low, low + count) < low + count for _ in range(20))


@given(st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31))
def test_reading_a_number_draws_none(seed: int, number: int) -> None:
    rng = rng_of(seed)
    rng.bits()
    first = rng.bits_at(number)
    assert rng.drawn() == 1
    assert rng.bits_at(number) == first
    assert rng.bits_at(1) == rng.bits()


@pytest.mark.parametrize(
    ("draw", "count"),
    [
        (lambda rng: rng.bits(), 1), (lambda rng: rng.random(), 1),
        (lambda rng: rng.uniform(0.0, 1.0), 1), (lambda rng: rng.integers(0, 5), 1),
        (lambda rng: rng.normal(0.0, 1.0), 2), (lambda rng: rng.bits_at(5), 0),
        (lambda rng: rng.drawn(), 0),
    ],
)  # fmt: skip
def test_each_method_draws_as_often_as_it_says(draw: Callable[[Rng], Any], count: int) -> None:
    rng = rng_of(0)
    draw(rng)
    assert rng.drawn() == count


class Draws:
    """Shows a number of each method in each step."""

    state = np.dtype([("low", np.int64), ("count", np.int64), ("drawn", np.float64, (7,))])
    observation_space = spaces.Box(-np.inf, np.inf, (7,), np.float64)
    action_space = spaces.Discrete(2)
    parameters = {"low": 0, "count": 1}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.drawn[:] = 0.0

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        low, count = state.low, state.count
        state.drawn[0] = rng.bits()
        state.drawn[1] = rng.bits_at(low)
        state.drawn[2] = rng.drawn()
        state.drawn[3] = rng.random()
        state.drawn[4] = rng.uniform(low * 0.5, low + count * 0.25)
        state.drawn[5] = rng.integers(low, low + count)
        state.drawn[6] = rng.normal(low * 0.125, count * 0.001)
        return rng.random(), False

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        for k in range(7):
            out[k] = state.drawn[k]


def test_every_method_is_compared() -> None:
    methods = {method.__name__ for method in methods_of(Rng)}
    assert methods == {name for name in vars(Rng) if name in Draws.step.__code__.co_names}
    assert methods == {name for name in vars(Rng) if not name.startswith("_")} - {"game"}


@examples(50)
@given(st.integers(0, 2**70), st.integers(-(2**40), 2**40), st.integers(1, 2**31 - 1))
def test_the_same_numbers_in_python_and_compiled(seed: int, low: int, count: int) -> None:
    python, compiled = (
        agym.vectorize(Draws, 2, engine=engine, low=low, count=count)
        for engine in ("python", "compiled")
    )
    assert same(python.reset(seed=seed), compiled.reset(seed=seed))
    for _ in range(20):
        assert same(python.step([0, 1]), compiled.step([0, 1]))


def test_nothing_is_drawn_as_an_exact_zero_by_everyones_seed() -> None:
    """The second bits of seed 0 are 0; the numbers made from them must not be."""
    assert [rng_of(0).bits_at(number) for number in (0, 1)][1] == 0
    for seed in range(100):
        rng = rng_of(seed)
        assert all(rng.random() > 0 for _ in range(100)), seed


def draw_elsewhere(state: Any, rng: Any) -> None:
    state.place = np.random.randint(3)  # noqa: NPY002


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_numbers_that_no_seed_determines_are_refused(engine: str) -> None:
    rules = type("Game", (Steps,), {"reset": staticmethod(draw_elsewhere)})
    with pytest.raises(agym.UsageError, match=r"test_rng.py:\d+: draw_elsewhere uses np.*use rng"):
        agym.vectorize(rules, 2, engine=engine)
