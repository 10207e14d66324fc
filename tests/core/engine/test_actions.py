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
ZERO = np.zeros(2, np.float32)


def write(space: Any, actions: Any, ids: Ids = range(N)) -> tuple[list[Any], Any]:
    """Write into a table full of 99; return it, and the leaves without a fixed size."""
    layout = Layout(space)
    leaves = [layout.leaves[i] for i in layout.fixed]
    blocks = [np.full((N, *leaf.shape), 99, leaf.dtype) for leaf in leaves]
    try:
        return blocks, write_actions(layout, blocks, actions, ids)
    except UsageError:
        assert all((block == 99).all() for block in blocks)
        raise


class Tensor:
    """Becomes an array, or raises an exception instead."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def __len__(self) -> int:
        return N


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (DISCRETE, [1, 2, 3, 4]),
        (DISCRETE, (1, 2, 3, 4)),
        (DISCRETE, np.array([1, 2, 3, 4], np.int8)),
        (DISCRETE, np.array([1, 2, 3, 4], np.uint64)),
        (DISCRETE, [np.int64(1), np.int32(2), 3, np.array(4)]),
        (DISCRETE, range(1, 5)),
        (DISCRETE, [True, 2, 3, 4]),
        (BOTH, {"gear": [1, 2, 3, 4], "force": np.zeros((N, 2), np.float32)}),
        (BOTH, {"gear": np.array([1, 2, 3, 4]), "force": [ZERO] * N, "extra": 3}),
        (BOTH, [{"gear": gear, "force": ZERO} for gear in (1, 2, 3, 4)]),
        (BOTH, tuple({"gear": gear, "force": [0, 0]} for gear in (1, 2, 3, 4))),
        (PAIR, (np.array([1, 2, 3, 4]), ("a", "b", "c", "d"))),
        (PAIR, ([1, 2, 3, 4], ["a", "b", "c", "d"])),
        (PAIR, [(1, "a"), (2, "b"), (3, "c"), (4, "d")]),
        (PAIR, [[1, "a"], (2, "b"), [3, "c"], (4, "d")]),
    ],
    ids=str,
)
def test_actions_have_many_forms(space: Any, actions: Any) -> None:
    """A batch, or a list with an action for each environment."""
    blocks, rest = write(space, actions)
    by_shape = {block.ndim: block.tolist() for block in blocks}
    assert by_shape.pop(1) == [1, 2, 3, 4]
    assert by_shape == ({2: [[0, 0]] * N} if space is BOTH else {})
    assert rest == ([["a"], ["b"], ["c"], ["d"]] if space is PAIR else None)


@pytest.mark.parametrize("actions", [Tensor(np.zeros((N, 2), np.float32)), [[0, 0]] * N])
def test_anything_becomes_an_array(actions: Any) -> None:
    assert write(BOX, actions)[0][0].tolist() == [[0, 0]] * N


@pytest.mark.parametrize(
    ("actions", "ids", "expected"),
    [
        ([5, 7], (1, 3), [99, 5, 99, 7]),
        (np.array([5, 7]), range(2, 4), [99, 99, 5, 7]),
    ],
)
def test_only_the_rows_of_the_ids_are_written(actions: Any, ids: Any, expected: Any) -> None:
    assert write(DISCRETE, actions, ids)[0][0].tolist() == expected


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
def test_casts_that_lose_nothing_are_permitted(space: Any, actions: Any) -> None:
    (block,), _ = write(space, actions)
    assert np.array_equal(block, np.asarray(actions).astype(space.dtype))


@pytest.mark.parametrize(
    ("wanted", "given"), [(np.float32, np.float64), (np.float64, np.float16)], ids=str
)
def test_floats_of_another_precision_are_passed_on(wanted: Any, given: Any) -> None:
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
        (BOX, Tensor(RuntimeError("on another device")), "on another device"),
        (BOTH, [{"gear": 1}] * N, "environment 0 .*force"),
        (BOTH, {"gear": [1, 2, 3, 4], "force": np.zeros((N, 3))}, "shape"),
        (BOTH, {"gear": [0.5] * N, "force": np.zeros((N, 2))}, "cannot be converted"),
        (PAIR, [(1, "a"), (1, "b"), (1,), (1, "d")], "environment 2"),
        (PAIR, ([1, 2, 3, 4], ["a", "b"]), "needs 4 actions"),
    ],
)
def test_bad_actions_are_refused_before_any_is_written(
    space: Any, actions: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write(space, actions)
