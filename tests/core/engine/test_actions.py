"""Actions are checked and written into their rows before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from agym.core.engine.batches.actions import write_actions
from agym.core.protocol.arguments import Ids
from agym.core.protocol.space_layout import Layout
from agym.errors import UsageError

N = 4
DISCRETE = spaces.Discrete(9)
BOX = spaces.Box(-1, 1, (2,), np.float32)
BOTH = spaces.Dict({"gear": DISCRETE, "force": BOX})
PAIR = spaces.Tuple((DISCRETE, spaces.Text(5)))


def write(space: Any, actions: Any, ids: Ids = range(N)) -> tuple[list[np.ndarray], Any]:
    """Write into a table full of 99, and give it with what has no fixed size."""
    layout = Layout(space)
    blocks = [
        np.full((N, *layout.leaves[i].shape), 99, layout.leaves[i].dtype) for i in layout.fixed
    ]
    return blocks, write_actions(layout, blocks, actions, ids)


@pytest.mark.parametrize(
    "actions",
    [
        [1, 2, 3, 4],
        (1, 2, 3, 4),
        np.array([1, 2, 3, 4]),
        np.array([1, 2, 3, 4], np.int8),
        np.array([1, 2, 3, 4], np.uint64),
        [np.int64(1), np.int32(2), 3, np.array(4)],
        range(1, 5),
        [True, 2, 3, 4],
    ],
    ids=str,
)
def test_forms_of_the_same_actions(actions: Any) -> None:
    (block,), rest = write(DISCRETE, actions)
    assert block.tolist() == [1, 2, 3, 4]
    assert rest is None


def test_anything_that_is_an_array() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.zeros((N, 2), np.float32)

        def __len__(self) -> int:
            return N

    (block,), _ = write(BOX, Tensor())
    assert block.tolist() == [[0, 0]] * N
    (block,), _ = write(BOX, [[0, 1]] * N)
    assert block.tolist() == [[0, 1]] * N


def test_some_rows() -> None:
    (block,), _ = write(DISCRETE, [5, 7], (1, 3))
    assert block.tolist() == [99, 5, 99, 7]
    (block,), _ = write(DISCRETE, np.array([5, 7]), range(2, 4))
    assert block.tolist() == [99, 99, 5, 7]


@pytest.mark.parametrize(
    "actions",
    [
        {"gear": [1, 2, 3, 4], "force": np.zeros((N, 2), np.float32)},
        {"gear": np.array([1, 2, 3, 4]), "force": [np.zeros(2, np.float32)] * N, "extra": 3},
        [{"gear": gear, "force": np.zeros(2, np.float32)} for gear in (1, 2, 3, 4)],
        tuple({"gear": gear, "force": [0, 0]} for gear in (1, 2, 3, 4)),
    ],
    ids=["batch", "batch-of-lists", "list", "tuple"],
)
def test_batches_and_lists_of_a_dict_space(actions: Any) -> None:
    blocks, rest = write(BOTH, actions)
    by_shape = {block.ndim: block.tolist() for block in blocks}
    assert by_shape == {1: [1, 2, 3, 4], 2: [[0, 0]] * N}
    assert rest is None


@pytest.mark.parametrize(
    "actions",
    [
        (np.array([1, 2, 3, 4]), ("a", "b", "c", "d")),
        ([1, 2, 3, 4], ["a", "b", "c", "d"]),
        [(1, "a"), (2, "b"), (3, "c"), (4, "d")],
        [[1, "a"], (2, "b"), [3, "c"], (4, "d")],
    ],
    ids=["batch", "batch-of-lists", "list", "list-of-lists"],
)
def test_batches_and_lists_of_a_tuple_space(actions: Any) -> None:
    (block,), rest = write(PAIR, actions)
    assert block.tolist() == [1, 2, 3, 4]
    assert rest == [["a"], ["b"], ["c"], ["d"]]


def test_values_are_copied() -> None:
    actions = np.zeros((N, 2), np.float32)
    (block,), _ = write(BOX, actions)
    actions[:] = 1
    assert not block.any()


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Box(-9, 9, (), np.float32), np.arange(N)),
        (spaces.Box(0, 255, (), np.uint8), np.array([0, 1, 254, 255])),
        (spaces.Box(-128, 127, (), np.int8), [-128, 0, 0, 127]),
        (spaces.MultiBinary(2), np.array([[True, False]] * N)),
    ],
)
def test_casts_that_lose_nothing_that_was_meant(space: Any, actions: Any) -> None:
    (block,), _ = write(space, actions)
    assert np.array_equal(block, np.asarray(actions).astype(space.dtype))


@pytest.mark.parametrize(
    ("wanted", "given"), [(np.float32, np.float64), (np.float64, np.float16)], ids=str
)
def test_floats_of_another_precision_are_handed_on(wanted: Any, given: Any) -> None:
    """As by Gymnasium's vector environments: rounded, they would lead to other trajectories."""
    actions = np.full((N, 2), 0.1, given)
    (block,), each = write(spaces.Box(-1, 1, (2,), wanted), actions)
    assert (block == 99).all()
    for (action,) in each:
        assert action.dtype == given
        assert np.array_equal(action, actions[0])


@pytest.mark.parametrize(
    ("space", "actions", "message"),
    [
        (DISCRETE, [1, 2, 3], "needs 4 actions"),
        (DISCRETE, [1, 2, 3, 4, 5], "got 5"),
        (DISCRETE, 1, "sequence|one per environment"),
        (DISCRETE, [1.0, 2, 3, 4], "float64 cannot be converted to int64"),
        (spaces.Box(0, 255, (), np.uint8), [0, 1, 2, 256], "cannot be converted to uint8"),
        (spaces.Box(0, 255, (), np.uint8), [0, -1, 2, 3], "cannot be converted to uint8"),
        (BOX, [[0, 0], [0, 0], [0], [0, 0]], r"environment 2 has shape \(1,\)"),
        (BOX, np.zeros((N, 3)), r"shape \(3,\), but its space requires \(2,\)"),
        (BOTH, [{"gear": 1}] * N, "environment 0 .*force"),
        (PAIR, [(1, "a"), (1, "b"), (1,), (1, "d")], "environment 2"),
        (PAIR, ([1, 2, 3, 4], ["a", "b"]), "needs 4 actions"),
    ],
)
def test_mistakes(space: Any, actions: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write(space, actions)


def test_a_mistake_in_one_leaf_writes_nothing() -> None:
    layout = Layout(BOTH)
    blocks = [
        np.full((N, *layout.leaves[i].shape), 99, layout.leaves[i].dtype) for i in layout.fixed
    ]
    with pytest.raises(UsageError):
        write_actions(layout, blocks, {"gear": [1, 2, 3, 4], "force": np.zeros((N, 3))}, range(N))
    with pytest.raises(UsageError):
        write_actions(layout, blocks, {"gear": [0.5] * N, "force": np.zeros((N, 2))}, range(N))
    assert all((block == 99).all() for block in blocks)


def test_tensors_that_cannot_become_arrays() -> None:
    class Elsewhere:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise RuntimeError("on another device")

        def __len__(self) -> int:
            return N

    with pytest.raises(UsageError, match="on another device"):
        write(BOX, Elsewhere())
