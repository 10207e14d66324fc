"""agym's environments below the wrappers of other libraries, for the tools."""

from __future__ import annotations

from typing import Any

from agym.api.base import BaseEnvs
from agym.errors import UsageError


def unwrap(envs: Any, caller: str) -> BaseEnvs[Any, Any]:
    """Return the API object of open environments that agym runs.

    They may be wrapped: by Gymnasium's vector wrappers, or by Stable-Baselines3's.

    Raises:
        UsageError: ``caller``, a name of agym's, was given something else.
        ClosedError: The environments are not open.
    """
    api = envs
    if not isinstance(envs, BaseEnvs):
        api = getattr(getattr(envs, "unwrapped", envs), "runner", None)
    if not isinstance(api, BaseEnvs):
        remedy = "pass those of agym.make, agym.make_async, agym.make_vec or agym.sb3"
        if getattr(getattr(envs, "unwrapped", None), "same_games", False):
            remedy = "use agym.make_vec(..., backend='native'), which plays the same games"
        raise UsageError(
            f"{caller} takes environments that agym runs, not {type(envs).__name__}: {remedy}"
        )
    api._engine.checks.opened()
    return api
