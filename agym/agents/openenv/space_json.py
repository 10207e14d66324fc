"""Gymnasium's observations and actions as JSON, and back by their space.

==================  ===================================================
``Box``, ``Multi*`` nested lists
``Discrete``        an integer
``Text``            a string
``Dict``            an object
``Tuple``           an array
``Sequence``        an array (of a stacked one, what its space stacks)
``OneOf``           an array of the number and the value
``Graph``           an object with ``nodes``, ``edges``, ``edge_links``
==================  ===================================================

JSON has no NaN and no infinity. They are sent as the strings ``"NaN"``, ``"Infinity"`` and
``"-Infinity"``, and are numbers again where the space has floats. pydantic and protobuf use the
same words, and ``float`` reads them.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from agym.errors import UsageError, UsageTypeError

# How the floats that JSON lacks are sent.
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: Any) -> Any:
    """Return a value with arrays as lists, and without NaN and infinity.

    Example:
        >>> to_json({"position": np.zeros(2), "lives": np.int64(3), "limit": np.inf})
        {'position': [0.0, 0.0], 'lives': 3, 'limit': 'Infinity'}

    Raises:
        UsageTypeError: JSON has no such value.
    """
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, np.ndarray | np.generic):
        kind, plain = value.dtype.kind, value.tolist()
        finite = kind == "f" and np.isfinite(value).all()
        return plain if kind in "biuU" or finite else to_json(plain)
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, spaces.GraphInstance):
        return {name: to_json(item) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise UsageTypeError(f"{type(value).__name__} has no form in JSON")


def from_json(space: Space[Any], value: Any, name: str = "value") -> Any:
    """Return the element of a space that JSON describes.

    Example:
        >>> from_json(spaces.Box(0, 1, (2,)), [0.5, 1])
        array([0.5, 1. ], dtype=float32)

    Args:
        space: The space. Of a space of unknown kind the value is returned as it is.
        value: What ``json.loads`` returned.
        name: What to call the value in an error.

    Raises:
        UsageError: It cannot be such an element. What is found is the form alone; whether the
            space contains it is for the environment's checks.
    """
    match space:
        case spaces.Box() | spaces.MultiBinary() | spaces.MultiDiscrete():
            return _array(space, value, name)
        case spaces.Discrete():
            if type(value) is not int:
                raise _wrong(name, value, "an integer")
            return _integer(space.dtype, value, name)
        case spaces.Text():
            if not isinstance(value, str):
                raise _wrong(name, value, "a string")
            return value
        case spaces.Dict():
            return _fields(space.spaces, value, name)
        case spaces.Tuple():
            if not isinstance(value, list) or len(value) != len(space.spaces):
                raise _wrong(name, value, f"an array of {len(space.spaces)} values")
            return tuple(
                from_json(part, item, f"{name}[{i}]")
                for i, (part, item) in enumerate(zip(space.spaces, value, strict=True))
            )
        case spaces.OneOf():
            return _one_of(space, value, name)
        case spaces.Sequence():
            if space.stack:
                count = _count(space.feature_space, value, name)
                return from_json(batch_space(space.feature_space, count), value, name)
            if not isinstance(value, list):
                raise _wrong(name, value, "an array")
            return tuple(
                from_json(space.feature_space, item, f"{name}[{i}]") for i, item in enumerate(value)
            )
        case spaces.Graph():
            return _graph(space, value, name)
    return value


def _wrong(name: str, value: Any, wanted: str) -> UsageError:
    return UsageError(f"{name} must be {wanted}, not {shown(value, 80)}")


def shown(value: Any, length: int = 120) -> str:
    """Return a value as text of moderate length."""
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _count(feature: Space[Any], value: Any, name: str) -> int:
    """Return how many elements are stacked in a value."""
    parts: Any = getattr(feature, "spaces", None)
    if isinstance(value, dict | list) and value and parts:
        key, part = next(iter(parts.items())) if isinstance(feature, spaces.Dict) else (0, parts[0])
        try:
            return _count(part, value[key], name)
        except (KeyError, TypeError):
            raise _wrong(name, value, "the stacked values of its space") from None
    if not isinstance(value, list):
        raise _wrong(name, value, "an array")
    return len(value)


def _integer(dtype: Any, value: int, name: str) -> Any:
    try:
        return np.dtype(dtype).type(value)
    except OverflowError:
        raise _wrong(name, value, f"an integer of {np.dtype(dtype)}") from None


def _array(space: Space[Any], value: Any, name: str) -> Any:
    wanted = f"an array of shape {space.shape} of {space.dtype}"
    try:
        array = np.asarray(value)
        if array.dtype.kind == "U" and np.dtype(space.dtype).kind == "f":
            array = np.asarray(_without_words(value))
    except (ValueError, OverflowError):
        raise _wrong(name, value, wanted) from None
    if array.shape != space.shape and not (array.size == 0 and 0 in (space.shape or ())):
        raise _wrong(name, value, wanted)
    dtype = np.dtype(space.dtype)
    if array.size:
        fits = np.can_cast(array.dtype, dtype, "same_kind")
        if array.dtype.kind in "iu" and dtype.kind in "iu":
            fits = bool((array.astype(dtype) == array).all())
        if not fits:
            raise _wrong(name, value, wanted)
    with np.errstate(over="ignore"):
        return array.astype(dtype).reshape(space.shape)


def _without_words(value: Any) -> Any:
    """Return nested lists with numbers in the place of :data:`WORDS`."""
    if isinstance(value, list):
        return [_without_words(item) for item in value]
    return WORDS.get(value, value) if isinstance(value, str) else value


def _fields(parts: Any, value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != parts.keys():
        raise _wrong(name, value, f"an object with the fields {', '.join(map(str, parts))}")
    return {key: from_json(part, value[key], f"{name}.{key}") for key, part in parts.items()}


def _one_of(space: spaces.OneOf[Any], value: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2 or type(value[0]) is not int:
        raise _wrong(name, value, "an array of the number of a space and a value")
    if not 0 <= value[0] < len(space.spaces):
        raise _wrong(name, value, f"of one of {len(space.spaces)} spaces")
    return np.int64(value[0]), from_json(space.spaces[value[0]], value[1], f"{name}[1]")


def _graph(space: spaces.Graph, value: Any, name: str) -> spaces.GraphInstance:
    if not isinstance(value, dict) or value.keys() != {"nodes", "edges", "edge_links"}:
        raise _wrong(name, value, "an object with the fields nodes, edges, edge_links")

    def rows(part: Space[Any] | None, key: str) -> Any:
        items = value[key]
        if items is None or part is None:
            return None
        if not isinstance(items, list):
            raise _wrong(f"{name}.{key}", items, "an array")
        made = [from_json(part, item, f"{name}.{key}[{i}]") for i, item in enumerate(items)]
        return np.array(made, part.dtype).reshape(len(items), *(part.shape or ()))

    links = value["edge_links"]
    link = spaces.Box(0, np.iinfo(np.int32).max, (2,), np.int32)
    return spaces.GraphInstance(
        rows(space.node_space, "nodes"),
        rows(space.edge_space, "edges"),
        None if links is None else rows(link, "edge_links"),
    )
