"""Functions that a face has called with an environment, in the place where that lives.

Workers import them by name, so they are apart from what the face itself imports.
"""

from __future__ import annotations

import os
from typing import Any

from agym.protocol.attributes import Placeholder, look_up


def get_attribute(env: Any, name: str) -> Any:
    """Read an attribute of the environment or of any wrapper around it, a method too."""
    try:
        return look_up(env, name)
    except AttributeError:
        return Placeholder.MISSING


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute of the outermost wrapper."""
    setattr(env, name, value)


def call_method(env: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call a method."""
    method = get_attribute(env, name)
    return method if method is Placeholder.MISSING else method(*arguments, **keywords)


def is_wrapped(env: Any, module: str, name: str) -> bool:
    """Whether a wrapper class is among those around the environment.

    The class is given by name, since to import it takes seconds where that brings torch along.
    """
    while env is not None:
        if any((c.__module__, c.__qualname__) == (module, name) for c in type(env).__mro__):
            return True
        env = vars(env).get("env")
    return False


def identity(env: Any) -> tuple[int, int]:
    """What tells the innermost environment from every other one."""
    return os.getpid(), id(look_up(env, "unwrapped"))
