"""Copies of values that an environment returned and may later change."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

_FIXED = frozenset({bool, int, float, complex, str, bytes, type(None)})

# More deeply nested values may contain themselves.
_DEPTH = 16


def copy_info(info: dict[str, Any]) -> dict[str, Any]:
    """Copy an info with the containers and arrays in it; other objects are shared."""
    return {
        key: value if type(value) in _FIXED else copy_part(value, {}) for key, value in info.items()
    }


def copy_value(value: Any) -> Any:
    """Copy a value deeply; return it unchanged if it cannot be copied (a lock, for example)."""
    if type(value) is dict and _FIXED.issuperset(map(type, value.values())):
        return value.copy()  # such as an observation of text, in a fifth of the time
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def is_plain(value: Any, depth: int = _DEPTH) -> bool:
    """Return whether a value consists of Python's and NumPy's own types, so pickling is safe."""
    kind = type(value)
    if kind in _FIXED or isinstance(value, np.generic):
        return True
    if kind is np.ndarray:
        return not value.dtype.hasobject
    if kind not in (dict, list, tuple, set) or depth == 0:
        return False
    parts = [*value, *value.values()] if kind is dict else value
    return all(is_plain(part, depth - 1) for part in parts)


# The types of values in infos that are copied.
COPIED = frozenset({np.ndarray, dict, list, tuple, set})


def copy_part(value: Any, memo: dict[int, Any]) -> Any:
    """Copy a value in an info; ``memo`` has the copies so far by ``id``, empty at first."""
    kind = type(value)
    if kind not in COPIED:
        return value
    if kind is np.ndarray:
        return value.copy()
    if id(value) in memo:  # the value contains itself
        return memo[id(value)]
    if kind in (tuple, set):
        return kind(copy_part(part, memo) for part in value)
    copied: Any = kind()
    memo[id(value)] = copied
    if kind is dict:
        copied.update((key, copy_part(part, memo)) for key, part in value.items())
    else:
        copied.extend(copy_part(part, memo) for part in value)
    return copied
