"""Stacks the observations of many askers into one input, and splits one output into answers."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agym.errors import UsageError


def kind_of(observation: Any) -> Hashable:
    """Return what observations must have in common to be stacked.

    It is the shape of an array, with the structure of dicts and tuples around it. All other
    objects, text among them, go into a list, and have nothing in common.
    """
    if isinstance(observation, np.ndarray):
        return tuple(observation.shape)
    if isinstance(observation, Mapping):
        return tuple((key, kind_of(value)) for key, value in observation.items())
    if isinstance(observation, tuple):
        return ("tuple", *map(kind_of, observation))
    if isinstance(observation, bool | int | float | np.generic):
        return ()
    return "object" if _namespace(observation) is None else tuple(observation.shape)


def describe(kind: Hashable) -> str:
    """Name a kind in an error."""
    if not isinstance(kind, tuple):
        return "text or another object"
    if kind and kind[0] == "tuple":
        return "a tuple of " + ", ".join(map(describe, kind[1:]))
    if kind and isinstance(kind[0], tuple):
        return "a dict of " + ", ".join(f"{key}: {describe(part)}" for key, part in kind)
    return f"an array of shape {kind}" if kind else "a number"


def stack(observations: Sequence[Any]) -> Any:
    """Stack observations of one kind: arrays with a new first axis, dicts of these, or lists."""
    first = observations[0]
    if isinstance(first, np.ndarray):
        return np.stack(observations)
    if isinstance(first, Mapping):
        return {key: stack([each[key] for each in observations]) for key in first}
    if isinstance(first, tuple):
        return _like(first, [stack(parts) for parts in zip(*observations, strict=True)])
    if isinstance(first, bool | int | float | np.generic):
        return np.asarray(observations)
    library = _namespace(first)
    return [*observations] if library is None else library.stack([*observations])


def split(output: Any, n: int) -> Iterator[Any]:
    """Split an output into the answers to ``n`` observations.

    A list has an answer each, an array a row each, which is a copy; a dict or a tuple is split part
    by part.

    Raises:
        UsageError: It is none of these, or has another length.
    """
    if isinstance(output, Mapping):
        parts = [split(part, n) for part in output.values()]
        return (dict(zip(output, row, strict=True)) for row in zip(*parts, strict=True))
    if isinstance(output, tuple):
        rows = zip(*(split(part, n) for part in output), strict=True)
        return (_like(output, row) for row in rows)
    shape = getattr(output, "shape", None)
    if isinstance(output, str) or not (isinstance(output, Sequence) or shape):
        raise UsageError(
            f"it returned {type(output).__name__} for {n} observations: return an array with a row"
            " for each, a list, or a dict or tuple of these"
        )
    if len(output) != n:
        raise UsageError(f"it returned {len(output)} answers to {n} observations")
    if shape:
        # A compiled function may write its next output into the same memory.
        copy = getattr(output, "clone", None) or getattr(output, "copy", None)
        output = output if copy is None else copy()
    return iter(output)


def _namespace(value: Any) -> Any:
    """Return the library of an array that is not NumPy's, if it is one."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch
    namespace = getattr(value, "__array_namespace__", None)
    return None if namespace is None else namespace()


def _like(example: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return a tuple, of the same class if it is a named one."""
    make = getattr(example, "_make", tuple)
    made: tuple[Any, ...] = make(values)
    return made
