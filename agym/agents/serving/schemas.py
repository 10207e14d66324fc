"""Gymnasium's spaces as JSON schemas, for OpenEnv's ``/schema``."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from agym.agents.openenv.space_schema import KEYWORD, describe_space
from agym.agents.openenv.wire import VALUE

STATE = {
    "title": "State",
    "type": "object",
    "properties": {
        "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "step_count": {"type": "integer", "minimum": 0},
    },
}


def object_schema(space: Space[Any], title: str) -> dict[str, Any]:
    """Return the schema of what is sent: an object, whose only field may be ``"value"``.

    Example:
        >>> object_schema(spaces.Discrete(2), "Action")["properties"]
        {'value': {'type': 'integer', 'minimum': 0, 'maximum': 1}}
    """
    schema = space_schema(space)
    if not isinstance(space, spaces.Dict):
        if not schema:  # any object
            return {"title": title, "type": "object", KEYWORD: describe_space(space)}
        schema = {"type": "object", "properties": {VALUE: schema}, "required": [VALUE]}
    return {"title": title, **schema, KEYWORD: describe_space(space)}


def space_schema(space: Space[Any]) -> dict[str, Any]:
    """Return the schema of a space's elements; that of an unknown space permits everything."""
    match space:
        case spaces.Discrete():
            first = int(space.start)
            return {"type": "integer", "minimum": first, "maximum": first + int(space.n) - 1}
        case spaces.Box() | spaces.MultiBinary() | spaces.MultiDiscrete():
            return _array(space)
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


def _array(space: Space[Any]) -> dict[str, Any]:
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
