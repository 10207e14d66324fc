"""What travels between processes, as bytes: a pickle, and the buffers of the arrays in it.

Arrays are not copied into the pickle but sent after it, each as it lies in memory.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from agym.core.by_value import dumps_by_value
from agym.errors import UsageError

Buffer = bytes | bytearray | memoryview

# What Ray carries as it is: one piece of bytes, or a pickle and arrays that it does not copy.
Sealed = bytes | list[Any]

# Above this a message is not joined into one piece: its arrays are read where Ray has put them.
JOINED_BYTES = 64 * 1024

_COUNT = struct.Struct("<q")


def pack_by_value(value: Any) -> list[Buffer]:
    """Pickle for a worker: what it cannot import, such as the caller's ``__main__``, by value.

    Raises:
        UsageError: There is something in it that cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = dumps_by_value(value, buffers.append)
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


def _join(pickled: bytes, buffers: Sequence[pickle.PickleBuffer]) -> list[Buffer]:
    parts: list[Buffer] = [pickled, *(buffer.raw() for buffer in buffers)]
    lengths = struct.pack(f"<{len(parts)}q", *(len(part) for part in parts))
    return [_COUNT.pack(len(parts)) + lengths, *parts]


def unpack(data: Buffer, *, own: bool = True) -> Any:
    """Undo either. Only bytes of this process's own workers, or of its parent, come here.

    Unless they are to be their ``own``, arrays lie over the message, and cannot be written to.
    """
    view = memoryview(data)
    (count,) = _COUNT.unpack_from(view)
    lengths = struct.unpack_from(f"<{count}q", view, _COUNT.size)
    at = _COUNT.size * (1 + count)
    parts = []
    for length in lengths:
        parts.append(view[at : at + length])
        at += length
    # Arrays get memory of their own, which can be written to and outlives the message.
    return pickle.loads(parts[0], buffers=[bytearray(part) if own else part for part in parts[1:]])


def seal(value: Any, *, by_value: bool = False) -> Sealed:
    """Pack for Ray: small messages into one piece, since each piece costs some time by itself.

    Args:
        value: What to send.
        by_value: It may hold something that only the caller's ``__main__`` has.

    Raises:
        UsageError: There is something in it that cannot be pickled.
    """
    parts = pack_by_value(value) if by_value else pack(value)
    if sum(len(part) for part in parts) <= JOINED_BYTES:
        return b"".join(parts)
    return [bytes(parts[1]), *map(_as_array, parts[2:])]


def _as_array(part: Buffer) -> np.ndarray[Any, Any]:
    return np.frombuffer(part, np.uint8) if len(part) else np.zeros(0, np.uint8)


def unseal(sealed: Sealed, *, own: bool = False) -> Any:
    """Undo it; unless they are to be their ``own``, arrays lie over the message, read-only."""
    if isinstance(sealed, bytes):
        return unpack(sealed, own=own)
    pickled, *parts = sealed
    return pickle.loads(pickled, buffers=[bytearray(part) if own else part for part in parts])
