"""Exact equality of what environments give and take: types, dtypes, shapes and values."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np


def same(a: Any, b: Any, *, types: bool = True) -> bool:
    """Compare nested values exactly; NaN equals NaN.

    Args:
        a: A value.
        b: The other.
        types: Whether a list differs from a tuple, and a scalar of Python's from one of NumPy's.
    """
    both_lists = isinstance(a, list) and isinstance(b, list)  # agym's are of a class of their own
    if types and not both_lists and type(a) is not type(b):
        return False
    compare = partial(same, types=types)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(compare(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(compare, a, b))
    if isinstance(a, np.ndarray | np.generic) or (not types and isinstance(a, int | float)):
        return same_array(a, b)
    return type(a) is type(b) and (bool(a == b) or (a != a and b != b))


same_values = partial(same, types=False)


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
