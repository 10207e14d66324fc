"""The functions that make environments, one for each API."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from agym.api.aio import AsyncEnvs
from agym.api.options.build import build
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
from agym.api.output import Output
from agym.api.sync import Envs
from agym.backends.options import Native
from agym.hosts.factories import EnvLike, find_spec

if TYPE_CHECKING:
    from agym.api.vector.env import AgymVectorEnv


def make(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    autoreset: Autoreset | AutoresetMode = "disabled",
    output: Output = "list",
    copy: bool = True,
    infos: Infos = "all",
    episode_stats: bool = False,
    timeout: float | None = None,
    on_fault: OnFault = "raise",
    **env_kwargs: Any,
) -> Envs:
    """Make many environments with the Gym API in batches, for scripts without asyncio.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 3) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     len(observations)
        3

    Args:
        env: An id (also ``"module:Env-v0"``, where the module registers it, or without a version,
            for the latest), an ``EnvSpec``, a factory, or a list of factories.
        num_envs: Number of environments; not needed for a list. 1 by default.
        backend: Where environments run: ``"serial"``, ``"thread"``, ``"process"``, ``"asyncio"``
            (coroutine environments), ``"native"`` (a ``VectorEnv``), ``"ray"`` (a Ray cluster), an
            object of :mod:`agym.backends` with that backend's own options, such as
            ``agym.backends.Process(pin=True)``, a subclass of
            :class:`~agym.backends.base.Backend`, or ``"auto"``: the backend that is predicted to
            be the fastest (see :func:`plan`).
        workers: Number of worker processes or threads, among which environments are divided in
            contiguous ranges. By default as many processes as this one may use cores, by its
            affinity and its cgroup's CPU quota, and a thread for each of up to 256 environments.
        autoreset: What follows an episode's end: ``"disabled"`` (a finished environment is held
            until it is reset), ``"next_step"`` or ``"same_step"``, as in Gymnasium.
        output: ``"list"``, ``"array"`` (stacked NumPy arrays), ``"torch"`` (tensors over the same
            memory, pinned where there is a GPU) or ``"jax"`` (arrays on JAX's default device).
            Actions may be lists, arrays or tensors in any case.
        copy: ``True``: a batch is yours for ever. ``False``: views that stay valid until the next
            but one full batch; :func:`agym.debug` finds out who uses them longer.
        infos: ``"all"``; ``"episode"``, nothing but ``info["episode"]`` in the step that ends an
            episode; or ``"none"``. ``fault`` and ``final_obs`` are reported in any case.
        episode_stats: Report return, length and seconds of an episode in the step that ends it:
            ``info["episode"] == {"r": ..., "l": ..., "t": ...}``, as Gymnasium's
            ``RecordEpisodeStatistics`` around each environment.
        timeout: Deadline of one operation, in seconds. What misses it is ended and replaced: a
            worker process is killed, a thread abandoned, a coroutine cancelled. A ``"serial"`` step
            cannot be ended.
        on_fault: ``"raise"``, ``"restart"`` or ``"replay"``: see :class:`FaultPolicy`, which also
            has limits and a folder for capsules.
        **env_kwargs: For the environment, as in ``gymnasium.make``. A keyword that is called like
            an option of another library (``n_envs``, ``wrappers``), or looks like a misspelt
            option, is refused, unless the environment's constructor names that parameter.

    Returns:
        The environments, constructed and ready for ``reset``.

    Raises:
        UsageError: An argument cannot work.
        MissingExtraError: The library of ``output`` is not installed.
        EnvError: A constructor raised.
    """
    options = Options(
        backend, workers, autoreset, output, copy, infos, episode_stats, timeout, on_fault
    )
    return Envs(*build(env, num_envs, env_kwargs, options), output)


def make_async(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    autoreset: Autoreset | AutoresetMode = "next_step",
    output: Output = "array",
    copy: bool = True,
    infos: Infos = "all",
    episode_stats: bool = False,
    timeout: float | None = None,
    on_fault: OnFault = "raise",
    **env_kwargs: Any,
) -> AsyncEnvs:
    """Make many environments for async code.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 3) as envs:
        ...         observations, infos = await envs.reset(seed=0)
        ...         return observations.shape
        >>> agym.run(main())
        (3, 4)

    The arguments are those of :func:`make`; the defaults are arrays and Gymnasium's next-step
    autoreset. ``backend="auto"`` chooses at once, before they are opened, and takes
    ``"serial"`` only for batches of less than a millisecond, since that blocks the event loop.

    Returns:
        The environments, to be opened by ``async with`` or ``await``.

    Raises:
        UsageError: An argument cannot work.
    """
    options = Options(
        backend, workers, autoreset, output, copy, infos, episode_stats, timeout, on_fault
    )
    return AsyncEnvs(*build(env, num_envs, env_kwargs, options, blocking=False), output)


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
    **env_kwargs: Any,
) -> AgymVectorEnv:
    """Make environments as a ``gymnasium.vector.VectorEnv``.

    Example:
        >>> import agym
        >>> envs = agym.make_vec("CartPole-v1", 3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 4)
        >>> envs.close()

    The arguments are those of :func:`make`, without ``output``: results are arrays. For factories
    whose spaces differ, take :class:`AgymVectorEnv` with ``observation_mode="different"``.

    Returns:
        The environments, constructed and ready for ``reset``.

    Raises:
        UsageError: An argument cannot work.
        Exception: What a constructor raised.
    """
    options = Options(
        backend, workers, autoreset, "array", copy, infos, episode_stats, timeout, on_fault
    )
    from agym.api.vector.env import AgymVectorEnv

    return AgymVectorEnv.over(build(env, num_envs, env_kwargs, options))


def register(env_id: str | EnvSpec, **options: Any) -> str:
    """Register an environment with Gymnasium, so that ``gymnasium.make_vec`` makes it by agym.

    For libraries that call ``gymnasium.make_vec`` with an id. Registering an id again replaces its
    options for everybody.

    Args:
        env_id: An id that Gymnasium knows, or an ``EnvSpec``.
        **options: For :func:`make_vec`.

    Returns:
        The new id: ``"agym/CartPole-v1"`` for ``"CartPole-v1"``; with it, ``gymnasium.make`` makes
        the same environment as before.

    Raises:
        UsageError: There is no such environment, or no such option.

    Example:
        >>> import agym, gymnasium
        >>> agym.register("CartPole-v1", backend="serial")
        'agym/CartPole-v1'
        >>> envs = gymnasium.make_vec("agym/CartPole-v1", 3)
        >>> envs.close()
    """
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
        program=isinstance(parse_backend(options.get("backend", "auto")), Native),
    )
    spec.vector_entry_point = partial(make_vec, deepcopy(spec), **options)
    spec.id = f"agym/{spec.id.replace('/', '-')}"
    gymnasium.registry[spec.id] = spec
    return str(spec.id)
