"""A Gymnasium space as a flat list of leaves, and conversions of values to and from that list.

A leaf with a fixed dtype and shape (Box, Discrete, MultiBinary, MultiDiscrete) becomes an array of
the slot table. Any other leaf (Text, Sequence, Graph, OneOf, custom spaces) is an *object leaf*,
whose values travel as Python objects. Dict and Tuple only nest::

    Dict(a=Box(3), b=Tuple(Discrete(5), Text(9)))   ->   a: float32[3]   b[0]: int64   b[1]: object
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces

FIXED = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


@dataclass(frozen=True)
class Leaf:
    """One flat component of a space.

    Attributes:
        path: Its path in the nested value, as an index expression: ``['a'][0]``.
        dtype: Its NumPy dtype, ``None`` for an object leaf.
        shape: Its shape for one environment, ``()`` for an object leaf.
        zero_dim: Its values are zero-dimensional arrays (a Box of shape ``()``). Iterating over a
            batch would turn them into scalars.
    """

    path: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] = ()
    zero_dim: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of one value, 0 for an object leaf."""
        return 0 if self.dtype is None else self.dtype.itemsize * math.prod(self.shape)

    def preserves(self, value: Any) -> bool:
        """Return whether a value comes back from an array of this leaf with the same type."""
        if self.dtype is None:
            return True
        if self.shape or self.zero_dim:
            return type(value) is np.ndarray and value.dtype == self.dtype
        return type(value) is self.dtype.type

    def split(self, batch: Any) -> list[Any]:
        """Split a batch of this leaf into one value per environment."""
        return [batch[i, ...] for i in range(len(batch))] if self.zero_dim else list(batch)


class Layout:
    """The flat layout of one space's values.

    Attributes:
        fixed: Positions of the leaves that have an array in the slot table.
        objects: Positions of the object leaves.
        single: The space itself is a leaf.
        flatten: Lists the leaves of one environment's value, or of a batch of arrays. Raises a
            ``KeyError`` if a key of a Dict space is missing, and a ``ValueError`` if a tuple does
            not have the length of its space.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space = space
        self.leaves = tuple(_walk(space, ""))
        self.fixed = [i for i, leaf in enumerate(self.leaves) if leaf.dtype is not None]
        self.objects = [i for i, leaf in enumerate(self.leaves) if leaf.dtype is None]
        # The position of each leaf in a list of the fixed leaves followed by the object leaves.
        self._order = np.argsort([*self.fixed, *self.objects]).tolist()
        self.single = not isinstance(space, spaces.Dict | spaces.Tuple)
        self.flatten, self._nest = _flattener(space), _nester(space)

    # Nested functions cannot be pickled.
    def __reduce__(self) -> tuple[type[Layout], tuple[Space[Any]]]:
        return Layout, (self.space,)

    def misfit(self, value: Any) -> str:
        """Describe the first part of a value that does not fit the space; empty if all parts do."""
        return next(_misfits(self.space, value, ""), "")

    def unflatten(self, leaf_values: Sequence[Any]) -> Any:
        """Nest leaf values like the space."""
        return leaf_values[0] if self.single else self._nest(iter(leaf_values))

    def join(self, fixed: Sequence[Any], objects: Sequence[Any]) -> Any:
        """Nest values of the fixed leaves and of the object leaves, each in order."""
        return self.unflatten(self._merge(fixed, objects))

    def _merge(self, fixed: Sequence[Any], objects: Sequence[Any]) -> Sequence[Any]:
        if not self.objects:
            return fixed
        values = [*fixed, *objects]
        return [values[k] for k in self._order]

    def preserves(self, value: Any) -> bool:
        """Return whether a value comes back from arrays with the same types of leaves."""
        values = self.flatten(value)
        return all(leaf.preserves(part) for leaf, part in zip(self.leaves, values, strict=True))

    def cut(
        self, columns: Sequence[Any], objects: Sequence[Sequence[Any]], count: int
    ) -> list[Any]:
        """Split a batch of each fixed leaf, and the object leaves, into ``count`` values."""
        return self._split(self._merge(columns, [*zip(*objects, strict=True)]), count)

    def batch(self, values: Sequence[Any], *, cast: bool = False) -> Any:
        """Batch one value per environment: nested arrays, tuples for object leaves.

        With ``cast``, arrays have the dtypes of the space, whatever the types of the values.
        """
        columns = zip(*map(self.flatten, values), strict=True)
        leaves = zip(self.leaves, columns, strict=True)
        return self.unflatten([
            column if leaf.dtype is None else np.asarray(column, leaf.dtype if cast else None)
            for leaf, column in leaves
        ])  # fmt: skip

    def rows(self, batch: Any, count: int) -> list[Any]:
        """Split a batch (nested arrays, tuples for object leaves) into ``count`` values."""
        if self.single:  # the usual case, in two thirds of the time
            return self.leaves[0].split(batch)
        return self._split(self.flatten(batch), count)

    def _split(self, columns: Sequence[Any], count: int) -> list[Any]:
        if self.single:
            return self.leaves[0].split(columns[0])
        split = [leaf.split(batch) for leaf, batch in zip(self.leaves, columns, strict=True)]
        rows = zip(*split, strict=True) if split else [()] * count
        return [self.unflatten(row) for row in rows]


def _walk(space: Space[Any], path: str) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, child in _children(space).items():
            yield from _walk(child, f"{path}[{key!r}]")
    elif isinstance(space, FIXED) and not np.dtype(space.dtype).hasobject:
        shape = tuple(space.shape or ())
        zero_dim = shape == () and isinstance(space, spaces.Box)
        yield Leaf(path, np.dtype(space.dtype), shape, zero_dim)
    else:
        yield Leaf(path, None)


def _children(space: Any) -> dict[Any, Space[Any]]:
    """Return the spaces that a Dict or a Tuple nests, by key or index."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))


