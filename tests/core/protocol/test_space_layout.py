"""Spaces as flat leaves, and values to and from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from agym.core.protocol.space_layout import Layout
from tests.support.spaces import Space

NESTED = spaces.Dict(
    {
        "a": spaces.Box(-1, 1, (3,), np.float32),
        "b": spaces.Tuple((spaces.Discrete(5), spaces.Text(9), spaces.Box(0, 1, ()))),
    }
)


def test_leaves_of_a_nested_space() -> None:
    layout = Layout(NESTED)
    assert [leaf.path for leaf in layout.leaves] == ["['a']", "['b'][0]", "['b'][1]", "['b'][2]"]
    assert [leaf.dtype for leaf in layout.leaves] == [np.float32, np.int64, None, np.float32]
    assert [leaf.shape for leaf in layout.leaves] == [(3,), (), (), ()]
    assert layout.fixed == [0, 1, 3]
    assert layout.objects == [2]
    assert not layout.single


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (spaces.Box(0, 255, (2, 3), np.uint8), np.uint8, (2, 3)),
        (spaces.Box(0, 1, (0,), np.float64), np.float64, (0,)),
        (spaces.Discrete(3, start=-1), np.int64, ()),
        (spaces.MultiBinary((2, 2)), np.int8, (2, 2)),
        (spaces.MultiDiscrete([3, 4]), np.int64, (2,)),
        (spaces.Text(3), None, ()),
        (spaces.Sequence(spaces.Discrete(2)), None, ()),
        (spaces.Graph(spaces.Box(0, 1, (1,)), None), None, ()),
        (spaces.OneOf([spaces.Discrete(2)]), None, ()),
    ],
)
def test_a_leaf_by_itself(space: Space, dtype: Any, shape: tuple[int, ...]) -> None:
    layout = Layout(space)
    assert layout.single
    (leaf,) = layout.leaves
    assert (leaf.path, leaf.dtype, leaf.shape) == ("", dtype, shape)
    assert (layout.fixed, layout.objects) == (([], [0]) if dtype is None else ([0], []))
