"""Copies of what an environment returns, which it may go on to change."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

_FIXED = frozenset({bool, int, float, complex, str, bytes, type(None)})


def own_info(info: dict[str, Any]) -> dict[str, Any]:
    """Copy an info with the containers and arrays in it; other objects are passed on."""
    return {key: value if type(value) in _FIXED else _own(value, {}) for key, value in info.items()}


def own(value: Any) -> Any:
    """Copy a value with all that is in it, where that can be done: a lock cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def _own(value: Any, memo: dict[int, Any]) -> Any:
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
        copied.update((key, _own(part, memo)) for key, part in value.items())
        return copied
    if kind is list:
        parts: list[Any] = []
        memo[id(value)] = parts
        parts.extend(_own(part, memo) for part in value)
        return parts
    return kind(_own(part, memo) for part in value)
