"""Schemas of infos: the numbers and arrays in a dict, and their layout in a row of memory.

An info fits a table of fixed rows if everything in it, including nested dicts, is a Python
``bool``, ``int`` or ``float``, a NumPy number, or an array of numbers. Its *signature* suffices to
rebuild it: keys in order, exact types, dtypes, shapes. The schema, with its layout and id, depends
only on the signature, so every host and engine derives the same schema.

Hosts write row by row, with one ``struct`` call per row. Engines read column by column, with one
NumPy call per column of a batch. Each way is the faster one for its side.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from agym.core.protocol.typing import Array, Info

# For each key, in order: the key, the exact type of its value, and the details of arrays and dicts.
Signature = tuple[tuple[Any, ...], ...]

# Python's own numbers, which take 8 bytes in memory, or 1.
NUMBERS = (bool, int, float)

# More deeply nested dicts may contain themselves.
DEPTH = 8

# Fields start at multiples of this many bytes.
ALIGNMENT = 8


def signature_of(info: Info, depth: int = DEPTH) -> Signature | None:
    """Return the signature of an info, ``None`` if a part has no fixed size."""
    entries = []
    for key, value in info.items():
        entry = _describe(value, depth) if type(key) is str else None
        if entry is None:
            return None
        entries.append((key, *entry))
    return tuple(entries)


def _describe(value: Any, depth: int) -> tuple[Any, ...] | None:
    kind = type(value)
    if kind in NUMBERS:
        return (kind,)
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        # The type also distinguishes numbers of one size, such as int_ and longlong.
        return (kind,) if kind is value.dtype.type else None
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return (kind, value.dtype.str, value.shape)
    if kind is dict and depth:
        inner = signature_of(value, depth - 1)
        return None if inner is None else (kind, inner)
    return None


class Schema:
    """The layout of infos of one signature.

    Attributes:
        id: A hash of the signature, positive, 64 bits.
        keys: The outermost keys, in order.
        batches: Whether :meth:`batch` can read infos of these keys.
        size: Bytes of a row.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        digest = blake2b(repr(signature).encode(), digest_size=8).digest()
        self.id = int.from_bytes(digest, "little") >> 1 | 1
        self._fields: list[_Field] = []
        self._level = _Level(signature, self._fields)
        self.keys, self.batches = self._level.keys, self._level.batches
        self._struct = struct.Struct("=" + "".join(field.code for field in self._fields))
        self.size = self._struct.size

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.signature,)

    def write(self, buffer: memoryview, at: int, info: Info) -> bool:
        """Write an info with these outermost keys at an offset, if the info fits."""
        values = self._level.flatten(info)
        if values is None:
            return False
        try:
            self._struct.pack_into(buffer, at, *values)
        except struct.error:  # an integer of more than 64 bits
            return False
        return True

    def columns(self, memory: Array) -> list[Array]:
        """Create an array over each field; ``memory`` has all rows: ``uint8[n, row bytes]``."""
        columns, at = [], 0
        for field in self._fields:
            column = memory[:, at : at + field.nbytes].view(field.dtype)
            columns.append(column.reshape(len(memory), *field.shape))
            at += field.room
        return columns

    def batch(self, arrays: Sequence[Array], count: int) -> Info:
        """Return infos in vector form, with Gymnasium's dtypes; ``arrays`` become part of it."""
        return self._level.batch(iter(arrays), count)

    def read(self, columns: list[Array], index: Any, count: int) -> list[Info]:
        """Build the infos of ``count`` rows from :meth:`columns`, by a slice or list of indices."""
        values = (
            field.values(column[index]) for field, column in zip(self._fields, columns, strict=True)
        )
        return self._level.build(values, count)


