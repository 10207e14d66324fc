"""Spans: operations of hosts with their times, stored in the slot table during a trace.

Each host writes into its own ring, which the recorder reads often enough. Without a recorder, the
only cost for a host is to read one word per operation.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agym.core.protocol.memory import Field
from agym.core.protocol.typing import Array

# Spans per ring: between ``MIN_SPANS`` and ``MAX_SPANS``, and fewer if there are many environments,
# whose operations take longer. Unwritten parts take no memory.
MIN_SPANS, MAX_SPANS, IN_ALL = 1024, 4096, 1 << 18

# Kinds of spans, by number.
KINDS = ("other", "step", "reset", "render", "call", "get_attr", "set_attr")
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


def span_fields(num_envs: int) -> dict[str, Field]:
    """Return the arrays of the rings, a row per environment; a host uses its first one's row.

    A span is a kind, the number of environments (or ``-1 - id`` for one of several that run
    concurrently), start and end, in nanoseconds of the system's clock.
    """
    word = np.dtype(np.int64)
    room = max(MIN_SPANS, min(MAX_SPANS, IN_ALL // num_envs))
    return {
        "recording": (word, (1,)),
        "spanned": (word, (num_envs,)),
        "spans": (word, (num_envs, room, 4)),
    }


class SpanLog:
    """The writer of one host's ring."""

    def __init__(self, arrays: Mapping[str, Array], first: int) -> None:
        self.recording = arrays["recording"].data
        self._heads = arrays["spanned"].data
        self._head = self._heads[first]
        self._first = first
        self._ring = arrays["spans"][first].reshape(-1).data
        self._room = arrays["spans"].shape[1]

    def add(self, kind: str, what: int, started: int, ended: int) -> None:
        """Write a span."""
        # Entry first, head last: the recorder reads entries below the head, at any moment. There is
        # no fence. A weakly ordered CPU may show the head early, and the recorder then reads one
        # wrong span for the picture, which is not worth a fence per operation.
        ring, at = self._ring, self._head % self._room * 4
        ring[at] = _NUMBERS.get(kind, 0)
        ring[at + 1] = what
        ring[at + 2] = started
        ring[at + 3] = ended
        self._head += 1
        self._heads[self._first] = self._head


class SpanReader:
    """Reads the rings of one table."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """Start the recording."""
        self._recording = arrays["recording"]
        self._heads = arrays["spanned"]
        self._rings = arrays["spans"]
        self._seen = self._heads.copy()
        self._room = self._rings.shape[1]
        self._recording[0] += 1

    def read(self) -> list[tuple[int, Array]]:
        """Return each host's first environment and its new spans, ``int64[n, 4]``.

        Spans that were overwritten before they were read are missing.
        """
        spans = []
        heads = self._heads.copy()
        for first in np.flatnonzero(heads != self._seen).tolist():
            head = int(heads[first])
            fresh = np.arange(max(int(self._seen[first]), head - self._room), head)
            spans.append((first, self._rings[first][fresh % self._room]))
        self._seen = heads
        return spans

    def stop(self) -> None:
        """Stop the recording, unless another reader is active."""
        self._recording[0] -= 1
