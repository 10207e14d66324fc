"""Schemas of infos: which numbers and arrays a dict has, and their layout in a row of memory.

An info fits a table of fixed rows if everything in it, nested dicts included, is a Python ``bool``,
``int`` or ``float``, a NumPy number, or an array of such. Its *signature* suffices to rebuild it:
keys in order, exact types, dtypes, shapes. The schema, with its layout and id, depends on the
signature alone, so every host and engine derives the same one.

Hosts write row by row, with one ``struct`` call per row. Engines read column by column, with one
NumPy call per column of a batch. Each is the faster way for its side.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from agym.protocol.typing import Array, Info

# For each key, in order: the key, the kind of its value, and the details of that kind.
Signature = tuple[tuple[Any, ...], ...]

# Python's own numbers: their names here, and their dtypes in memory.
NAMES: dict[type, str] = {bool: "bool", int: "int", float: "float"}
TYPES = {name: kind for kind, name in NAMES.items()}
DTYPES = {"bool": np.dtype("?"), "int": np.dtype("q"), "float": np.dtype("d")}

# More deeply nested dicts may contain themselves.
DEPTH = 8

# Fields begin at multiples of this many bytes.
ALIGNMENT = 8


def signature_of(info: Info, depth: int = DEPTH) -> Signature | None:
    """Return the signature of an info, ``None`` if it is not all of fixed size."""
    entries = []
    for key, value in info.items():
        entry = _describe(value, depth) if type(key) is str else None
        if entry is None:
            return None
        entries.append((key, *entry))
    return tuple(entries)


def _describe(value: Any, depth: int) -> tuple[Any, ...] | None:
    kind = type(value)
    if kind in NAMES:
        return (NAMES[kind],)
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        # The letter also distinguishes types of one size, such as int_ and longlong.
        return ("scalar", value.dtype.char) if kind is value.dtype.type else None
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return ("array", value.dtype.str, value.shape)
    if kind is dict and depth:
        inner = signature_of(value, depth - 1)
        return None if inner is None else ("dict", inner)
    return None


class Schema:
    """The layout of infos of one signature.

    Attributes:
        id: A hash of the signature, positive, 64 bits.
        keys: The outermost keys, in order.
        size: Bytes of a row.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        digest = blake2b(repr(signature).encode(), digest_size=8).digest()
        self.id = int.from_bytes(digest, "little") >> 1 | 1
        self.keys = tuple(entry[0] for entry in signature)
        fields: list[_Field] = []
        self._level = _Level(signature, fields)
        self._fields = fields
        self._struct = struct.Struct("=" + "".join(field.code for field in fields))
        self.size = self._struct.size

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.signature,)

    def write(self, buffer: memoryview, at: int, info: Info) -> bool:
        """Write an info with these outermost keys at an offset, if it fits."""
        values = self._level.flatten(info)
        if values is None:
            return False
        try:
            self._struct.pack_into(buffer, at, *values)
        except struct.error:  # an integer of more than 64 bits
            return False
        return True

    def columns(self, memory: Array) -> list[Array]:
        """Create an array over each field; ``memory`` is all rows, ``uint8[n, bytes of a row]``."""
        columns, at = [], 0
        for field in self._fields:
            strides = (memory.strides[0], *field.strides)
            shape = (len(memory), *field.shape)
            columns.append(np.ndarray(shape, field.dtype, memory, at, strides))
            at += field.room
        return columns

    def read(self, columns: list[Array], index: Any, count: int) -> list[Info]:
        """Build the infos of ``count`` rows from :meth:`columns`, by a slice or list of indices."""
        values = (
            field.values(column[index]) for field, column in zip(self._fields, columns, strict=True)
        )
        return self._level.build(values, count)


class _Field:
    """A number or an array in each row."""

    def __init__(self, kind: str, *details: Any) -> None:
        self._kind = kind
        self.shape: tuple[int, ...] = ()
        if kind in DTYPES:
            self.dtype = DTYPES[kind]
        else:
            self.dtype = np.dtype(details[0])
            self.shape = details[1] if kind == "array" else ()
        probe = np.empty(self.shape, self.dtype)
        self.strides = probe.strides
        # Bytes are exact for any number; types that struct supports are faster.
        code = None if kind == "array" else _code(self.dtype)
        self.raw = code is None
        code = code or f"{probe.nbytes}s"
        self.room = -(-probe.nbytes // ALIGNMENT) * ALIGNMENT
        self.code = f"{code}{self.room - probe.nbytes}x"

    def values(self, column: Array) -> Any:
        """Return the values of a column with their original types."""
        if self._kind in DTYPES:
            return column.tolist()
        if self._kind == "scalar":
            return [*column]
        return [row.copy() for row in _rows(column)]


def _code(dtype: np.dtype[Any]) -> str | None:
    """Return ``struct``'s code for a number, if any; it would change NaNs of small floats."""
    if dtype.kind in "iu":
        code = {1: "b", 2: "h", 4: "i", 8: "q"}[dtype.itemsize]
        return code.upper() if dtype.kind == "u" else code
    return {"?": "?", "d": "d"}.get(dtype.char)


def _rows(column: Array) -> Any:
    """Iterate over rows as arrays; iterating over a column of numbers would give scalars."""
    return (
        column if column.ndim > 1 else (column[k : k + 1].reshape(()) for k in range(len(column)))
    )


class _Level:
    """One dict of an info: its numbers and arrays first, then its dicts."""

    def __init__(self, signature: Signature, fields: list[_Field]) -> None:
        self._keys = tuple(entry[0] for entry in signature)
        self._types: list[type] = []
        self._arrays: list[tuple[int, np.dtype[Any], tuple[int, ...]]] = []
        self._raw: list[int] = []
        self._plain: list[int] = []
        for i, (_, kind, *details) in enumerate(signature):
            self._types.append(_type_of(kind, details))
            if kind == "dict":
                continue
            self._plain.append(i)
            field = _Field(kind, *details)
            fields.append(field)
            if kind == "array":
                self._arrays.append((i, field.dtype, field.shape))
            elif field.raw:
                self._raw.append(i)
        self._nested = [
            (i, _Level(entry[2], fields)) for i, entry in enumerate(signature) if entry[1] == "dict"
        ]

    def flatten(self, info: Info) -> list[Any] | None:
        """List the values of a dict with the right keys, ``None`` if their types do not match."""
        mine = [*info.values()]
        if [*map(type, mine)] != self._types:
            return None
        for i, dtype, shape in self._arrays:
            array = mine[i]
            if (array.dtype is not dtype and array.dtype != dtype) or array.shape != shape:
                return None
            mine[i] = array.tobytes()
        for i in self._raw:
            mine[i] = mine[i].tobytes()
        if not self._nested:
            return mine
        values = [mine[i] for i in self._plain]
        for i, level in self._nested:
            inner = mine[i]
            more = level.flatten(inner) if (*inner,) == level._keys else None
            if more is None:
                return None
            values += more
        return values

    def build(self, values: Iterator[list[Any]], count: int) -> list[Info]:
        """Build dicts from columns of values."""
        columns: list[Any] = [None] * len(self._keys)
        for i in self._plain:
            columns[i] = next(values)
        for i, level in self._nested:
            columns[i] = level.build(values, count)
        keys = self._keys
        if not keys:
            return [{} for _ in range(count)]
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


def _type_of(kind: str, details: list[Any]) -> type:
    if kind == "scalar":
        scalar: type = np.dtype(details[0]).type
        return scalar
    return {"array": np.ndarray, "dict": dict, **TYPES}[kind]
