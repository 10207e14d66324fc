"""Spaces for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from hypothesis import strategies as st


def boxes() -> st.SearchStrategy[Space[Any]]:
    """Return a strategy for boxes of up to three dimensions, with the usual dtypes."""
    shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)

    def box(shape: tuple[int, ...], dtype: Any, bounded: bool) -> Space[Any]:
        if np.issubdtype(dtype, np.floating) and not bounded:
            return spaces.Box(-np.inf, np.inf, shape, dtype)
        return spaces.Box(0, 100, shape, dtype)

    dtypes = st.sampled_from([np.float32, np.float64, np.uint8, np.int64, np.int16])
    return st.builds(box, shapes, dtypes, st.booleans())


def simple_spaces() -> st.SearchStrategy[Space[Any]]:
    """Return a strategy for spaces that are not nested, with and without a fixed size."""
    counts = st.integers(1, 5)
    return st.one_of(
        boxes(),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), counts, st.integers(-5, 5)),
        st.builds(spaces.MultiBinary, counts),
        st.builds(spaces.MultiDiscrete, st.lists(counts, min_size=1, max_size=3)),
        st.builds(spaces.Text, st.integers(1, 8)),
        st.just(spaces.Sequence(spaces.Box(0, 1, (2,)))),
        st.just(spaces.OneOf([spaces.Discrete(3), spaces.Box(0, 1, (2,))])),
    )


def any_spaces() -> st.SearchStrategy[Space[Any]]:
    """Return a strategy for all spaces, including nested ones."""

    def nest(children: st.SearchStrategy[Space[Any]]) -> st.SearchStrategy[Space[Any]]:
        some = st.lists(children, min_size=1, max_size=3)
        named = some.map(lambda parts: spaces.Dict({f"key{i}": p for i, p in enumerate(parts)}))
        return st.one_of(some.map(spaces.Tuple), named)

    return st.recursive(simple_spaces(), nest, max_leaves=5)
