"""Alternation: what is compared is measured in turns, so that a slow minute slows all alike.

::

    [ A B C ] [ B C A ] [ C A B ] ...
    one repetition: a slice of each
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

# Before each slice a system runs in for this part of it, unmeasured: caches fill, and the
# scheduler finds places for workers that have just slept.
RUN_IN = 0.25

T = TypeVar("T")


def in_turns(compared: Sequence[T], repeats: int) -> Iterator[tuple[int, T]]:
    """Give each its turn in every repetition, with the number of the repetition."""
    for turn in range(repeats):
        for place in range(len(compared)):
            yield turn, compared[(turn + place) % len(compared)]
