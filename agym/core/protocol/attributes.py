"""Attributes of environments, looked up by name through wrappers; names may contain dots."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any


class Placeholder(Enum):
    """Values returned in place of an attribute."""

    METHOD = "the attribute can be called"
    MISSING = "there is no such attribute"


class MissingAttribute(AttributeError):
    """An attribute is missing; the cause is the error of the lookup.

    Distinct from an ``AttributeError`` in an environment's own code, which is a fault.
    """


def look_up(env: Any, name: str | Callable[..., Any]) -> Any:
    """Find an attribute of the environment or of any wrapper around it.

    ``name`` may be a path such as ``"unwrapped.np_random"``, or a function, which is then called
    like a method of the environment.

    Raises:
        MissingAttribute: The attribute does not exist.
    """
    if callable(name):
        return partial(name, env)
    first, *rest = name.split(".")
    try:
        if hasattr(env, "get_wrapper_attr"):
            value = env.get_wrapper_attr(first)
        else:  # a coroutine environment, which has no wrappers
            value = env if first == "unwrapped" else getattr(env, first)
        for part in rest:
            value = getattr(value, part)
    except AttributeError as error:
        raise MissingAttribute(str(error)) from error
    return value


def get_attribute(env: Any, name: str) -> Any:
    """Return an attribute, which may be a method, or a placeholder if it is missing."""
    try:
        return look_up(env, name)
    except AttributeError:
        return Placeholder.MISSING


def peek(env: Any, name: str) -> Any:
    """Return an attribute's value, or a placeholder if it is missing or a method."""
    value = get_attribute(env, name)
    return Placeholder.METHOD if callable(value) else value


def has_attribute(env: Any, name: str) -> bool:
    """Return whether the environment or a wrapper has an attribute, of any kind."""
    return get_attribute(env, name) is not Placeholder.MISSING


def assign(env: Any, name: str, value: Any, *, create: bool = True) -> Placeholder | None:
    """Set an attribute on the wrapper that has it, else on the innermost environment.

    If it does not exist, it is added with ``create``; otherwise a placeholder is returned.
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


# These functions are called with an environment, in its worker, which imports them by name.


def call_method(env: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call a method, if it exists."""
    method = get_attribute(env, name)
    return method if method is Placeholder.MISSING else method(*arguments, **keywords)


def is_wrapped(env: Any, module: str, name: str) -> bool:
    """Return whether a wrapper class is among those around the environment.

    The class is given by name, because importing it takes seconds if it imports torch.
    """
    while env is not None:
        if any((c.__module__, c.__qualname__) == (module, name) for c in type(env).__mro__):
            return True
        env = vars(env).get("env")
    return False


def identity(env: Any) -> tuple[int, int]:
    """Return an identifier of the innermost environment, unique across processes."""
    return os.getpid(), id(look_up(env, "unwrapped"))
