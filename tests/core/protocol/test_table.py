"""Rows are written exactly: no broadcasting, no unsafe cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from agym.core.hosts.rows import write_rows
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.table import PLANES, SlotTable
from tests.support.equality import same_array
from tests.support.spaces import FLOATS, SHAPES, SIGNED, UNSIGNED


@given(
    dtype=st.sampled_from(FLOATS + SIGNED + UNSIGNED),
    shape=st.sampled_from(SHAPES),
    count=st.integers(1, 4),
    data=st.data(),
)
def test_rows_come_out_as_they_went_in(
    dtype: Any, shape: tuple[int, ...], count: int, data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    rows = [random.integers(0, 100, shape).astype(dtype) for _ in range(count)]
    block = np.zeros((count, *shape), dtype)
    write_rows(block, rows)
    assert all(same_array(block[k], row) for k, row in enumerate(rows))


@pytest.mark.parametrize(
    ("dtype", "rows"),
    [
        (np.int64, [1, 2, 3]),
        (np.int64, [1, np.int32(2), np.array(3)]),
        (np.int64, [True, False, True]),
        (np.float64, [1, 2.5, np.float32(0.5)]),
        (np.float32, [0.1, 0.2, 0.3]),
        (np.float32, [np.array(0.5), 0.25, np.float64(4)]),
    ],
)
def test_scalars(dtype: Any, rows: list[Any]) -> None:
    block = np.zeros(3, dtype)
    write_rows(block, rows)
    assert block.tolist() == [np.asarray(row).astype(dtype).item() for row in rows]


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2], [3, 4]],
        [(1, 2), np.array([3, 4])],
        [np.array([1, 2]), [3, 4]],
        [np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0])],
        [np.array([1.0, 2.0]), np.array([3, 4])],
        [np.arange(1, 5)[:2], np.arange(3, 7)[:2]],
        [np.array([2.0, 1.0])[::-1], np.array([4.0, 3.0])[::-1]],
    ],
    ids=str,
)
def test_rows_of_many_kinds(rows: list[Any]) -> None:
    block = np.zeros((2, 2), np.float64)
    write_rows(block, rows)
    assert block.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("block", "rows", "error"),
    [
        (np.zeros((2, 3)), [np.zeros(1), np.zeros(1)], ValueError),
        (np.zeros((2, 3)), [np.zeros(3), np.zeros(1)], ValueError),
        (np.zeros((2, 3)), [np.zeros((1, 3)), np.zeros((1, 3))], ValueError),
        (np.zeros((2, 3)), [0.0, 0.0], ValueError),
        (np.zeros((1, 3)), [np.zeros((3, 1))], ValueError),
        (np.zeros((2, 3), np.uint8), [np.zeros(3, np.uint8), np.zeros(1, np.uint8)], ValueError),
        (np.zeros((2, 3), np.uint8), [np.zeros(3), np.zeros(3)], TypeError),
        (np.zeros((2, 3), np.uint8), [np.full(3, -1)] * 2, TypeError),
        (np.zeros((2, 3), np.int64), [np.zeros(3, np.int64), np.zeros(3)], TypeError),
        (np.zeros((2, 3), np.float32), [np.zeros(3, complex)] * 2, TypeError),
        (np.zeros(2), [np.zeros(1), np.zeros(1)], ValueError),
        (np.zeros(2), [None, 1.0], TypeError),
        (np.zeros(2), ["1", "2"], TypeError),
        (np.zeros(2, np.int64), [0.5, 1], TypeError),
        (np.zeros((2, 1)), [1.0, 2.0], ValueError),
    ],
)
def test_rows_that_do_not_fit(block: Any, rows: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        write_rows(block, rows)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_table_of_both_sides(final: bool, shared: bool) -> None:
    observation = Layout(spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Text(3)))
    action = Layout(spaces.Discrete(3))
    table = SlotTable(observation, action, 3, final=final, shared=shared)
    assert [block.shape for block in table.actions] == [(3,)]
    assert len(table.planes) == PLANES
    for plane in table.planes.values():
        assert [block.shape for block in plane.observations] == [(3, 2)]
        assert [block.shape for block in plane.final] == ([(3, 2)] if final else [])
        assert (plane.rewards.dtype, plane.rewards.shape) == (np.float64, (3,))
        assert (plane.terminated.dtype, plane.truncated.dtype) == (np.bool_, np.bool_)
    if shared:
        other = SlotTable(observation, action, 3, final=final, descriptor=table.arena.descriptor)
        other.planes[1].observations[0][2] = 0.5
        other.planes[0].rewards[1] = 7
        assert table.planes[1].observations[0].tolist() == [[0, 0], [0, 0], [0.5, 0.5]]
        assert table.planes[0].rewards.tolist() == [0, 7, 0]
    table.arena.close()


def test_views_of_some_rows() -> None:
    layout = Layout(spaces.Box(0, 1, (2,)))
    table = SlotTable(layout, Layout(spaces.Discrete(3)), 4, final=True)
    rows = table.planes[0].at(slice(1, 3))
    rows.observations[0][:] = 1
    rows.final[0][:] = 2
    rows.rewards[:] = 3
    rows.terminated[:] = True
    plane = table.planes[0]
    assert plane.observations[0][:, 0].tolist() == [0, 1, 1, 0]
    assert plane.final[0][:, 0].tolist() == [0, 2, 2, 0]
    assert plane.rewards.tolist() == [0, 3, 3, 0]
    assert plane.terminated.tolist() == [False, True, True, False]
    assert not plane.truncated.any()


def test_batches_nest_as_their_space_does() -> None:
    layout = Layout(spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Text(3)))
    table = SlotTable(layout, Layout(spaces.Discrete(3)), 2, final=False)
    batch = table.nest([np.ones((2, 2))], [["x"], ["y"]])
    assert batch["b"] == ("x", "y")
    assert batch["a"].tolist() == [[1, 1], [1, 1]]