class _Field:
    """A number or an array in each row; ``details`` are an array's dtype and shape."""

    def __init__(self, kind: type, *details: Any) -> None:
        self._kind = kind
        dtype, self.shape = details or (kind, ())
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.nbytes = self.dtype.itemsize * math.prod(self.shape)
        # Bytes are exact for any number; types that struct supports are faster.
        code = None if kind is np.ndarray else _code(self.dtype)
        self.raw = code is None
        self.room = -(-self.nbytes // ALIGNMENT) * ALIGNMENT
        self.code = f"{code or f'{self.nbytes}s'}{self.room - self.nbytes}x"

    def values(self, column: Array) -> list[Any]:
        """Return the values of a column with their original types."""
        if self._kind in NUMBERS:
            values: list[Any] = column.tolist()
            return values
        if self._kind is np.ndarray:
            return [column[k, ...].copy() for k in range(len(column))]
        return [*column]


def _code(dtype: np.dtype[Any]) -> str | None:
    """Return ``struct``'s code for a number, if any; it would change NaNs of small floats."""
    if dtype.kind in "iu":
        code = {1: "b", 2: "h", 4: "i", 8: "q"}[dtype.itemsize]
        return code.upper() if dtype.kind == "u" else code
    return {"?": "?", "d": "d"}.get(dtype.char)


class _Level:
    """One dict of an info: its numbers and arrays first, then its dicts."""

    def __init__(self, signature: Signature, fields: list[_Field]) -> None:
        self.keys = tuple(entry[0] for entry in signature)
        self._types: list[type] = [entry[1] for entry in signature]
        self._arrays: list[tuple[int, np.dtype[Any], tuple[int, ...]]] = []
        self._raw: list[int] = []
        self._plain: list[int] = []
        for i, (_, kind, *details) in enumerate(signature):
            if kind is dict:
                continue
            self._plain.append(i)
            field = _Field(kind, *details)
            fields.append(field)
            if kind is np.ndarray:
                self._arrays.append((i, field.dtype, field.shape))
            if field.raw:
                self._raw.append(i)
        self._nested = [
            (i, _Level(entry[2], fields)) for i, entry in enumerate(signature) if entry[1] is dict
        ]
        # Gymnasium stores other keys and types as arrays of objects, or gives them a meaning.
        batches = not any(key.startswith("_") or key == "final_obs" for key in self.keys)
        batches = batches and np.bool_ not in self._types
        self.batches: bool = batches and all(level.batches for _, level in self._nested)

    def flatten(self, info: Info) -> list[Any] | None:
        """List the values of a dict with the right keys, ``None`` if their types do not match."""
        parts = [*info.values()]
        if [*map(type, parts)] != self._types:
            return None
        for i, dtype, shape in self._arrays:
            array = parts[i]
            if (array.dtype is not dtype and array.dtype != dtype) or array.shape != shape:
                return None
        for i in self._raw:
            parts[i] = parts[i].tobytes()
        if not self._nested:
            return parts
        values = [parts[i] for i in self._plain]
        for i, level in self._nested:
            inner = parts[i]
            more = level.flatten(inner) if (*inner,) == level.keys else None
            if more is None:
                return None
            values += more
        return values

    def build(self, values: Iterator[list[Any]], count: int) -> list[Info]:
        """Build dicts from columns of values."""
        columns: list[Any] = [None] * len(self.keys)
        for i in self._plain:
            columns[i] = next(values)
        for i, level in self._nested:
            columns[i] = level.build(values, count)
        keys = self.keys
        if not keys:
            return [{} for _ in range(count)]
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def batch(self, arrays: Iterator[Array], count: int) -> Info:
        """Build a dict of arrays, each followed by its mask."""
        columns: list[Any] = [None] * len(self.keys)
        for i in self._plain:
            columns[i] = next(arrays)
        for i, level in self._nested:
            columns[i] = level.batch(arrays, count)
        batch: Info = {}
        for key, column in zip(self.keys, columns, strict=True):
            batch[key], batch[f"_{key}"] = column, np.ones(count, bool)
        return batch
