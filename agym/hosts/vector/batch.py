"""Checks the results of a vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agym.protocol.space_layout import Layout
from agym.protocol.typing import Array
from agym.protocol.value_copies import copy_value

STEP = ("observations", "rewards", "terminated", "truncated", "info")
RESET = ("observations", "info")


class Columns:
    """A batch of observations as columns ``[count, *shape]``, one per leaf with a fixed size."""

    def __init__(self, layout: Layout, batch: Any, counts: Sequence[int], what: str) -> None:
        """Split a batch: arrays nested like the space, sequences for leaves without a fixed size.

        ``counts`` are the permitted numbers of rows. ``what`` names the origin in messages.

        Raises:
            ValueError: Nesting, shape or number of rows do not fit.
            TypeError: The dtype does not fit.
        """
        try:
            columns = layout.flatten(batch)
            self.count = len(columns[0]) if columns else counts[0]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{what} gave observations that do not fit: {error!r}") from error
        if self.count not in counts:
            raise ValueError(
                f"{what} gave observations of {self.count} environments where"
                f" {' or '.join(map(str, dict.fromkeys(counts)))} are expected"
            )
        self.fixed: list[Array] = []
        for i in layout.fixed:
            leaf, array = layout.leaves[i], np.asarray(columns[i])
            assert leaf.dtype is not None
            if array.shape != (self.count, *leaf.shape):
                raise ValueError(
                    f"{what} gave observations{leaf.path} of shape {array.shape} where its space"
                    f" wants {(self.count, *leaf.shape)}"
                )
            if not np.can_cast(array.dtype, leaf.dtype, "same_kind"):
                raise TypeError(
                    f"{what} gave observations{leaf.path} of dtype {array.dtype} where its space"
                    f" wants {leaf.dtype}"
                )
            self.fixed.append(array)
        self._objects = [columns[i] for i in layout.objects]
        if any(len(column) != self.count for column in self._objects):
            raise ValueError(f"{what} gave observations of unequal numbers of environments")

    def objects(self, row: int) -> list[Any]:
        """Return copies of the leaves without a fixed size of one row."""
        return [copy_value(column[row]) for column in self._objects]


def check_result(result: Any, form: Sequence[str], what: str) -> None:
    """Check the form of a result.

    Raises:
        TypeError: It is not a tuple of Gymnasium's form, with a dict as info.
    """
    if not isinstance(result, tuple) or len(result) != len(form):
        raise TypeError(f"{what} must give ({', '.join(form)})")
    if not isinstance(result[-1], dict):
        raise TypeError(f"{what} gave an info that is no dict but {type(result[-1]).__name__}")


def check_columns(result: Sequence[Any], count: int, what: str) -> list[Array]:
    """Check the rewards and flags of a step's result.

    Raises:
        ValueError: There is not one per environment.
    """
    arrays = [np.asarray(values) for values in result[1:4]]
    for name, array in zip(STEP[1:4], arrays, strict=True):
        if array.shape != (count,):
            raise ValueError(
                f"{what} returned {name} of shape {array.shape} where ({count},) is expected"
            )
    return arrays
