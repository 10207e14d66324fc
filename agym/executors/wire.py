"""What travels between processes, as bytes."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle


def pack_by_value(value: Any) -> bytes:
    """Pickle for a worker, which does not have the caller's ``__main__``: that goes by value."""
    packed: bytes = cloudpickle.dumps(value)
    return packed


def pack(value: Any) -> bytes:
    """Pickle for the caller: by the quick way where it can, else by value."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        return pack_by_value(value)


def unpack(data: bytes) -> Any:
    """Undo :func:`pack`. Only bytes of this process's own workers, or of its parent, come here."""
    return pickle.loads(data)
