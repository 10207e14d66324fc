"""Exact equality of what environments give and take: types, dtypes, shapes and values."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(a: Any, b: Any) -> bool:
    """Compare nested values exactly; NaN equals NaN."""
    if isinstance(a, np.ndarray | np.generic) or isinstance(b, np.ndarray | np.generic):
        return type(a) is type(b) and same_array(a, b)
    if isinstance(a, list) and isinstance(b, list):  # agym's lists are of a class of their own
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b) or (a != a and b != b)


def same_array(a: Any, b: Any) -> bool:
    """Compare arrays or scalars as arrays: dtype, shape, every bit that tells a value."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.hasobject:
        return all(same(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True))
    if a.dtype.char == "g":  # a long double is followed by bytes that may be anything
        signs = np.array_equal(np.signbit(a), np.signbit(b))
        return signs and np.array_equal(a, b, equal_nan=True)
    return a.tobytes() == b.tobytes()


def same_values(a: Any, b: Any) -> bool:
    """Compare like :func:`same`, except that a scalar may be Python's or NumPy's."""
    if isinstance(a, dict):
        return (
            isinstance(b, dict)
            and a.keys() == b.keys()
            and all(same_values(a[key], b[key]) for key in a)
        )
    if isinstance(a, list | tuple):
        return (
            isinstance(b, list | tuple)
            and len(a) == len(b)
            and all(same_values(x, y) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, np.ndarray | np.generic | int | float | bool):
        return same_array(a, b)
    return same(a, b)
