"""Debug mode, which poisons views that have expired.

With ``copy=False`` a batch is a view of memory that the next batch but one overwrites. Code that
still uses the view then reads the numbers of the later batch, which look plausible. In debug mode a
view is a copy, which is filled with NaN, the largest integer, or true when the view expires.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar

import numpy as np

from agym.protocol.typing import Array

_on: ContextVar[bool] = ContextVar("agym_debug", default=False)

# How many whole batches are valid at the same time.
VALID_BATCHES = 2


class debug:  # noqa: N801 (it is called, or used as a context manager)
    """Switch debug mode on for environments made from now on, or within a ``with`` block.

    Example:
        >>> import agym
        >>> options = {"autoreset": "next_step", "output": "array", "copy": False}
        >>> with agym.debug(), agym.make("CartPole-v1", 2, **options) as envs:
        ...     first, _ = envs.reset(seed=0)
        ...     for _ in range(2):
        ...         _ = envs.step([0, 1])
        >>> print(first[0])
        [nan nan nan nan]

    In debug mode, a view of ``copy=False`` that has expired holds NaN, the largest integer of its
    dtype, or true, instead of a later batch. This costs a copy of each batch. The mode is a context
    variable: it applies to this thread, and to tasks that it starts.

    Args:
        on: ``False`` to switch debug mode off.
    """

    def __init__(self, on: bool = True) -> None:
        self._token = _on.set(on)

    def __enter__(self) -> None:
        """Do nothing: debug mode is on already."""

    def __exit__(self, *_: object) -> None:
        """Restore the previous mode."""
        _on.reset(self._token)


def is_debugging() -> bool:
    """Whether debug mode is on."""
    return _on.get()


class Views:
    """The copies that stand in for views."""

    def __init__(self) -> None:
        self._batches: deque[Sequence[Array]] = deque()
        self._rows: dict[int, list[Array]] = {}

    def of_batch(self, columns: Sequence[Array]) -> list[Array]:
        copies = [column.copy() for column in columns]
        self._batches.append(copies)
        return copies

    def of_rows(self, ids: Sequence[int], columns: Sequence[Array]) -> list[Array]:
        """Copy received rows, which are valid until the next step of the environment is sent."""
        copies = [column.copy() for column in columns]
        for k, i in enumerate(ids):
            self._rows[i] = [copy[k : k + 1] for copy in copies]
        return copies

    def next_batch(self) -> None:
        """Poison the oldest view, because a whole batch is about to be written."""
        while len(self._batches) >= VALID_BATCHES:
            for column in self._batches.popleft():
                poison(column)

    def next_rows(self, ids: Sequence[int]) -> None:
        """Poison the rows of environments that are about to be sent a step."""
        for i in ids:
            for row in self._rows.pop(i, ()):
                poison(row)


def poison(array: Array) -> None:
    """Fill an array with values that no environment returns."""
    kind = array.dtype.kind
    if kind in "fc":
        array.fill(np.nan)
    elif kind in "iu":
        array.fill(np.iinfo(array.dtype).max)
    else:
        array.fill(True)
