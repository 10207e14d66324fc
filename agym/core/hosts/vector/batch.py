"""Checks the results of a vector environment, and moves rows between batches.

A batch of observations is a list of arrays ``[count, *shape]``, one per leaf: first the leaves with
a fixed size, then the others, as arrays of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agym.core.protocol.space_layout import Layout
from agym.core.protocol.typing import Array
from agym.core.protocol.value_copies import copy_value

STEP = ("observations", "rewards", "terminated", "truncated", "info")
RESET = ("observations", "info")


def check_step(layout: Layout, result: Any, count: int) -> tuple[list[Array], dict[str, Any]]:
    """Return the columns of a step's result, rewards and flags last, and a copy of its info.

    Raises:
        TypeError: The result is not a tuple of Gymnasium's form, or a dtype does not fit.
        ValueError: There is not one row per environment, or observations do not fit.
    """
    _check_form(result, STEP, "step")
    _, columns = check_observations(layout, result[0], (count,), "step")
    for name, values in zip(STEP[1:4], result[1:4], strict=True):
        array = np.asarray(values)
        if array.shape != (count,):
            raise ValueError(
                f"step returned {name} of shape {array.shape} where ({count},) is expected"
            )
        columns.append(array)
    return columns, {**result[4]}


def check_reset(
    layout: Layout, result: Any, counts: Sequence[int]
) -> tuple[int, list[Array], dict[str, Any]]:
    """Return the number of environments in a reset's result, their observations, and the info.

    Raises:
        TypeError, ValueError: As for a step, but any of ``counts`` is permitted.
    """
    _check_form(result, RESET, "reset")
    return *check_observations(layout, result[0], counts, "reset"), result[1]


def _check_form(result: Any, form: Sequence[str], what: str) -> None:
    if not isinstance(result, tuple) or len(result) != len(form):
        raise TypeError(f"{what} must return ({', '.join(form)})")
    if not isinstance(result[-1], dict):
        raise TypeError(f"{what} returned an info of type {type(result[-1]).__name__}, not a dict")


def check_observations(
    layout: Layout, batch: Any, counts: Sequence[int], what: str
) -> tuple[int, list[Array]]:
    """Return the number of environments in a batch, and its leaves.

    Args:
        layout: The layout of one observation.
        batch: Arrays nested like the space, sequences for leaves without a fixed size.
        counts: The permitted numbers of environments.
        what: The name of the method, for messages.

    Raises:
        ValueError: Nesting, shape or number of environments do not fit.
        TypeError: The dtype does not fit.
    """
    try:
        leaves = layout.flatten(batch)
        count = len(leaves[0]) if leaves else counts[0]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{what} returned observations that do not fit: {error!r}") from error
    if count not in counts:
        raise ValueError(
            f"{what} returned observations of {count} environments where"
            f" {' or '.join(map(str, dict.fromkeys(counts)))} are expected"
        )
    columns: list[Array] = []
    for i in layout.fixed:
        leaf, array = layout.leaves[i], np.asarray(leaves[i])
        assert leaf.dtype is not None
        if array.shape != (count, *leaf.shape):
            raise ValueError(
                f"{what} returned observations{leaf.path} of shape {array.shape} where its space"
                f" requires {(count, *leaf.shape)}"
            )
        if not np.can_cast(array.dtype, leaf.dtype, "same_kind"):
            raise TypeError(
                f"{what} returned observations{leaf.path} of dtype {array.dtype} where its space"
                f" requires {leaf.dtype}"
            )
        columns.append(array)
    for i in layout.objects:
        if len(leaves[i]) != count:
            raise ValueError(f"{what} returned observations of unequal numbers of environments")
        column = np.empty(count, object)
        for k, value in enumerate(leaves[i]):  # NumPy would make one array of equal sequences
            column[k] = copy_value(value)
        columns.append(column)
    return count, columns


def write(
    blocks: Sequence[Array], chosen: Any, columns: Sequence[Array], given: Any = slice(None)
) -> None:
    """Copy the rows ``given`` of some arrays to the rows ``chosen`` of others."""
    for block, column in zip(blocks, columns, strict=True):
        block[chosen] = column[given]


def batch_of(leaves: Sequence[Array]) -> Any:
    """Return the batch of a space with one leaf, or of a tuple of such spaces."""
    return leaves[0] if len(leaves) == 1 else tuple(leaves)