def _flattener(space: Space[Any]) -> Callable[[Any], list[Any]]:
    """Make the function that flattens values of a space, so that no step walks the space."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return lambda value: [value]
    children = _children(space)
    keys = [*children]
    deep = any(isinstance(child, spaces.Dict | spaces.Tuple) for child in children.values())
    parts = [(key, _flattener(child)) for key, child in children.items()]
    is_tuple = isinstance(space, spaces.Tuple)

    def flatten(value: Any) -> list[Any]:
        if is_tuple and len(value) != len(keys):
            raise ValueError(f"a tuple of {len(value)} where the space has {len(keys)}")
        if deep:
            return [leaf for key, part in parts for leaf in part(value[key])]
        return [*value] if is_tuple else [value[key] for key in keys]

    return flatten


def _misfits(space: Space[Any], value: Any, path: str) -> Iterator[str]:
    """Describe each part that does not fit, as deep as the value is nested."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        children = _children(space)
        parts = ", ".join(map(repr, children))
        wanted = f"where the space has a {type(space).__name__} of {parts}"
    elif isinstance(space, FIXED):
        children = {}
        wanted = f"where the space has {space.dtype} of shape {space.shape}"
    else:
        return  # any object fits
    if value is None:
        yield f"{path} is None {wanted}"
        return
    try:
        if isinstance(space, spaces.Tuple) and len(value) != len(children):
            yield f"{path} has {len(value)} parts {wanted}"
        present = {}
        for key in children:
            with suppress(KeyError):
                present[key] = value[key]
        array = None if children else np.asarray(value)
    except Exception:
        yield f"{path} is of type {type(value).__name__} {wanted}"
        return
    for key, child in children.items():
        if key in present:
            yield from _misfits(child, present[key], f"{path}[{key!r}]")
        else:
            yield f"{path}[{key!r}] is missing {wanted}"
    if array is not None and not np.can_cast(array.dtype, np.dtype(space.dtype), "same_kind"):
        yield f"{path} has dtype {array.dtype} {wanted}"
    elif array is not None and array.shape != space.shape:
        yield f"{path} has shape {array.shape} {wanted}"


def _nester(space: Space[Any]) -> Callable[[Iterator[Any]], Any]:
    """Make the function that nests leaf values like a space."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return next
    parts = [(key, _nester(child)) for key, child in _children(space).items()]
    if isinstance(space, spaces.Dict):
        return lambda leaf_values: {key: part(leaf_values) for key, part in parts}
    return lambda leaf_values: tuple([part(leaf_values) for _, part in parts])
