"""What an environment returns, which it may go on to change: copies, and what can be sent."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

_FIXED = frozenset({bool, int, float, complex, str, bytes, type(None)})

# What is nested deeper than this may contain itself.
_DEPTH = 16


def copy_info(info: dict[str, Any]) -> dict[str, Any]:
    """Copy an info with the containers and arrays in it; other objects are passed on."""
    return {
        key: value if type(value) in _FIXED else _copy(value, {}) for key, value in info.items()
    }


def copy_value(value: Any) -> Any:
    """Copy a value with all that is in it, where that can be done: a lock cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def is_plain(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a value is sure to survive the way: data of Python's and NumPy's own types."""
    kind = type(value)
    if kind in _FIXED or isinstance(value, np.generic):
        return True
    if kind is np.ndarray:
        return not value.dtype.hasobject
    if kind not in (dict, list, tuple, set) or depth == 0:
        return False
    parts = [*value, *value.values()] if kind is dict else value
    return all(is_plain(part, depth - 1) for part in parts)


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is np.ndarray:
        return value.copy()
    if kind not in (dict, list, tuple, set):
        return value
    if id(value) in memo:  # it contains itself
        return memo[id(value)]
    if kind is dict:
        copied: dict[Any, Any] = {}
        memo[id(value)] = copied
        copied.update((key, _copy(part, memo)) for key, part in value.items())
        return copied
    if kind is list:
        parts: list[Any] = []
        memo[id(value)] = parts
        parts.extend(_copy(part, memo) for part in value)
        return parts
    return kind(_copy(part, memo) for part in value)
