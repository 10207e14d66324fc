"""Functions that an API calls with an environment, where the environment runs.

Workers import them by name, so this module must not import the API.
"""

from __future__ import annotations

import os
from typing import Any

from agym.protocol.attributes import Placeholder, look_up


def get_attribute(env: Any, name: str) -> Any:
    """Return an attribute of the environment or of any wrapper around it, methods included."""
    try:
        return look_up(env, name)
    except AttributeError:
        return Placeholder.MISSING


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute of the outermost wrapper."""
    setattr(env, name, value)


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
