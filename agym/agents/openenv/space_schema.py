"""Gymnasium's spaces as JSON schemas, from which the same spaces can be made again.

A JSON schema has no dtypes and no bounds of single elements. So the schema of a server of agym's
has one more keyword, :data:`KEYWORD`, which others ignore. It is ``null`` for the space of all
objects. Nothing in it is executed, and a wrong description raises ``ValueError``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from agym.agents.openenv.wire import VALUE
from agym.core.hosts.async_env import AnySpace

KEYWORD = "x-agym-space"
# The schema of a state, as OpenEnv's ``/state`` returns it.
STATE = {
    "title": "State",
    "type": "object",
    "properties": {
        "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "step_count": {"type": "integer", "minimum": 0},
    },
}
# The most elements of an array, and the deepest nesting, that another machine may ask for.
MAX_ELEMENTS, MAX_DEPTH = 2**28, 32


def describe_space(space: Space[Any]) -> dict[str, Any] | None:
    """Return a space as JSON, ``None`` if it has no such form.

    Example:
        >>> describe_space(spaces.Discrete(4))
        {'Discrete': {'n': 4, 'start': 0, 'dtype': 'int64'}}
        >>> build_space(describe_space(spaces.Box(0, 255, (2, 2), np.uint8)))
        Box(0, 255, (2, 2), uint8)
    """
    try:
        return _describe(space)
    except TypeError:
        return None


def _describe(space: Space[Any]) -> dict[str, Any]:
    if type(space) is not getattr(spaces, type(space).__name__, None):
        raise TypeError("the additional attributes of a subclass cannot be described")
    match space:
        case spaces.Box():
            bounds = {"low": _numbers(space.low), "high": _numbers(space.high)}
            fields: dict[str, Any] = {"shape": [*space.shape], "dtype": str(space.dtype), **bounds}
        case spaces.Discrete():
            fields = {"n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
        case spaces.MultiDiscrete():
            fields = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            fields["dtype"] = str(space.dtype)
        case spaces.MultiBinary():
            # MultiBinary(1) and MultiBinary([1]) are different to Gymnasium.
            fields = {"shape": [*space.shape], "flat": isinstance(space.n, int)}
        case spaces.Text():
            fields = {"min_length": space.min_length, "max_length": space.max_length}
            fields["characters"] = "".join(space.characters)
        case spaces.Dict():
            if not all(isinstance(key, str) for key in space.spaces):
                raise TypeError("JSON has only text as keys")
            fields = {"spaces": [[key, _describe(part)] for key, part in space.spaces.items()]}
        case spaces.Tuple() | spaces.OneOf():
            fields = {"spaces": [_describe(part) for part in space.spaces]}
        case spaces.Sequence():
            fields = {"feature": _describe(space.feature_space), "stack": space.stack}
        case spaces.Graph():
            edge = None if space.edge_space is None else _describe(space.edge_space)
            fields = {"node": _describe(space.node_space), "edge": edge}
        case _:
            raise TypeError(f"{type(space).__name__} has no description")
    return {type(space).__name__: fields}


def build_space(encoded: Any) -> Space[Any]:
    """Return the space that a description says; :class:`AnySpace` for ``None``.

    Raises:
        ValueError: It is no description, or a wrong one.
    """
    if encoded is None:
        return AnySpace()
    try:
        return _build(encoded, MAX_DEPTH)
    except (AssertionError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"it describes no space: {error!r}") from None


def _build(encoded: Any, depth: int) -> Space[Any]:
    ((kind, fields),) = encoded.items()
    if not depth:
        raise ValueError("a space is nested too deeply")
    match kind:
        case "Box":
            return _box(fields)
        case "Discrete":
            n, start = int(fields["n"]), int(fields["start"])
            return spaces.Discrete(n, start=start, dtype=np.dtype(fields["dtype"]).type)
        case "MultiDiscrete":
            dtype = np.dtype(fields["dtype"])
            nvec, first = np.array(fields["nvec"], dtype), np.array(fields["start"], dtype)
            return spaces.MultiDiscrete(nvec, dtype.type, start=first)
        case "MultiBinary":
            shape = _shape(fields)
            return spaces.MultiBinary(shape[0] if fields["flat"] else list(shape))
        case "Text":
            least, most = int(fields["min_length"]), int(fields["max_length"])
            return spaces.Text(most, min_length=least, charset=str(fields["characters"]))
        case "Dict":
            parts = {str(key): _build(part, depth - 1) for key, part in fields["spaces"]}
            return spaces.Dict(parts)
        case "Tuple":
            return spaces.Tuple([_build(part, depth - 1) for part in fields["spaces"]])
        case "OneOf":
            return spaces.OneOf([_build(part, depth - 1) for part in fields["spaces"]])
        case "Sequence":
            feature = _build(fields["feature"], depth - 1)
            return spaces.Sequence(feature, stack=bool(fields["stack"]))
        case "Graph":
            edge = None if fields["edge"] is None else _build(fields["edge"], depth - 1)
            return spaces.Graph(_build(fields["node"], depth - 1), edge)
    raise ValueError(f"{kind!r} is no space")


def _numbers(bound: np.ndarray[Any, Any]) -> Any:
    """Return bounds as one number if they are all the same, infinity as text."""
    if bound.size and (bound == bound.flat[0]).all():
        return _number(bound.flat[0].item())
    return [_number(value) for value in bound.ravel().tolist()]


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _shape(fields: Any) -> tuple[int, ...]:
    shape = tuple(fields["shape"])
    if any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"a space cannot have the shape {shape}")
    return shape


def _box(fields: Any) -> Space[Any]:
    shape, dtype = _shape(fields), np.dtype(fields["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"a Box cannot have the dtype {dtype}")

    def bound(name: str) -> Any:
        encoded = fields[name]
        if not isinstance(encoded, list):
            return np.full(shape, float(encoded) if isinstance(encoded, str) else encoded, dtype)
        numbers = [float(value) if isinstance(value, str) else value for value in encoded]
        return np.array(numbers, dtype).reshape(shape)

    return spaces.Box(bound("low"), bound("high"), shape, dtype.type)


# ---------------------------------------------------------------- for any client


def object_schema(space: Space[Any], title: str) -> dict[str, Any]:
    """Return the schema of what is sent: an object, whose only field may be ``"value"``.

    Example:
        >>> object_schema(spaces.Discrete(2), "Action")["properties"]
        {'value': {'type': 'integer', 'minimum': 0, 'maximum': 1}}
    """
    schema = space_schema(space)
    if not schema:  # any object
        schema = {"type": "object"}
    elif not isinstance(space, spaces.Dict):
        schema = {"type": "object", "properties": {VALUE: schema}, "required": [VALUE]}
    return {"title": title, **schema, KEYWORD: describe_space(space)}


def space_schema(space: Space[Any]) -> dict[str, Any]:
    """Return the schema of a space's elements; that of an unknown space permits everything."""
    match space:
        case spaces.Discrete():
            first = int(space.start)
            return {"type": "integer", "minimum": first, "maximum": first + int(space.n) - 1}
        case spaces.Box() | spaces.MultiBinary() | spaces.MultiDiscrete():
            return _array_schema(space)
        case spaces.Text():
            return {
                "type": "string", "minLength": space.min_length, "maxLength": space.max_length,
            }  # fmt: skip
        case spaces.Dict():
            fields = {str(key): space_schema(part) for key, part in space.spaces.items()}
            return {"type": "object", "properties": fields, "required": list(fields)}
        case spaces.Tuple():
            parts = [space_schema(part) for part in space.spaces]
            return {"type": "array", "prefixItems": parts, **_length(len(parts))}
        case spaces.Sequence():
            return {
                "type": "array",
                "items": {} if space.stack else space_schema(space.feature_space),
            }
        case spaces.OneOf():
            pairs = [
                {"type": "array", "prefixItems": [{"const": i}, space_schema(part)], **_length(2)}
                for i, part in enumerate(space.spaces)
            ]
            return {"oneOf": pairs}
        case spaces.Graph():
            names = ("nodes", "edges", "edge_links")
            return {"type": "object", "properties": {name: {} for name in names}}
    return {}


def _array_schema(space: Space[Any]) -> dict[str, Any]:
    """Return nested arrays of numbers, with limits if they are the same everywhere."""
    dtype = np.dtype(space.dtype)
    schema: dict[str, Any] = {"type": "number" if dtype.kind == "f" else "integer"}
    if dtype.kind == "b":
        schema = {"type": "boolean"}
    elif isinstance(space, spaces.MultiBinary):
        schema |= {"minimum": 0, "maximum": 1}
    elif isinstance(space, spaces.Box):
        for name, limits in (("minimum", space.low), ("maximum", space.high)):
            if limits.size and np.isfinite(limits.flat[0]) and (limits == limits.flat[0]).all():
                schema[name] = limits.flat[0].item()
    for size in reversed(space.shape or ()):
        schema = {"type": "array", "items": schema, **_length(size)}
    return schema


def _length(size: int) -> dict[str, int]:
    return {"minItems": size, "maxItems": size}
