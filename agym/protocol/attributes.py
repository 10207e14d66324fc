"""Attributes of environments by name, through their wrappers, dots allowed."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any


class Placeholder(Enum):
    """Answers that stand for a value that is better not sent."""

    METHOD = "the attribute can be called"
    MISSING = "there is no such attribute"


class MissingAttribute(AttributeError):
    """There is no such attribute; the cause is the error of whatever looked it up.

    It is apart from an ``AttributeError`` in an environment's own code, which is a fault.
    """


def look_up(env: Any, name: str | Callable[..., Any]) -> Any:
    """Find an attribute of the environment or of any wrapper around it.

    Args:
        env: The environment.
        name: ``"gravity"``, or a path such as ``"unwrapped.np_random"``. A function stands for a
            method that the environment lacks.

    Raises:
        MissingAttribute: There is none.
    """
    if callable(name):
        return partial(name, env)
    first, *rest = name.split(".")
    try:
        if hasattr(env, "get_wrapper_attr"):
            value = env.get_wrapper_attr(first)
        else:  # a coroutine environment: it is no Gymnasium class, and has no wrappers
            value = env if first == "unwrapped" else getattr(env, first)
        for part in rest:
            value = getattr(value, part)
    except AttributeError as error:
        raise MissingAttribute(str(error)) from error
    return value


def peek(env: Any, name: str) -> Any:
    """Look an attribute up to send it to the caller: a marker if it is missing or a method."""
    try:
        value = look_up(env, name)
    except AttributeError:
        return Placeholder.MISSING
    return Placeholder.METHOD if callable(value) else value


def has_attribute(env: Any, name: str) -> bool:
    """Whether the environment or a wrapper has an attribute, which need not be one to send."""
    try:
        look_up(env, name)
    except AttributeError:
        return False
    return True


def assign(env: Any, name: str, value: Any, *, create: bool = True) -> Placeholder | None:
    """Set an attribute: where it exists among the wrappers, else on the innermost environment.

    Args:
        env: The environment.
        name: The attribute, dots allowed.
        value: Its value.
        create: Add the attribute where there is none.

    Returns:
        A marker if there is none, and none was added.
    """
    if not create and not has_attribute(env, name):
        return Placeholder.MISSING
    path, _, last = name.rpartition(".")
    if path:
        setattr(look_up(env, path), last, value)
    elif not hasattr(env, "set_wrapper_attr"):
        setattr(env, name, value)
    elif not env.set_wrapper_attr(name, value, force=False):
        setattr(env.unwrapped, name, value)
    return None
