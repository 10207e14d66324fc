"""Make Gymnasium vector environments, also through ``gymnasium.make_vec``."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from agym.api.options.build import build
from agym.api.options.environments import EnvLike, find_spec, same_games
from agym.api.options.fleet import Fleet
from agym.api.options.names import check_option_names
from agym.api.options.options import (
    OPTION_NAMES,
    Autoreset,
    BackendLike,
    Infos,
    OnFault,
    Options,
    parse_backend,
)
from agym.api.vector.env import AgymVectorEnv
from agym.backends.options import Native
from agym.errors import UsageError, UsageTypeError
from agym.protocol.arguments import check_count


def make_vec(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    autoreset: Autoreset | AutoresetMode = "next_step",
    copy: bool = True,
    infos: Infos = "all",
    episode_stats: bool = False,
    timeout: float | None = None,
    on_fault: OnFault = "raise",
    fleet: Fleet | None = None,
    **env_kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """Make environments as a ``gymnasium.vector.VectorEnv``.

    Example:
        >>> import agym
        >>> envs = agym.make_vec("CartPole-v1", 3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 4)
        >>> envs.close()

    The arguments are those of :func:`make` without ``output``: results are arrays. For factories
    whose spaces differ, use :class:`AgymVectorEnv` with ``observation_mode="different"``.

    Returns:
        The environments, constructed and ready for ``reset``: an :class:`AgymVectorEnv`. For the id
        of a rule book, such as ``"agym/CartPole-v1"``, it is the vector environment of
        :func:`vectorize` itself, which steps all games at once in the caller's thread, unless an
        option needs more: any ``backend``, ``workers``, ``timeout``, ``on_fault``, ``infos``,
        ``episode_stats`` or ``fleet``, ``autoreset="disabled"``, or ``copy=False``.

    Raises:
        UsageError: An argument is invalid.
        Exception: The constructor's own exception.
    """
    if "output" in env_kwargs:
        raise UsageError("make_vec gives arrays, as Gymnasium does: leave output= out")
    options = Options(
        backend, workers, autoreset, "array", copy, infos, episode_stats, timeout, on_fault,
        fleet,
    )  # fmt: skip
    if options.needs_no_engine and same_games(env, env_kwargs):
        check_option_names(env_kwargs, OPTION_NAMES, env=env, is_vector=True)
        count = 1 if num_envs is None else check_count("num_envs", num_envs)
        program: VectorEnv[Any, Any, Any] = gymnasium.make_vec(
            find_spec(env), count, "vector_entry_point",
            autoreset_mode=options.autoreset_mode, **env_kwargs,
        )  # fmt: skip
        return program
    return AgymVectorEnv.over(build(env, num_envs, env_kwargs, options, vector_infos=True))


def register(env_id: str | EnvSpec, **options: Any) -> str:
    """Register an environment so that ``gymnasium.make_vec`` makes it with agym.

    Example:
        >>> import agym, gymnasium
        >>> agym.register("CartPole-v1", backend="serial")
        'agym/CartPole-v1'
        >>> envs = gymnasium.make_vec("agym/CartPole-v1", 3)
        >>> envs.close()

    This is for libraries that call ``gymnasium.make_vec`` with an id. Registering an id again
    replaces its options for the whole process; so does registering an id that a rule book of agym's
    has, such as ``"agym/CartPole-v1"``.

    Args:
        env_id: An id that Gymnasium knows, or an ``EnvSpec``.
        **options: For :func:`make_vec`.

    Returns:
        The new id: ``"agym/CartPole-v1"`` for ``"CartPole-v1"``. ``gymnasium.make`` accepts it too,
        and makes the same environment as before.

    Raises:
        UsageError: There is no such environment, or an option is invalid.
    """
    if not isinstance(env_id, str | EnvSpec):
        raise UsageTypeError(f"env_id={env_id!r} must be an id, or an EnvSpec")
    spec = deepcopy(find_spec(env_id))
    check_option_names(
        options,
        OPTION_NAMES,
        where="agym.register",
        instead={
            "num_envs": "give it to gymnasium.make_vec(id, num_envs)",
            "output": "observations are arrays, as in Gymnasium: leave it out",
        },
        env=spec,
        is_vector=isinstance(parse_backend(options.get("backend", "auto")), Native),
    )
    Options(**{name: value for name, value in options.items() if name in OPTION_NAMES})
    spec.vector_entry_point = partial(make_vec, deepcopy(spec), **options)
    spec.id = f"agym/{spec.id.replace('/', '-')}"
    gymnasium.registry[spec.id] = spec
    return str(spec.id)
