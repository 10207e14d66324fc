"""Spans: when hosts did what, in the table, while somebody records a timeline.

A host writes into a ring of its own, which whoever records empties often enough. As long as nobody
does, all that this costs a host is to look at one word for each operation.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agym.protocol.memory import Field
from agym.protocol.typing import Array

# How many spans a host's ring holds, between these: fewer where there are many environments, whose
# operations take longer. What is never written takes no memory.
LEAST, MOST, IN_ALL = 1024, 4096, 1 << 18

# What a span is of, by number.
KINDS = ("other", "step", "reset", "render", "call", "get_attr", "set_attr")
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


def span_fields(num_envs: int) -> dict[str, Field]:
    """Memory for the rings, a row per environment; a host's is in its first one's row.

    A span is its kind, how many environments it is about (or, if one of many that run at the same
    time, minus one minus its id), its beginning and its end, in nanoseconds of the system's clock.
    """
    word = np.dtype(np.int64)
    room = max(LEAST, min(MOST, IN_ALL // num_envs))
    return {
        "recording": (word, (1,)),
        "spanned": (word, (num_envs,)),
        "spans": (word, (num_envs, room, 4)),
    }


class SpanLog:
    """A host's hand on its ring."""

    def __init__(self, arrays: Mapping[str, Array], first: int) -> None:
        """Go on where the ring is."""
        self.recording = arrays["recording"].data
        self._heads = arrays["spanned"].data
        self._head = self._heads[first]
        self._first = first
        self._ring = arrays["spans"][first].reshape(-1).data
        self._room = arrays["spans"].shape[1]

    def add(self, kind: str, what: int, begun: int, ended: int) -> None:
        """Note down a span."""
        ring, at = self._ring, self._head % self._room * 4
        ring[at] = _NUMBERS.get(kind, 0)
        ring[at + 1] = what
        ring[at + 2] = begun
        ring[at + 3] = ended
        self._head += 1
        self._heads[self._first] = self._head


class SpanReader:
    """Empties the rings of one table."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """Begin with what is written from now on."""
        self._recording = arrays["recording"]
        self._heads = arrays["spanned"]
        self._rings = arrays["spans"]
        self._seen = self._heads.copy()
        self._room = self._rings.shape[1]
        self._recording[0] += 1

    def read(self) -> list[tuple[int, Array]]:
        """Take out what was written since: each host's first environment, and ``int64[n, 4]``.

        What a ring had no room for is left out.
        """
        found = []
        heads = self._heads.copy()
        for first in np.flatnonzero(heads != self._seen).tolist():
            head = int(heads[first])
            fresh = np.arange(max(int(self._seen[first]), head - self._room), head)
            found.append((first, self._rings[first][fresh % self._room]))
        self._seen = heads
        return found

    def stop(self) -> None:
        """Have no more written, unless somebody else reads too."""
        self._recording[0] -= 1
