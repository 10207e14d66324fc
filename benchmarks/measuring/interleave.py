"""Alternation: systems are measured in turns, so that a slow minute slows all of them equally.

::

    [ A B C ] [ B C A ] [ C A B ] ...
    one repetition: a slice of each system
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

# Length of the unmeasured warm-up before each slice, relative to the slice: caches fill, and the
# scheduler places workers that have just slept.
RUN_IN = 0.25

T = TypeVar("T")


def in_turns(compared: Sequence[T], repeats: int | None = None) -> Iterator[tuple[int, T]]:
    """Yield the number of the repetition and an item, each item once per repetition.

    ``None`` repetitions never end.
    """
    for turn in count() if repeats is None else range(repeats):
        for place in range(len(compared)):
            yield turn, compared[(turn + place) % len(compared)]
