"""Values of all spaces are the same after the way through text and through binary frames."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given
from hypothesis import strategies as st

from agym.agents.openenv.frames import pack, unpack
from agym.agents.openenv.space_json import from_json, to_json
from agym.agents.openenv.wire import encode
from agym.errors import UsageError, UsageTypeError
from tests.support.spaces import fixed, seeds

parts = fixed()
nested = st.recursive(
    parts | st.builds(spaces.Text, st.integers(1, 9)),
    lambda inner: st.one_of(
        st.dictionaries(st.text(min_size=1, max_size=3), inner, min_size=1, max_size=3).map(
            spaces.Dict
        ),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.lists(inner, min_size=1, max_size=3).map(spaces.OneOf),
        inner.map(lambda space: spaces.Sequence(space)),
    ),
    max_leaves=5,
)


@given(nested, seeds)
def test_values_of_spaces_come_back(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    value = space.sample()
    framed = unpack(pack({"data": value}))["data"]
    said = from_json(space, json.loads(json.dumps(to_json(value))))
    assert data_equivalence(value, framed)
    assert space.contains(said)
    assert to_json(said) == to_json(value)


FLOATS = st.lists(st.floats(width=16), min_size=1, max_size=4)


@given(FLOATS, st.sampled_from([np.float16, np.float32, np.float64]))
def test_nan_and_infinity_come_back_where_a_space_has_floats(
    numbers: list[float], kind: Any
) -> None:
    value = np.array(numbers, kind)
    space = spaces.Box(-np.inf, np.inf, value.shape, kind)
    np.testing.assert_equal(from_json(space, strictly(json.dumps(to_json(value)))), value)


def strictly(text: str | bytes) -> Any:
    """Read JSON that any reader can read."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
    st.sampled_from([np.float32(0.1), np.int64(-3), np.bool_(True)]),
    st.sampled_from([np.zeros((2, 0)), np.arange(3)]),
)  # fmt: skip
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
        st.dictionaries(st.sampled_from(["$a", "$t", "$d", "$"]), inner, max_size=1),
    ),
    max_leaves=10,
)  # fmt: skip


@given(VALUES)
def test_any_message_is_json(value: Any) -> None:
    strictly(encode({"type": "step", "data": value}, binary=False))


@given(VALUES)
def test_any_value_comes_back_from_a_frame(value: Any) -> None:
    np.testing.assert_equal(unpack(pack(value)), value)


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_no_frame_does_anything_but_raise(noise: bytes, place: int, byte: int) -> None:
    frame = bytearray(pack({"type": "step", "data": (np.arange(6.0), b"abc", {"a": [1]})}))
    frame[place % len(frame)] = byte
    for each in (noise, bytes(frame), bytes(frame)[:place]):
        with contextlib.suppress(ValueError):
            unpack(each)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Discrete(3), 1.0), (spaces.Discrete(3), True), (spaces.Discrete(3), None),
        (spaces.Box(0, 1, (2,)), ["nan", "Infinity"]), (spaces.Box(0, 9, (1,), int), ["NaN"]),
        (spaces.Box(0, 1, (2,)), [1]), (spaces.Box(0, 1, (2,)), ["a", "b"]),
        (spaces.Box(0, 1, (2,)), [[1], [2, 3]]), (spaces.Box(0, 1, (2,)), {"a": 1}),
        (spaces.Box(0, 255, (1,), np.uint8), [256]), (spaces.Box(0, 255, (1,), np.uint8), [0.5]),
        (spaces.Box(0, 255, (1,), np.uint8), [10**30]), (spaces.Text(3), 3),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}), (spaces.Dict(a=spaces.Discrete(2)), 1),
        (spaces.Tuple([spaces.Discrete(2)]), [1, 1]), (spaces.OneOf([spaces.Discrete(2)]), [1, 0]),
        (spaces.Sequence(spaces.Discrete(2)), 3),
        (spaces.Graph(spaces.Discrete(2), None), {"nodes": [1]}),
    ],
)  # fmt: skip
def test_what_is_no_element_is_named(space: spaces.Space[Any], value: Any) -> None:
    with pytest.raises(UsageError, match="action"):
        from_json(space, value, "action")


def test_what_cannot_be_sent() -> None:
    with pytest.raises(UsageTypeError, match="object"):
        pack({"a": object()})
    with pytest.raises(UsageTypeError, match="object"):
        to_json(object())
