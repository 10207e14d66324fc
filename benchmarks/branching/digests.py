"""Exact comparison of results: to the last bit, including NaN."""

from __future__ import annotations

import hashlib
import pickle
import struct
from typing import Any, NamedTuple

import numpy as np


def digest(value: Any) -> bytes:
    """Return a digest of a nested value, which depends on its types and values only."""
    found = hashlib.blake2b(digest_size=16)
    _feed(found, value)
    return found.digest()


def _feed(found: Any, value: Any) -> None:
    kind = type(value).__name__.encode()
    if isinstance(value, np.ndarray | np.generic):
        found.update(b"%s %s %r " % (kind, value.dtype.str.encode(), value.shape))
        if value.dtype.hasobject:
            _feed(found, value.tolist())
        else:
            found.update(value.tobytes())
    elif isinstance(value, dict):
        found.update(b"%s %d " % (kind, len(value)))
        for key, part in value.items():
            _feed(found, key)
            _feed(found, part)
    elif isinstance(value, list | tuple):
        found.update(b"%s %d " % (kind, len(value)))
        for part in value:
            _feed(found, part)
    elif isinstance(value, float):
        found.update(b"%s " % kind + struct.pack("d", value))
    elif value is None or isinstance(value, bool | int | str):
        text = repr(value).encode()
        found.update(b"%s %d " % (kind, len(text)) + text)
    else:
        found.update(b"%s " % kind + pickle.dumps(value))


class Row(NamedTuple):
    """The results of a step of one environment, as digests."""

    observation: bytes
    reward: bytes
    terminated: bool
    truncated: bool
    info: bytes

    @classmethod
    def of(cls, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> Row:
        return cls(
            digest(observation), digest(float(reward)), bool(terminated), bool(truncated),
            digest(info),
        )  # fmt: skip

    @property
    def ends(self) -> bool:
        """Whether the episode ended."""
        return self.terminated or self.truncated


def difference(ours: list[Row], theirs: list[Row]) -> str:
    """Return the first difference of two continuations in words, ``""`` if there is none."""
    for step, (one, other) in enumerate(zip(ours, theirs, strict=True), 1):
        for name in Row._fields:
            if getattr(one, name) != getattr(other, name):
                return f"{name} of step {step}"
    return ""
