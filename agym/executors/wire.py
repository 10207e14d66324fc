"""What travels between processes, as bytes: a pickle, and the buffers of the arrays in it.

Arrays are not copied into the pickle but sent after it, each as it lies in memory.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np

from agym.errors import UsageError

Buffer = bytes | bytearray | memoryview

_COUNT = struct.Struct("<q")
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})

# What is nested deeper than this may contain itself.
_DEPTH = 16


def pack_by_value(value: Any) -> list[Buffer]:
    """Pickle for a worker, which does not have the caller's ``__main__``: that goes by value.

    Raises:
        UsageError: There is something in it that cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = cloudpickle.dumps(value, buffer_callback=buffers.append)
    except Exception as error:
        raise UsageError(f"this cannot be sent to another process: {error}") from error
    return _join(pickled, buffers)


def pack(value: Any) -> list[Buffer]:
    """Pickle for the caller: by the quick way where it can, else by value."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    except Exception:
        return pack_by_value(value)
    return _join(pickled, buffers)


def is_plain(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a value is sure to survive the way: data of Python's and NumPy's own types."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, np.generic):
        return True
    if kind is np.ndarray:
        return not value.dtype.hasobject
    if kind not in (dict, list, tuple, set) or depth == 0:
        return False
    parts = [*value, *value.values()] if kind is dict else value
    return all(is_plain(part, depth - 1) for part in parts)


def _join(pickled: bytes, buffers: Sequence[pickle.PickleBuffer]) -> list[Buffer]:
    parts: list[Buffer] = [pickled, *(buffer.raw() for buffer in buffers)]
    lengths = struct.pack(f"<{len(parts)}q", *(len(part) for part in parts))
    return [_COUNT.pack(len(parts)) + lengths, *parts]


def unpack(data: Buffer) -> Any:
    """Undo either. Only bytes of this process's own workers, or of its parent, come here."""
    view = memoryview(data)
    (count,) = _COUNT.unpack_from(view)
    lengths = struct.unpack_from(f"<{count}q", view, _COUNT.size)
    at = _COUNT.size * (1 + count)
    parts = []
    for length in lengths:
        parts.append(view[at : at + length])
        at += length
    # Arrays get memory of their own, which can be written to and outlives the message.
    return pickle.loads(parts[0], buffers=[bytearray(part) for part in parts[1:]])
