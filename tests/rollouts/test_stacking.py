"""What is stacked, and what is not; rows come back as they were."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.rollouts.stacking import kind_of, split, stack
from agym.testing import assert_same
from tests.support.patience import patience


async def test_masks_are_stacked_with_their_arrays() -> None:
    async with agym.batched(lambda arrays: arrays * 2, max_batch=2) as policy:
        masked = np.ma.masked_array([1, 2], mask=[True, False])
        plain = np.array([1, 2])
        a, b, c = await asyncio.gather(policy(masked), policy(masked), policy(plain))
    assert [a.mask.tolist(), b.mask.tolist()] == [[True, False]] * 2
    assert not isinstance(c, np.ma.MaskedArray)


async def test_what_cannot_be_stacked_goes_by_itself() -> None:
    sizes = []

    def count(observations: Any) -> Any:
        sizes.append(len(observations["a"] if isinstance(observations, dict) else observations))
        return observations

    asked: list[Any] = [
        np.zeros(3), np.zeros(4), "text", np.str_("other"), {"a": 1.0, "b": 2}, {"b": 3, "a": 4.0},
        7, np.int64(8), np.array(9), np.ones(3, np.float32),
    ]  # fmt: skip
    async with agym.batched(count, max_wait=3600.0) as policy:
        answers = await asyncio.wait_for(
            asyncio.gather(*(policy(each) for each in asked)), patience(10)
        )
    assert sorted(sizes) == [1, 2, 2, 2, 3]
    for question, answer in zip(asked, answers, strict=True):
        assert np.all(question == answer) if not isinstance(question, dict) else question == answer


class Pair(NamedTuple):
    left: Any
    right: Any


leaves = st.one_of(
    st.integers(-9, 9).map(np.int64),
    st.text(max_size=3),
    st.integers(0, 3).map(lambda n: np.arange(n, dtype=np.float32)),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=5,
)


@given(tree=trees, n=st.integers(1, 5))
def test_what_is_stacked_and_split_is_what_it_was(tree: Any, n: int) -> None:
    rows = [*split(stack([tree] * n), n)]
    assert len(rows) == n
    for row in rows:
        assert kind_of(row) == kind_of(tree)
        assert_same(row, tree)
