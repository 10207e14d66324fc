"""Make Gymnasium vector environments."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from agym.api.options.build import build, find
from agym.api.options.environments import EnvLike
from agym.api.options.options import (
    AutoresetLike,
    BackendLike,
    Infos,
    OnFault,
    Options,
)
from agym.api.vector.env import AgymVectorEnv
from agym.core.protocol.typing import Array
from agym.errors import UsageError


def make_vec(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    autoreset: AutoresetLike = "next_step",
    copy: bool = True,
    infos: Infos = "all",
    episode_stats: bool = False,
    timeout: float | None = None,
    on_fault: OnFault = "raise",
    rate_limit: float | None = None,
    **env_kwargs: Any,
) -> VectorEnv[Any, Any, Array]:
    """Make environments as a ``gymnasium.vector.VectorEnv``.

    Example:
        >>> import agym
        >>> envs = agym.make_vec("CartPole-v1", 3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 4)
        >>> envs.close()

    The arguments are those of :func:`make` without ``output``: results are arrays
    (:doc:`the four ways to make environments </reference/making>`). For factories whose spaces
    differ, use :class:`AgymVectorEnv` with ``observation_mode="different"``.

    Returns:
        An :class:`AgymVectorEnv`, ready for ``reset``. For the id of a rule book, such as
        ``"agym/CartPole-v1"``, the vector environment of :func:`vectorize`, which steps all games
        at once in the caller's thread, unless you pass ``backend``, ``workers``, ``timeout``,
        ``on_fault``, ``infos``, ``episode_stats``, ``rate_limit``, ``autoreset="disabled"`` or
        ``copy=False``.

    Raises:
        UsageError: An argument is invalid.
        Exception: The constructor raised it.
    """
    if "output" in env_kwargs:
        raise UsageError("make_vec returns arrays, as Gymnasium does: leave output= out")
    options = Options(
        backend, workers, autoreset, "array", copy, infos, episode_stats, timeout, on_fault,
        rate_limit,
    )  # fmt: skip
    found = find(env, num_envs, env_kwargs, options)
    native, factories = found
    if native.spec is not None and options.needs_no_engine:
        envs: VectorEnv[Any, Any, Array] = gymnasium.make_vec(
            native.spec, len(factories), "vector_entry_point",
            autoreset_mode=options.autoreset_mode,
        )  # fmt: skip
        if native.is_twin:
            envs.verdict = native.why  # type: ignore[attr-defined]
        return envs
    engine = build(env, num_envs, env_kwargs, options, vector_infos=True, found=found)
    return AgymVectorEnv.over(engine)
