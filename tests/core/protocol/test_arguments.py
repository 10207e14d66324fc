"""Env ids as contiguous ranges; which ids and seeds are refused is a law."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agym.core.protocol.arguments import parse_env_ids, runs


@given(st.sets(st.integers(0, 30), min_size=1))
def test_runs_cover_the_ids_in_order(ids: set[int]) -> None:
    parsed = parse_env_ids(sorted(ids), 31)
    split = list(runs(parsed))
    assert [i for piece in split for i in piece] == sorted(ids)
    assert all(a.stop < b.start for a, b in pairwise(split))
