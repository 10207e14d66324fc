"""Stacks the observations of many requests into one input, and splits one output into answers."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from agym.errors import UsageError


def kind_of(observation: Any) -> Hashable:
    """Return the kind of an observation; observations of one kind can be stacked.

    For an array, the kind is its shape and library; for dicts and tuples, their structure with the
    kinds of their parts. All other objects, including text, are of one kind, and go into a list.
    """
    if isinstance(observation, np.ndarray):
        numeric = observation.dtype.kind in "biufc"
        library = "masked" if isinstance(observation, np.ma.MaskedArray) else "array"
        return library, observation.shape, None if numeric else observation.dtype
    if isinstance(observation, Mapping):
        return "dict", frozenset((key, kind_of(value)) for key, value in observation.items())
    if isinstance(observation, tuple):
        return ("tuple", *map(kind_of, observation))
    if _is_number(observation):
        return "array", (), None
    library = _namespace(observation)
    return "object" if library is None else (library.__name__, tuple(observation.shape))


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.number | np.bool_)


def stack(observations: Sequence[Any]) -> Any:
    """Stack observations of one kind: arrays with a new first axis, dicts of these, or lists."""
    first = observations[0]
    if isinstance(first, np.ma.MaskedArray):
        return np.ma.stack(observations)  # np.stack would lose the masks
    if isinstance(first, np.ndarray):
        return np.stack(observations)
    if isinstance(first, Mapping):
        return {key: stack([each[key] for each in observations]) for key in first}
    if isinstance(first, tuple):
        return _like(first, [stack(parts) for parts in zip(*observations, strict=True)])
    if _is_number(first):
        return np.asarray(observations)
    library = _namespace(first)
    return [*observations] if library is None else library.stack([*observations])


def split(output: Any, n: int) -> list[Any]:
    """Split an output into the answers to ``n`` observations.

    A list has one answer per observation, and an array one row, which is copied. A dict or a tuple
    is split part by part.

    Raises:
        UsageError: The output is none of these, or has the wrong length.
    """
    if isinstance(output, Mapping) and output:
        parts = [split(part, n) for part in output.values()]
        return [dict(zip(output, row, strict=True)) for row in zip(*parts, strict=True)]
    if isinstance(output, tuple) and output:
        return [
            _like(output, row) for row in zip(*(split(part, n) for part in output), strict=True)
        ]
    shape = getattr(output, "shape", None)
    if isinstance(output, Mapping | tuple | str | bytes) or not (
        isinstance(output, Sequence) or shape
    ):
        raise UsageError(
            f"it returned {type(output).__name__} for {n} observations: return an array or a list"
            " with a row per observation, or a dict or tuple of these"
        )
    if len(output) != n:
        raise UsageError(f"it returned {len(output)} answers to {n} observations")
    if shape:
        # A compiled function may write its next output into the same memory.
        copy = getattr(output, "clone", None) or getattr(output, "copy", None)
        output = output if copy is None else copy()
    return [*output]


def _namespace(value: Any) -> Any:
    """Return the library of an array that is not NumPy's; ``None`` for anything else."""
    if isinstance(value, np.generic):
        return None  # a text or time scalar; numbers were handled before
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch
    namespace = getattr(value, "__array_namespace__", None)
    return None if namespace is None else namespace()


def _like(example: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values as a tuple, or as a named tuple if the example is one."""
    make = getattr(example, "_make", tuple)
    result: tuple[Any, ...] = make(values)
    return result
