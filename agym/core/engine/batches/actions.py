"""Checks the caller's actions and writes them into the slot table, before anything is sent.

There are two accepted forms. A *batch* has the form that Gymnasium's vector environments accept (an
array ``[n, ...]``, or a dict or tuple of such arrays, nested like the space). A *list* has n
actions, one per environment. A list always means one action per environment; a tuple does only if
the action space is not a Tuple. Tensors on any device are accepted in place of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from agym.core.protocol.arguments import Ids, arrays_in, as_array
from agym.core.protocol.messages.operations import GivenAction
from agym.core.protocol.space_layout import Layout, Leaf
from agym.core.protocol.typing import Array
from agym.core.protocol.value_copies import copy_value
from agym.errors import UsageError, UsageTypeError

# Splits a batch into one action per environment.
Cut = Callable[[Any], Iterable[Any]]


def write_actions(
    layout: Layout, blocks: Sequence[Array], actions: Any, env_ids: Ids, cut: Cut | None = None
) -> list[Any] | None:
    """Write actions into the rows of ``blocks``.

    Args:
        layout: Layout of one action.
        blocks: The array of each fixed leaf, with a row per environment of the table.
        actions: The caller's actions.
        env_ids: The environments of the actions.
        cut: Splits a batch into actions that are passed on unchanged, unless the table would give
            the same values. The environments then check shapes and dtypes.

    Returns:
        The actions that the table cannot hold, per environment: the leaves without a fixed size, as
        list, or the whole :class:`GivenAction`. ``None`` if the table holds everything.

    Raises:
        UsageError: Wrong number, shape or dtype.
    """
    if not env_ids:
        for column in _columns(layout, actions, env_ids):
            _sequence(column, env_ids)
        return None
    a_batch = layout.single or not isinstance(actions, list)
    if cut is not None and a_batch and not _is_exact(layout, actions, env_ids):
        return _pass_on(cut, actions, env_ids)
    columns = _columns(layout, actions, env_ids)
    checked = [_column(columns[i], layout.leaves[i], env_ids) for i in layout.fixed]
    parts = [_sequence(columns[i], env_ids) for i in layout.objects]
    each = [list(row) for row in zip(*parts, strict=True)]
    if any(c.dtype != b.dtype for c, b in zip(checked, blocks, strict=True)):
        copies = [column.copy() for column in checked]
        return [GivenAction(action) for action in layout.cut(copies, each, len(env_ids))]
    rows = slice(env_ids.start, env_ids.stop) if isinstance(env_ids, range) else list(env_ids)
    for block, column in zip(blocks, checked, strict=True):
        block[rows] = column
    return each or None


def _is_exact(layout: Layout, actions: Any, env_ids: Ids) -> bool:
    """Whether the table holds exactly what Gymnasium would cut out of a batch."""
    try:
        columns = layout.flatten(actions)
    except (KeyError, ValueError, TypeError, IndexError):
        return False
    leaves = zip(layout.leaves, columns, strict=True)
    return all(
        leaf.dtype is None
        or (
            type(column) is np.ndarray
            and column.dtype == leaf.dtype
            and column.shape == (len(env_ids), *leaf.shape)
            and not leaf.zero_dim
        )
        for leaf, column in leaves
    )


def _pass_on(cut: Cut, actions: Any, env_ids: Ids) -> list[GivenAction]:
    """Cut a batch, and copy each action, because environments may keep them."""
    try:
        given = [GivenAction(copy_value(action)) for action in cut(arrays_in(actions))]
    except TypeError as error:
        raise UsageTypeError(f"the actions cannot be split per environment: {error}") from error
    except Exception as error:
        raise UsageError(f"the actions cannot be split per environment: {error!r}") from error
    if len(given) != len(env_ids):
        raise _wrong_number(len(given), env_ids)
    return given


def _columns(layout: Layout, actions: Any, env_ids: Ids) -> list[Any]:
    """Return one batch per leaf."""
    batched = isinstance(actions, dict) or (
        isinstance(actions, tuple) and isinstance(layout.space, spaces.Tuple)
    )
    if layout.single or batched:
        try:
            return layout.flatten(actions)
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(
                f"the batch of actions does not fit {layout.space}: {error!r}"
            ) from error
    rows = []
    for env_id, action in zip(env_ids, _sequence(actions, env_ids), strict=True):
        try:
            rows.append(layout.flatten(action))
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise UsageError(
                f"the action of environment {env_id} does not fit {layout.space}: {error!r}"
            ) from error
    return [list(column) for column in zip(*rows, strict=True)]


def _sequence(actions: Any, env_ids: Ids) -> Sequence[Any]:
    if isinstance(actions, str | bytes | dict) or not hasattr(actions, "__len__"):
        raise UsageTypeError(
            f"step needs a sequence of {len(env_ids)} actions, one per environment,"
            f" not {type(actions).__name__}"
        )
    if len(actions) != len(env_ids):
        raise _wrong_number(len(actions), env_ids)
    return list(actions)


def _wrong_number(given: int, env_ids: Ids) -> UsageError:
    expected = (
        f"one for each of environments {env_ids[0]} to {env_ids[-1]}" if env_ids else "env_ids=[]"
    )
    return UsageError(f"step needs {len(env_ids)} actions, {expected}, but got {given}")


def _column(actions: Any, leaf: Leaf, env_ids: Ids) -> Array:
    """Return the actions of one leaf as an array of shape ``(n, *shape)``, in a fitting dtype."""
    shape = (len(env_ids), *leaf.shape)
    if type(actions) is np.ndarray and actions.dtype == leaf.dtype and actions.shape == shape:
        return actions
    try:
        if isinstance(actions, list | tuple):
            if actions and hasattr(actions[0], "__dlpack__"):
                actions = [as_array(action) for action in actions]
            array = np.asarray(actions)
        else:
            array = np.asarray(as_array(actions))
    except ValueError as error:  # rows of different shapes
        raise _misshapen(_sequence(actions, env_ids), leaf, env_ids) from error
    except Exception as error:  # a tensor without data ("meta"), or of a dtype unknown to NumPy
        raise UsageError(f"actions{leaf.path} cannot be converted to an array: {error}") from error
    if array.shape != shape:
        if array.ndim == 0:
            raise UsageTypeError(
                f"step needs {len(env_ids)} actions, one per environment, not a single"
                f" {type(actions).__name__}"
            )
        if len(array) != len(env_ids):
            raise _wrong_number(len(array), env_ids)
        raise _misshapen(actions, leaf, env_ids)
    return _cast(array, leaf)


def _misshapen(actions: Any, leaf: Leaf, env_ids: Ids) -> UsageError:
    for env_id, action in zip(env_ids, actions, strict=True):
        try:
            shape: Any = np.shape(action)
        except ValueError:
            shape = "that is ragged"
        if shape != leaf.shape:
            return UsageError(
                f"action{leaf.path} of environment {env_id} has shape {shape}, but its space"
                f" requires {leaf.shape}"
            )
    return UsageError(f"actions{leaf.path} are ragged, but their space requires {leaf.shape} each")


def _cast(array: Array, leaf: Leaf) -> Array:
    """Cast within the kind of dtype, and between integers only if every value survives."""
    assert leaf.dtype is not None
    if array.dtype == leaf.dtype or array.dtype.kind == leaf.dtype.kind == "f":
        return array  # other float precisions are passed on, never rounded
    if array.dtype.kind in "iub" and leaf.dtype.kind in "iub":
        cast = array.astype(leaf.dtype)
        if np.array_equal(cast, array):
            return cast
    elif array.dtype.kind != "O" and np.can_cast(array.dtype, leaf.dtype, "same_kind"):
        return array.astype(leaf.dtype)
    raise UsageError(
        f"actions{leaf.path} of dtype {array.dtype} cannot be converted to {leaf.dtype}, the dtype"
        f" of the action space, without loss: use .astype({leaf.dtype}) if that is intended"
    )
