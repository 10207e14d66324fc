"""Hypothesis strategies: spaces of every kind, nested, and seeds to sample them with."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from tests.support.envs.plain_envs import Letters

Space = spaces.Space[Any]

FLOATS = (np.float16, np.float32, np.float64)
SIGNED = (np.int8, np.int16, np.int32, np.int64)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
SHAPES = ((), (0,), (1,), (3,), (2, 3), (2, 0, 3), (1, 1, 1))

seeds = st.integers(0, 2**31 - 1)


def boxes() -> st.SearchStrategy[Space]:
    """Box of every numeric dtype; shapes without an axis and without an entry too."""
    shapes = st.sampled_from(SHAPES)
    signed = st.builds(
        lambda dtype, shape: spaces.Box(-100, 100, shape, dtype),
        st.sampled_from(FLOATS + SIGNED),
        shapes,
    )
    unsigned = st.builds(
        lambda dtype, shape: spaces.Box(0, 200, shape, dtype), st.sampled_from(UNSIGNED), shapes
    )
    unbounded = st.builds(
        lambda dtype, shape: spaces.Box(-np.inf, np.inf, shape, dtype),
        st.sampled_from(FLOATS),
        shapes,
    )
    return signed | unsigned | unbounded


def fixed() -> st.SearchStrategy[Space]:
    """Spaces whose values have a fixed size."""
    discrete = st.builds(
        lambda n, start: spaces.Discrete(n, start=start),
        st.integers(1, 50),
        st.integers(-(2**40), 2**40),
    )
    sides = st.lists(st.integers(1, 9), min_size=1, max_size=3)
    return st.one_of(
        boxes(),
        discrete,
        st.builds(spaces.MultiBinary, st.integers(1, 5) | sides),
        st.builds(spaces.MultiDiscrete, sides),
        st.builds(lambda n: spaces.MultiDiscrete([[n, 2], [3, n]]), st.integers(1, 5)),
    )


def objects() -> st.SearchStrategy[Space]:
    """Spaces whose values have no fixed size, and one of one's own."""
    part = st.one_of(boxes(), st.builds(spaces.Discrete, st.integers(1, 9)))
    node = st.builds(lambda k: spaces.Box(-1, 1, (k,)), st.integers(1, 3))
    return st.one_of(
        st.builds(lambda n: spaces.Text(n, min_length=0), st.integers(1, 12)),
        st.builds(lambda space, stack: spaces.Sequence(space, stack=stack), part, st.booleans()),
        st.builds(spaces.Graph, node, st.none() | st.just(spaces.Discrete(3))),
        st.builds(spaces.OneOf, st.lists(part, min_size=1, max_size=3)),
        st.builds(Letters, st.sampled_from("abc")),
    )


def any_space() -> st.SearchStrategy[Space]:
    """Spaces of every kind, nested."""
    keys = st.text(min_size=1, max_size=4)

    def nest(children: st.SearchStrategy[Space]) -> st.SearchStrategy[Space]:
        return st.one_of(
            st.builds(spaces.Dict, st.dictionaries(keys, children, max_size=3)),
            st.builds(spaces.Tuple, st.lists(children, max_size=3).map(tuple)),
        )

    return st.recursive(fixed() | objects(), nest, max_leaves=5)


def samples(space: Space, seed: int, count: int) -> list[Any]:
    """Draw values from a space."""
    space.seed(seed)
    return [space.sample() for _ in range(count)]
