"""Debugging: views that have expired say so.

With ``copy=False`` a batch is a view of memory that the next but one batch is written into, and who
still uses it then sees that one's numbers, which look as right as any. In debug mode a view is a
copy, which is *poisoned* when the view would expire: NaN, the largest integer, or true.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar
from types import TracebackType

import numpy as np

from agym.protocol.typing import Array

_on: ContextVar[bool] = ContextVar("agym_debug", default=False)

# How many whole batches are valid at a time.
VALID_BATCHES = 2


class debug:  # noqa: N801 (it is called, and is a context manager where one is wanted)
    """Switch debug mode on for environments that are made from now on, or within a ``with`` block.

    As any context variable it holds for this thread, and for tasks that it starts.

    A view of ``copy=False`` that is used after it has expired then holds NaN, the largest integer
    of its dtype, or true, instead of another batch. It costs a copy of each batch.

    Args:
        on: ``False`` to switch it off.

    Example:
        >>> import agym
        >>> options = {"autoreset": "next_step", "output": "array", "copy": False}
        >>> with agym.debug(), agym.make("CartPole-v1", 2, **options) as envs:
        ...     first, _ = envs.reset(seed=0)
        ...     for _ in range(2):
        ...         _ = envs.step([0, 1])
        ...     bool(np.isnan(first).all())
        True
    """

    def __init__(self, on: bool = True) -> None:
        """Switch it on or off."""
        self._token = _on.set(on)

    def __enter__(self) -> None:
        """It is on already."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Have it as it was before."""
        _on.reset(self._token)


def is_debugging() -> bool:
    """Whether it is on."""
    return _on.get()


class Views:
    """The copies that stand for views."""

    def __init__(self) -> None:
        """Nothing was given away."""
        self._batches: deque[Sequence[Array]] = deque()
        self._rows: dict[int, list[Array]] = {}

    def of_batch(self, columns: Sequence[Array]) -> list[Array]:
        """Copy the columns of a whole batch."""
        copies = [column.copy() for column in columns]
        self._batches.append(copies)
        return copies

    def of_rows(self, ids: Sequence[int], columns: Sequence[Array]) -> list[Array]:
        """Copy what was received, which is valid until an environment is sent a step again."""
        copies = [column.copy() for column in columns]
        for k, i in enumerate(ids):
            self._rows[i] = [copy[k : k + 1] for copy in copies]
        return copies

    def next_batch(self) -> None:
        """A whole batch is about to be written: the oldest view expires."""
        while len(self._batches) >= VALID_BATCHES:
            for column in self._batches.popleft():
                poison(column)

    def next_rows(self, ids: Sequence[int]) -> None:
        """Environments are about to be sent a step."""
        for i in ids:
            for row in self._rows.pop(i, ()):
                poison(row)


def poison(array: Array) -> None:
    """Fill an array with what no environment means."""
    kind = array.dtype.kind
    if kind in "fc":
        array.fill(np.nan)
    elif kind in "iu":
        array.fill(np.iinfo(array.dtype).max)
    else:
        array.fill(True)
