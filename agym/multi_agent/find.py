"""The ``env`` argument: finds the function that makes a PettingZoo environment."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Literal

from agym import UsageError
from agym.core._system.extras import require

Api = Literal["parallel", "aec"]
OTHER: dict[Api, Api] = {"parallel": "aec", "aec": "parallel"}

# The function of a PettingZoo module that makes an environment with the API.
FUNCTION = {"parallel": "parallel_env", "aec": "env"}


def find(env: Any, api: Api) -> Callable[..., Any]:
    """Return a function that makes the environment.

    Raises:
        UsageError: There is no such environment, or it has only the other API.
        MissingExtraError: PettingZoo is not installed.
    """
    make = _function(env, api)
    if make is not None:
        return make
    remedy = "use 'family/name-v0' of PettingZoo, 'package/module_v0', or a function"
    if _function(env, OTHER[api]) is not None:
        remedy = f"it has only the other API: use agym.make_{OTHER[api]}"
    raise UsageError(f"env={env!r} can't be found as a PettingZoo environment: {remedy}")


def _function(env: Any, api: Api) -> Callable[..., Any] | None:
    """Return the function that makes an environment, of an id, a module, a class or a function."""
    make = env
    if isinstance(env, str):
        make = _look_up(env, api)
    elif isinstance(env, ModuleType):
        make = getattr(env, FUNCTION[api], None)
    return make if callable(make) else None


def _look_up(name: str, api: Api) -> Callable[..., Any] | None:
    """Look up an id in PettingZoo's registry, or else import it as a module."""
    pettingzoo = require("pettingzoo", "multiagent")
    env_id = re.sub(r"_(v\d+)$", r"-\1", name)
    specs = {a: getattr(pettingzoo, f"{a}_registry", {}).get(env_id) for a in OTHER}  # since 1.27
    if any(specs.values()):
        return partial(pettingzoo.make, api, specs[api]) if specs[api] else None
    path = re.sub(r"-(v\d+)$", r"_\1", name).replace("/", ".")
    for module in (f"pettingzoo.{path}", path):
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            if error.name is not None and f"{module}.".startswith(f"{error.name}."):
                continue  # there is no such module
            raise UsageError(f"env={name!r} can't be imported: {error}") from error
        return getattr(found, FUNCTION[api], None)
    return None
