"""Spaces within a JSON schema: they come back, and wrong ones are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from hypothesis import example, given

from agym.agents.openenv.space_schema import build_space, describe_space
from agym.core.hosts.async_env import AnySpace
from tests.support.core_selection import examples
from tests.support.spaces import any_space


def sent(space: Space[Any]) -> Space[Any]:
    return build_space(json.loads(json.dumps(describe_space(space))))


@given(any_space().filter(lambda space: "Letters" not in repr(space)))
@example(spaces.Box(np.array([0.0, -np.inf]), np.array([2.0, 3.0]), dtype=np.float64))
@example(spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 0]]))
@example(spaces.Text(5, charset="ab"))
@example(AnySpace())
@examples(100)
def test_any_space_comes_back(space: Space[Any]) -> None:
    assert sent(space) == space


def test_an_unknown_space_is_that_of_all_objects() -> None:
    class Mine(spaces.Discrete):
        pass

    class Other(Space[Any]):
        pass

    assert describe_space(Other()) is None
    assert describe_space(spaces.Tuple([Other()])) is None
    assert isinstance(sent(Mine(3)), AnySpace)


@pytest.mark.parametrize(
    "said",
    [
        3, [], {}, "Box", {"Box": 3}, {"Box": {}}, {"Eval": {"code": "1"}},
        {"Discrete": {"n": 0, "start": 0, "dtype": "int64"}},
        {"Discrete": {"n": 3, "start": 0, "dtype": "object"}},
        {"Discrete": {"n": "x", "start": 0, "dtype": "int64"}},
        {"Box": {"shape": [10**12], "dtype": "uint8", "low": 0, "high": 1}},
        {"Box": {"shape": [-1], "dtype": "uint8", "low": 0, "high": 1}},
        {"Box": {"shape": [2], "dtype": "object", "low": 0, "high": 1}},
        {"Box": {"shape": [2], "dtype": "uint8", "low": [0], "high": 1}},
        {"Tuple": {"spaces": [3]}}, {"Dict": {"spaces": {"a": 1}}}, {"a": {}, "b": {}},
    ],
)  # fmt: skip
def test_what_describes_no_space(said: Any) -> None:
    with pytest.raises(ValueError, match=r"space|shape|dtype|invalid|values|positive"):
        build_space(said)


def test_what_is_nested_too_deeply() -> None:
    said: Any = describe_space(spaces.Discrete(2))
    for _ in range(40):
        said = {"Tuple": {"spaces": [said]}}
    with pytest.raises(ValueError, match="nested too deeply"):
        build_space(said)
