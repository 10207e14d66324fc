"""What a caller's types make of the dicts of the protocol: observations in, actions out.

A type is a pydantic model, a dataclass, a function, or the name of one field. pydantic is used
through its models alone, and is not imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space, spaces

from agym.agents.openenv.space_json import from_json
from agym.errors import UsageError, UsageTypeError

# A pydantic model, a dataclass, a function, the name of a field, or None for dicts as they come.
Typed = type | Callable[..., Any] | str | None

# Fields of the protocol that are not part of an observation; typed observations may declare them.
RESULT_FIELDS = ("reward", "done", "metadata")


def observation_reader(kind: Typed) -> Callable[[dict[str, Any]], Any]:
    """Return the function that makes an observation of the data of an answer.

    The data has ``"observation"``, a dict of fields, and ``"reward"``, ``"done"``, ``"metadata"``.

    Raises:
        UsageTypeError: ``kind`` is none of :data:`Typed`.
    """
    if kind is None:
        return lambda data: data["observation"]
    if isinstance(kind, str):
        return lambda data: _field(data["observation"], kind)
    declared = _declared_fields(kind)
    if declared is not None:
        return lambda data: _construct(kind, declared, data)
    if callable(kind):
        return lambda data: kind(data["observation"])
    raise UsageTypeError(
        f"observation={kind!r} must be a pydantic model, a dataclass, a function of a dict, or the"
        " name of a field"
    )


def action_writer(kind: Typed) -> Callable[[Any], Any]:
    """Return the function that makes the fields of an action, a dict, of what ``step`` is given.

    Raises:
        UsageTypeError: ``kind`` is none of :data:`Typed`.
    """
    if kind is None:
        return _as_fields
    if isinstance(kind, str):
        return lambda action: {kind: action}
    if _declared_fields(kind) is not None:
        return lambda action: _as_fields(_validated(kind, action))
    if callable(kind):
        return lambda action: _as_fields(kind(action))
    raise UsageTypeError(
        f"action={kind!r} must be a pydantic model, a dataclass, a function that returns a dict, or"
        " the name of a field"
    )


def _declared_fields(kind: Any) -> frozenset[str] | None:
    """Return the fields of a model or dataclass, ``None`` for anything else."""
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind) if field.init)
    fields = getattr(kind, "model_fields", None)
    return frozenset(fields) if isinstance(fields, Mapping) else None


def _field(fields: Any, name: str) -> Any:
    try:
        return fields[name]
    except (KeyError, TypeError):
        has = sorted(fields) if isinstance(fields, dict) else type(fields).__name__
        raise UsageError(
            f"observation={name!r} names no field of the server's observations, which have {has}"
        ) from None


def _construct(kind: Any, declared: frozenset[str], data: dict[str, Any]) -> Any:
    fields = dict(data["observation"])
    for name in RESULT_FIELDS:
        if name not in declared:
            fields.pop(name, None)
        elif name not in fields and data.get(name) is not None:
            fields[name] = data[name]
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        raise UsageError(
            f"observation={kind.__name__} cannot be made of the server's observation, which has the"
            f" fields {sorted(fields)}: {error}"
        ) from error


def _validated(kind: Any, action: Any) -> Any:
    if isinstance(action, kind):
        return action
    if not isinstance(action, Mapping):
        raise UsageTypeError(
            f"an action must be a {kind.__name__} (action={kind.__name__}), or a dict of its"
            f" fields, not {type(action).__name__}"
        )
    try:
        return kind(**action)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the action {dict(action)!r} is no {kind.__name__}: {error}") from error


def _as_fields(action: Any) -> dict[str, Any]:
    if isinstance(action, Mapping):
        return dict(action)
    if dataclasses.is_dataclass(action) and not isinstance(action, type):
        return dataclasses.asdict(action)
    dump = getattr(action, "model_dump", None)
    if callable(dump):
        fields: dict[str, Any] = dump(mode="json")
        return fields
    raise UsageTypeError(
        f"an action must be a dict, a dataclass or a pydantic model, not {type(action).__name__}:"
        " pass agym.openenv(url, action='NAME'), where NAME is the field that it is for, or a"
        " function that makes a dict of it"
    )


def as_element(space: Space[Any], value: Any) -> Any:
    """Return the element of a space that the fields of an observation describe.

    Of an object the fields that the space names are taken, since a server adds its own.

    Raises:
        UsageError: A field is missing, or does not fit.
    """
    return from_json(space, _selected(space, value), "the observation")


def _selected(space: Space[Any], value: Any) -> Any:
    if not isinstance(space, spaces.Dict) or not isinstance(value, dict):
        return value
    return {key: _selected(part, value[key]) for key, part in space.items() if key in value}
