"""Rows are written exactly: no broadcasting, no unsafe cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agym.core.hosts.rows import write_rows
from tests.support.equality import same_array


@pytest.mark.parametrize(
    ("dtype", "rows"),
    [
        (np.int64, [1, np.int32(2), np.array(3)]),
        (np.int64, [True, False, True]),
        (np.float64, [1, 2.5, np.float32(0.5)]),
        (np.float32, [0.1, 0.2, 0.3]),
        (np.float32, [np.array(0.5), 0.25, np.float64(4)]),
        (np.float64, [[1, 2], [3, 4]]),
        (np.float64, [(1, 2), np.array([3, 4])]),
        (np.float64, [np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0])]),
        (np.float64, [np.array([1.0, 2.0]), np.array([3, 4])]),
        (np.float64, [np.arange(1, 5)[:2], np.arange(3, 7)[:2]]),
        (np.float64, [np.array([2.0, 1.0])[::-1], np.array([4.0, 3.0])[::-1]]),
    ],
    ids=str,
)
def test_rows_of_many_kinds(dtype: Any, rows: list[Any]) -> None:
    expected = np.stack([np.asarray(row).astype(dtype) for row in rows])
    block = np.zeros_like(expected)
    write_rows(block, rows)
    assert same_array(block, expected)


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
