"""Binary frames: values with arrays as bytes behind a small header, and no pickle.

::

    AG1 and a zero | header's length, uint32 | header, JSON | zeros up to 8 bytes | array | ...

The header is the value; its numbers may be ``NaN`` and ``Infinity``, as in Python's ``json``. What
JSON cannot say is an object with one key that begins with ``$``::

    {"$a": ["<f4", [2, 3], 0]}   an array: dtype, shape, where its bytes start
    {"$s": ["<i8", 3]}           a NumPy scalar         {"$t": [...]}            a tuple
    {"$b": [0, 16]}              bytes: from, how many  {"$d": [[key, value]]}   any other dict
    {"$g": [nodes, edges, links]}                       a GraphInstance

A frame comes from the network. Nothing in it is executed, and a wrong frame raises ``ValueError``.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

from agym.errors import UsageTypeError

MAGIC = b"AG1\0"
START = struct.calcsize("<4sI")
# Arrays start at multiples of this.
ALIGNMENT = 8
# Kinds of dtypes: booleans, integers, numbers, texts and bytes of fixed length.
KINDS = "biufcSU"
# How NumPy writes them; it reads others too, some with a warning.
DTYPE = re.compile(f"[<>|][{KINDS}][0-9]{{1,9}}")
# As deeply as values may be nested.
MAX_DEPTH = 64
PLAIN = frozenset((bool, int, float, str, type(None)))

# Made once, because making an encoder takes longer than encoding a short header.
_HEADER = json.JSONEncoder(separators=(",", ":"))


def pack(value: Any) -> bytes:
    """Return a value as a frame.

    Example:
        >>> unpack(pack({"action": (1, np.float32(0.5))}))
        {'action': (1, np.float32(0.5))}

    Raises:
        UsageTypeError: It contains a value that a frame cannot hold.
    """
    arrays = _Arrays()
    header = _HEADER.encode(_describe(value, arrays, MAX_DEPTH)).encode()
    start = struct.pack("<4sI", MAGIC, len(header))
    return b"".join((start, header, _padding(START + len(header)), *arrays.parts))


def unpack(frame: bytes) -> Any:
    """Return the value in a frame; its arrays are copies, and writable.

    Raises:
        ValueError: It is no frame, or a wrong one.
    """
    if len(frame) < START:
        raise ValueError("a frame has at least 8 bytes")
    magic, length = struct.unpack_from("<4sI", frame)
    end = START + length
    if magic != MAGIC or end > len(frame):
        raise ValueError("it is no frame of agym's, or was cut off")
    try:
        text = frame[START:end]
        header = json.loads(text)
        if b'"$' not in text and text.count(b"{") + text.count(b"[") < MAX_DEPTH:
            return header  # most messages: all values have the same form in JSON
        return _build(header, memoryview(frame)[end + len(_padding(end)) :], MAX_DEPTH)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ValueError(f"it is a wrong frame: {error}") from None


def _padding(length: int) -> bytes:
    return b"\0" * (-length % ALIGNMENT)


class _Arrays:
    """The bytes behind the header."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self._length = 0

    def add(self, data: bytes | memoryview) -> int:
        """Append bytes; return where they start."""
        start, size = self._length, len(data)
        padding = _padding(size)
        self.parts += (data, padding) if padding else (data,)
        self._length += size + len(padding)
        return start


def _describe(value: Any, arrays: _Arrays, depth: int) -> Any:
    """Return the form of a value in the header."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if not depth:
        raise UsageTypeError(f"a value may be nested {MAX_DEPTH} times at most")
    depth -= 1
    if kind is dict:
        fields = {}
        for key, item in value.items():
            if type(key) is not str or key[:1] == "$":
                break
            fields[key] = item if type(item) in PLAIN else _describe(item, arrays, depth)
        else:
            return fields
        pairs = [[_describe(part, arrays, depth) for part in pair] for pair in value.items()]
        return {"$d": pairs}
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS:
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data if value.size else b""
        return {"$a": [value.dtype.str, value.shape, arrays.add(data)]}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"$s": [value.dtype.str, value.item()]}
    if kind is list:
        return [_describe(item, arrays, depth) for item in value]
    if isinstance(value, GraphInstance):
        return {"$g": [_describe(item, arrays, depth) for item in value]}
    if isinstance(value, tuple):
        return {"$t": [_describe(item, arrays, depth) for item in value]}
    if isinstance(value, bytes | bytearray):
        return {"$b": [arrays.add(bytes(value)), len(value)]}
    for plain in (bool, int, float, str):  # their subclasses, as enums
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, dict):
        return _describe(dict(value), arrays, depth)
    raise UsageTypeError(
        f"{kind.__name__} cannot be sent: use numbers, texts, bytes, arrays, lists, tuples, dicts"
    )


def _build(encoded: Any, data: memoryview, depth: int) -> Any:
    """Return the value that a header describes."""
    if not depth:
        raise ValueError(f"it is nested more than {MAX_DEPTH} times")
    depth -= 1
    if type(encoded) is list:
        return [_build(item, data, depth) for item in encoded]
    if type(encoded) is not dict:
        return encoded
    if len(encoded) == 1:
        (key,) = encoded
        if key in _BUILDERS:
            return _BUILDERS[key](encoded[key], data, depth)
    return {key: _build(item, data, depth) for key, item in encoded.items()}


def _array(encoded: Any, data: memoryview, _: int) -> Any:
    text, shape, start = encoded
    dtype = _dtype(text, KINDS)
    if any(type(n) is not int or n < 0 for n in (*shape, start)):
        raise ValueError("a shape must be a list of integers")
    size = prod(shape) * dtype.itemsize
    if size > len(data) - start:
        raise ValueError("an array is longer than its frame")
    return np.frombuffer(data[start : start + size], dtype).reshape(shape).copy()


def _dtype(text: Any, kinds: str) -> np.dtype[Any]:
    dtype = np.dtype(text) if type(text) is str and DTYPE.fullmatch(text) else None
    if dtype is None or dtype.kind not in kinds or not dtype.itemsize:
        raise ValueError(f"{text!r} is no dtype of an array")
    return dtype


def _scalar(encoded: Any, _: memoryview, __: int) -> Any:
    text, value = encoded
    if type(value) not in (bool, int, float):
        raise ValueError("a scalar must be a number")
    with np.errstate(over="ignore"):  # as in the other forms, too large a number is infinite
        return _dtype(text, "biuf").type(value)


def _bytes(encoded: Any, data: memoryview, _: int) -> bytes:
    start, size = encoded
    if type(start) is not int or type(size) is not int or not 0 <= start <= start + size:
        raise ValueError("bytes must have a place and a length")
    if start + size > len(data):
        raise ValueError("bytes are longer than their frame")
    return bytes(data[start : start + size])


def _graph(encoded: Any, data: memoryview, depth: int) -> GraphInstance:
    nodes, edges, links = (_build(item, data, depth) for item in encoded)
    return GraphInstance(nodes, edges, links)


_BUILDERS: dict[str, Callable[[Any, memoryview, int], Any]] = {
    "$a": _array,
    "$s": _scalar,
    "$b": _bytes,
    "$t": lambda encoded, data, depth: tuple(_build(item, data, depth) for item in encoded),
    "$d": lambda encoded, data, depth: {
        _build(key, data, depth): _build(item, data, depth) for key, item in encoded
    },
    "$g": _graph,
}
