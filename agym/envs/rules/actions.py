"""Checks batches of actions, and widens them to the 64 bits in which rules compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.envs.rules.contract import RuleBook
from agym.errors import UsageError
from agym.protocol.typing import Array


def no_actions(book: RuleBook, num_envs: int) -> Array:
    """Return a batch of actions as the engines take it, ``float64`` or ``int64``."""
    space = book.action_space
    assert space.shape is not None
    assert space.dtype is not None
    wide = np.float64 if space.dtype.kind == "f" else np.int64
    return np.zeros((num_envs, *space.shape), wide)


def action_check(book: RuleBook, num_envs: int) -> Callable[[Any], Array]:
    """Return a function that checks a batch of actions, and returns it as the engines take it.

    What is outside of a box is not refused, as in Gymnasium's environments: rules clip it.
    """
    like, space = no_actions(book, num_envs), book.action_space
    shape, dtype, kinds = like.shape, like.dtype, "iu" if like.dtype == np.int64 else "iuf"
    if isinstance(space, spaces.MultiBinary):
        kinds += "b"
    low, count = _range(space)
    what = f"{space}" if num_envs == 1 else f"{num_envs} of {space}"

    def check(actions: Any) -> Array:
        array = np.asarray(actions)
        if array.shape != shape or array.dtype.kind not in kinds:
            raise UsageError(
                f"{book.name}: actions of shape {array.shape} and dtype {array.dtype} must be"
                f" {what}: of shape {shape}"
            )
        # Compiled code is for arrays that may be written to.
        array = np.require(array, dtype, ["C", "W"])
        # Viewed as unsigned, what is below the lowest is large.
        if count is not None and ((array - low).view(np.uint64) >= count).any():
            raise UsageError(f"{book.name}: actions {actions!r} must be {what}")
        return array

    def check_discrete(actions: Any) -> Array:
        """Check the most frequent kind in a third of the time."""
        if type(actions) is not np.ndarray or actions.dtype != np.int64 or actions.shape != shape:
            return check(actions)
        if actions.view(np.uint64).max() >= count or not actions.flags.carray:
            return check(actions)
        return actions

    plain = isinstance(space, spaces.Discrete) and int(space.start) == 0
    return check_discrete if plain else check


def _range(space: Any) -> tuple[Any, Any]:
    """Return the lowest action and the number of them; ``None`` for a box."""
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start), np.uint64(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.astype(np.int64), space.nvec.astype(np.uint64)
    if isinstance(space, spaces.MultiBinary):
        return np.int64(0), np.uint64(2)
    return None, None
