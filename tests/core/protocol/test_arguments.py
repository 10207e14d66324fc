"""Env ids, masks, seeds and autoreset modes, as callers give them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from agym.core.hosts.episode import parse_mode
from agym.core.protocol.arguments import parse_env_ids, runs
from agym.core.protocol.messages.resets import parse_seeds, take_mask
from agym.errors import UsageError


@pytest.mark.parametrize(
    ("given_ids", "expected"),
    [
        (None, range(5)),
        ([0, 1, 2, 3, 4], range(5)),
        ([4, 3, 2, 1, 0], range(5)),
        ([3, 1], (1, 3)),
        ((2,), (2,)),
        (np.array([4, 0]), (0, 4)),
        (range(1, 3), (1, 2)),
        ([np.int32(1)], (1,)),
        ([], ()),
        (np.array([]), ()),
    ],
)
def test_env_ids(given_ids: Any, expected: Any) -> None:
    assert parse_env_ids(given_ids, 5) == expected


@pytest.mark.parametrize(
    "given_ids",
    [[5], [-1], [1, 1], [0.5], "01", 3, [None], [True, False], np.array([True] * 5), [[1]],
     [float("nan")], [float("inf")], ["1"]],
    ids=str,
)  # fmt: skip
def test_env_ids_that_name_nothing(given_ids: Any) -> None:
    with pytest.raises(UsageError, match="env_ids"):
        parse_env_ids(given_ids, 5)


@given(st.sets(st.integers(0, 30), min_size=1))
def test_runs_cover_the_ids_in_order(ids: set[int]) -> None:
    parsed = parse_env_ids(sorted(ids), 31)
    split = list(runs(parsed))
    assert [i for piece in split for i in piece] == sorted(ids)
    assert all(a.stop < b.start for a, b in pairwise(split))


def test_masks() -> None:
    mask = np.array([True, False, True])
    assert take_mask(None, 3, None, None) == (None, None, None)
    assert take_mask({"x": 1}, 3, 7, [1]) == ({"x": 1}, [1], 7)
    options = {"x": 1, "reset_mask": mask}
    assert take_mask(options, 3, [4, 5, 6], None) == ({"x": 1}, [0, 2], [4, 6])
    assert options.keys() == {"x", "reset_mask"}


def test_seeds() -> None:
    assert parse_seeds(None, range(3), None) is None
    assert parse_seeds(7, range(3), None) == [7, 8, 9]
    assert parse_seeds(7, (1, 2), [2, 1]) == [8, 9]
    assert parse_seeds([5, None, 3], range(3), None) == [5, None, 3]
    assert parse_seeds([20, 10], (1, 2), [2, 1]) == [10, 20]
    assert parse_seeds(np.array([1, 2]), range(2), None) == [1, 2]
    assert parse_seeds(np.uint32(2**32 - 1), range(1), None) == [2**32 - 1]
    seeds = parse_seeds(np.arange(2), range(2), None)
    assert seeds is not None
    assert [type(seed) for seed in seeds] == [int] * 2


@pytest.mark.parametrize(
    "seed",
    [-1, [1, -1, 1], [1, 2], [1, 2, 3, 4], "abc", 1.5, True, {1, 2, 3}, [0.5, 1.5, 2.5],
     ["a", "b", "c"], [True, False, True], np.zeros((3, 2), int)],
    ids=str,
)  # fmt: skip
def test_seeds_that_are_none(seed: Any) -> None:
    with pytest.raises(UsageError, match="seed"):
        parse_seeds(seed, range(3), None)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("next_step", AutoresetMode.NEXT_STEP),
        ("same_step", AutoresetMode.SAME_STEP),
        ("disabled", AutoresetMode.DISABLED),
    ],
)
def test_modes(name: str, mode: AutoresetMode) -> None:
    assert parse_mode(name) is mode
    assert parse_mode(mode) is mode
