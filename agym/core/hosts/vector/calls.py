"""Calls, attributes and rendering of a vector environment: one value per environment.

If a vector environment has ``call``, ``get_attr`` and ``set_attr``, as Gymnasium's own have, each
of its environments returns a value. Any other is treated as one VectorEnv, whose attributes are
shared by all of its environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agym.core.protocol import attributes
from agym.core.protocol.attributes import Placeholder
from agym.core.protocol.messages.failures import name_range
from agym.core.protocol.messages.operations import Call
from agym.core.protocol.messages.resets import Options, PerEnvOptions
from agym.errors import UsageError


def options_of_all(options: Options, ids: range) -> dict[str, Any] | None:
    """Return the options of a reset, which must be the same for all environments of a VectorEnv.

    Raises:
        UsageError: The options differ.
    """
    if not isinstance(options, PerEnvOptions):
        return options
    first = options.get(ids[0])
    if any(options.get(slot) != first for slot in ids):
        raise UsageError(
            f"{name_range(ids)} are one VectorEnv: pass the same options for all of them"
        )
    return first


def render(env: Any, count: int, ids: range | None = None) -> Sequence[Any]:
    """Render ``count`` environments: those of ``ids``, if ``render`` accepts them, else all.

    Raises:
        ValueError: The number of frames is not ``count``.
    """
    frames = env.render() if ids is None else env.render(env_ids=np.array(ids))
    if frames is None:  # no render mode, or a window
        return [None] * count
    if len(frames) != count:
        raise ValueError(f"render returned {len(frames)} frames for {count} environments")
    return list(frames)


def call(env: Any, count: int, message: Call) -> Sequence[Any]:
    """Call a method or read an attribute. A function is called like a method of ``env``."""
    name, arguments, keywords = message.arguments(0)
    if callable(name) and hasattr(env, "call_function"):
        return _each(env.call_function(name, *arguments, **keywords), count, name)
    if callable(name):
        return [name(env, *arguments, **keywords)] * count
    if hasattr(env, "call"):
        return _each(env.call(name, *arguments, **keywords), count, name)
    value = attributes.look_up(_layer(env, name), name)
    return [value(*arguments, **keywords) if callable(value) else value] * count


def peek(env: Any, count: int, name: str) -> Sequence[Any]:
    """Return an attribute's values, or placeholders if it is missing or a method."""
    if not hasattr(env, "get_attr"):
        return [attributes.peek(_layer(env, name), name)] * count
    try:
        return _each(env.get_attr(name), count, name)
    except AttributeError:
        return [Placeholder.MISSING] * count


def assign(env: Any, name: str, values: list[Any], *, create: bool) -> Sequence[Placeholder | None]:
    """Set an attribute to a value per environment.

    If it does not exist, it is added with ``create``; otherwise placeholders are returned.

    Raises:
        UsageError: The values of a shared attribute differ.
    """
    if not create and any(value is Placeholder.MISSING for value in peek(env, len(values), name)):
        return [Placeholder.MISSING] * len(values)
    if hasattr(env, "set_attr"):
        env.set_attr(name, values)
        return [None] * len(values)
    value = values[0]
    if not all(other is value or np.array_equal(other, value) for other in values):
        raise UsageError(
            f"{name!r} is one attribute of {type(env).__name__}, which is one VectorEnv for"
            f" {len(values)} environments: set one value for all of them"
        )
    attributes.assign(_layer(env, name), name, value)
    return [None] * len(values)


def _layer(env: Any, name: str) -> Any:
    """Return the outermost wrapper that has an attribute, else the innermost environment.

    Wrappers of vector environments do not look up attributes in the environment that they wrap.
    """
    first = name.partition(".")[0]
    while env is not env.unwrapped and (first == "unwrapped" or not hasattr(env, first)):
        env = env.env
    return env


def _each(values: Any, count: int, name: str) -> Sequence[Any]:
    if not isinstance(values, list | tuple) or len(values) != count:
        raise ValueError(f"{name!r} did not return one value for each of {count} environments")
    return values
