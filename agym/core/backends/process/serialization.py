"""Packs values for other processes: a pickle, and the buffers of the arrays in it.

Arrays are not copied into the pickle; their memory is sent after it.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agym.core._system.pickling import dumps_by_value, names_restored_objects
from agym.errors import UsageTypeError

Buffer = bytes | bytearray | memoryview

# A message that Ray sends unchanged: bytes, or a pickle and arrays that Ray does not copy.
Sealed = bytes | list[Any]

# Larger messages are not joined: their arrays are read from Ray's shared memory, without a copy.
JOINED_BYTES = 64 * 1024

_COUNT = struct.Struct("<q")


def pack_by_value(value: Any, parts: Iterable[tuple[str, Any]] = ()) -> list[Buffer]:
    """Pickle for a worker: by value if the worker cannot import it, as with ``__main__``.

    The error names the value at fault among ``parts``, the values that the caller passed.

    Raises:
        UsageTypeError: A part cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = dumps_by_value(value, buffers.append)
    except Exception as error:
        name = next((name for name, part in parts if not _is_picklable(part)), "this value")
        raise UsageTypeError(
            f"{name} can't be pickled: {error}. Create it in the factory or in the environment, or"
            " use backend='thread' or 'serial'"
        ) from error
    return _join(pickled, buffers)


def _is_picklable(value: Any) -> bool:
    try:
        dumps_by_value(value)
    except Exception:
        return False
    return True


def find_unsendable(value: Any, name: str, depth: int = 16) -> tuple[str, Exception] | None:
    """Return the path of the part of a value that does not survive pickling, and its error.

    Dicts, lists and tuples are searched ``depth`` levels deep, because they may contain themselves.
    """
    try:
        unpack(b"".join(pack(value)))
    except Exception as error:
        cause = error.__cause__ if isinstance(error, UsageTypeError) else error
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list | tuple):
            items = enumerate(value)
        for key, part in items if depth else ():
            if culprit := find_unsendable(part, f"{name}[{key!r}]", depth - 1):
                return culprit
        return name, cause if isinstance(cause, Exception) else error
    return None


def pack(value: Any) -> list[Buffer]:
    """Pickle for the caller: with the fast pickler if possible, else by value."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    except Exception:
        return pack_by_value(value)
    return pack_by_value(value) if names_restored_objects(pickled) else _join(pickled, buffers)


def _join(pickled: bytes, buffers: Sequence[pickle.PickleBuffer]) -> list[Buffer]:
    parts: list[Buffer] = [pickled, *(buffer.raw() for buffer in buffers)]
    lengths = struct.pack(f"<{len(parts)}q", *(len(part) for part in parts))
    return [_COUNT.pack(len(parts)) + lengths, *parts]


def unpack(data: Buffer, *, copy: bool = True) -> Any:
    """Unpack packed data, which must come from this process's own workers or its parent.

    With ``copy=False`` arrays are read-only views of the message.
    """
    view = memoryview(data)
    (count,) = _COUNT.unpack_from(view)
    lengths = struct.unpack_from(f"<{count}q", view, _COUNT.size)
    at = _COUNT.size * (1 + count)
    parts = []
    for length in lengths:
        parts.append(view[at : at + length])
        at += length
    # A copied array is writable, and outlives the message.
    return pickle.loads(parts[0], buffers=[bytearray(part) if copy else part for part in parts[1:]])


def seal(value: Any, *, by_value: bool = False, parts: Iterable[tuple[str, Any]] = ()) -> Sealed:
    """Pack for Ray. Small messages are joined, because each piece has a fixed cost.

    With ``by_value``, the value may contain objects that exist only in the caller's ``__main__``.

    Raises:
        UsageTypeError: A part cannot be pickled.
    """
    packed = pack_by_value(value, parts) if by_value else pack(value)
    if sum(len(part) for part in packed) <= JOINED_BYTES:
        return b"".join(packed)
    return [bytes(packed[1]), *map(_as_array, packed[2:])]


def _as_array(part: Buffer) -> np.ndarray[Any, Any]:
    return np.frombuffer(part, np.uint8) if len(part) else np.zeros(0, np.uint8)


def unseal(sealed: Sealed, *, copy: bool = False) -> Any:
    """Unpack a sealed message; with ``copy=False`` arrays are read-only views of it."""
    if isinstance(sealed, bytes):
        return unpack(sealed, copy=copy)
    pickled, *parts = sealed
    return pickle.loads(pickled, buffers=[bytearray(part) if copy else part for part in parts])
