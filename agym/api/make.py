"""What the caller calls to get environments behind a face."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from agym.api.aio import AsyncEnvs
from agym.api.options.names import check_option_names
from agym.api.options.wiring import OPTIONS, BackendLike, wire
from agym.api.output import Output, make_output_format
from agym.api.sync import Envs
from agym.api.vector.env import AgymVectorEnv
from agym.errors import UsageError
from agym.hosts.factories import EnvLike, find_spec


def make(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    pin: bool = False,
    autoreset: str | AutoresetMode = "disabled",
    output: Output = "list",
    copy: bool = True,
    timeout: float | None = None,
    on_fault: str = "raise",
    max_restarts: int = 10,
    restart_window: float = 60.0,
    replay_limit: int = 10_000,
    capsule_dir: str | os.PathLike[str] | None = None,
    recycle_episodes: int | None = None,
    recycle_rss_mb: float | None = None,
    infos: str = "all",
    episode_stats: bool = False,
    start_method: str = "spawn",
    max_concurrency: int | None = None,
    resources: Mapping[str, float] | None = None,
    placement: str = "spread",
    runtime_env: Mapping[str, Any] | None = None,
    address: str | None = None,
    workers_per_node: int | None = None,
    **env_kwargs: Any,
) -> Envs:
    """Make many environments with the Gym API in batches, for scripts without asyncio.

    Args:
        env: An id (also ``"module:Env-v0"``, where the module registers it, or without a version,
            for the latest), an ``EnvSpec``, a factory, or a list of factories.
        num_envs: How many; not needed for a list. 1 by default.
        backend: Where environments live: ``"serial"``, ``"thread"``, ``"process"``,
            ``"asyncio"`` (coroutine environments), ``"native"`` (a ``VectorEnv``), ``"ray"`` (a Ray
            cluster), an :class:`~agym.backends.base.Backend` class, or ``"auto"``. Of ids whose
            code is Gymnasium's, ALE's or agym's, that makes one environment more, steps it with
            random actions for some 20 ms and chooses what is predicted to be quickest. Any other
            environment is never stepped before you do: it lives where :func:`plan`, which measures
            it in another process, has found it best; if that was never called, in the caller's
            thread (``"serial"``), in threads under :func:`make_async`, or in as many processes as
            ``workers`` says. Nothing is measured either of a single environment of ``make``, where
            ``timeout``, ``on_fault``, ``capsule_dir``, ``pin`` or ``recycle_...`` is given
            (processes then), of those that show a window, of coroutine environments
            (``"asyncio"``) and of a ``VectorEnv`` (``"native"``). The choice is made once, when
            they are made.
        workers: Worker processes or threads; environments are dealt to them in contiguous
            ranges. By default as many processes as there are cores that this one may use, by its
            affinity and its cgroup's CPU quota, and a thread for each of up to 256 environments;
            ``"auto"`` chooses. In a worker process BLAS, OpenMP and torch run on one thread; if you
            have set ``OMP_NUM_THREADS`` yourself, on so many, and likewise ``MKL_NUM_THREADS`` and
            the like.
        pin: Keep each worker process, and those that replace it, on a core: the first on the first
            that this process may use, and so on, around and around.
        autoreset: ``"disabled"`` (a finished environment holds still until it is reset),
            ``"next_step"`` or ``"same_step"``, as in Gymnasium.
        output: ``"list"``, ``"array"`` (stacked NumPy arrays), ``"torch"`` (tensors over the same
            memory, pinned where there is a GPU) or ``"jax"`` (arrays on JAX's default device, in 32
            bits unless ``jax_enable_x64`` is set). Infos are dicts of the environments' own values
            in all. Actions and ids may be lists, arrays or tensors on any device, whatever it is.
        copy: ``True``: a batch is yours for ever. A large one is not even copied: it is the memory
            that environments wrote into, which they get back when its last array is gone (not
            with ``autoreset="disabled"``, another ``on_fault`` than ``"raise"``, or recycling).
            What you write into such a batch, as long as it is the latest, is also what a
            reset of some environments gives for the others. ``False``: views that stay valid
            until the next but one full batch; :func:`agym.debug` finds out who uses them longer.
        timeout: Deadline of one operation, in seconds. What misses it is ended: a worker process is
            killed and replaced, a thread left behind and replaced, a coroutine cancelled and its
            environment made anew. A ``"serial"`` step cannot be ended. The first construction
            has no deadline; a later one has ten, and ten seconds at least.
        on_fault: ``"raise"`` what goes wrong; ``"restart"`` what died, hangs or raised in a step or
            reset, and go on: its row comes back truncated, with reward 0 and a
            :class:`~agym.Fault` as ``info["fault"]``; or ``"replay"``, the same, but
            environments that only shared the worker are brought back to where they were.
        max_restarts: How often a worker, or an environment that raises, is replaced within
            ``restart_window`` before it is given up.
        restart_window: In seconds.
        replay_limit: How many actions of an episode are kept for a replay, per environment.
        capsule_dir: A folder for a small file per fault, from which ``agym replay FILE`` does
            it again.
        recycle_episodes: Replace a worker process, at ends of episodes and without a stall, once
            one of its environments has had so many.
        recycle_rss_mb: Likewise once it takes so many megabytes of memory.
        infos: ``"all"``; ``"episode"``, nothing but ``info["episode"]`` in the step that ends an
            episode; or ``"none"``. What is left out is not sent either. ``fault`` and
            ``final_obs`` are told in any case.
        episode_stats: Tell return, length and seconds of an episode in the step that ends it:
            ``info["episode"] == {"r": ..., "l": ..., "t": ...}``, as Gymnasium's
            ``RecordEpisodeStatistics`` around each environment; under ``"same_step"`` in the
            ``final_info``. An environment that tells an ``"episode"`` of its own keeps that, and
            an episode that a fault has cut off has none. With ``infos="episode"`` it is on.
        start_method: How worker processes start: ``"spawn"``, ``"forkserver"`` or ``"fork"``.
        max_concurrency: How many coroutine environments of one loop may be busy at once.
        resources: With ``"ray"``, what each actor takes of its node: ``num_cpus`` (by default 1, or
            ``workers_per_node``), ``num_gpus``, ``memory`` in bytes, and custom ones by name.
        placement: With ``"ray"``, ``"spread"`` actors over the nodes, or ``"pack"`` them onto few.
        runtime_env: With ``"ray"``, Ray's, for the actors.
        address: With ``"ray"``, the cluster to join, as for ``ray.init``. By default the one that
            this process is in; else the one that Ray finds (``RAY_ADDRESS``, or a cluster on this
            machine); else one is started here, and ended with the last environments in it.
        workers_per_node: With ``"ray"``, one actor per node (or ``workers`` actors) with so many
            worker processes in it, so that one message per node and batch crosses the network.
        **env_kwargs: For the environment, as in ``gymnasium.make``. What is called like an option
            of another library's (``n_envs``, ``wrappers``), or looks like a misspelt one, is
            refused, unless the environment's constructor names that parameter.

    Returns:
        The environments, made and ready for ``reset``.

    Raises:
        UsageError: An argument cannot work.
        MissingExtraError: The library of ``output`` is not installed.
        EnvError: A constructor raised.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 3) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     len(observations)
        3
    """
    options = dict(locals())
    make_output_format(options.pop("output"), copy=copy)  # here only to see that it can be
    return Envs(*wire(**options), output)


def make_async(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    pin: bool = False,
    autoreset: str | AutoresetMode = "next_step",
    output: Output = "array",
    copy: bool = True,
    timeout: float | None = None,
    on_fault: str = "raise",
    max_restarts: int = 10,
    restart_window: float = 60.0,
    replay_limit: int = 10_000,
    capsule_dir: str | os.PathLike[str] | None = None,
    recycle_episodes: int | None = None,
    recycle_rss_mb: float | None = None,
    infos: str = "all",
    episode_stats: bool = False,
    start_method: str = "spawn",
    max_concurrency: int | None = None,
    resources: Mapping[str, float] | None = None,
    placement: str = "spread",
    runtime_env: Mapping[str, Any] | None = None,
    address: str | None = None,
    workers_per_node: int | None = None,
    **env_kwargs: Any,
) -> AsyncEnvs:
    """Make many environments for async code.

    The arguments are those of :func:`make`; the defaults are arrays and Gymnasium's next-step
    autoreset. ``backend="auto"`` chooses at once, before they are opened, and takes
    ``"serial"`` only for batches of less than a millisecond, since that blocks the event loop.

    Returns:
        The environments, to be opened by ``async with`` or ``await``.

    Raises:
        UsageError: An argument cannot work.
    """
    options = dict(locals())
    make_output_format(options.pop("output"), copy=copy)  # here only to see that it can be
    return AsyncEnvs(*wire(**options, blocking=False), output)


def make_vec(env: EnvLike, num_envs: int | None = None, **options: Any) -> AgymVectorEnv:
    """Make environments as a ``gymnasium.vector.VectorEnv``.

    Args:
        env: As for :func:`make`.
        num_envs: How many; not needed for a list. 1 by default.
        **options: Those of :func:`make` (without ``output``), with Gymnasium's next-step
            autoreset by default, and like there ``backend="auto"``; every other keyword goes to
            the environment. For factories whose spaces differ take :class:`AgymVectorEnv` with
            ``observation_mode="different"``.

    Returns:
        The environments, made and ready for ``reset``.

    Raises:
        UsageError: An argument cannot work.
        Exception: What a constructor raised.

    Example:
        >>> import agym
        >>> envs = agym.make_vec("CartPole-v1", 3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 4)
        >>> envs.close()
    """
    ours = {name: options.pop(name) for name in OPTIONS if name in options}
    if ours.pop("output", "array") != "array":
        raise UsageError("make_vec gives arrays, as Gymnasium does: leave output= out")
    return AgymVectorEnv.over(wire(env, num_envs, options, **ours))


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
        OPTIONS,
        where="agym.register",
        instead={"num_envs": "give it to gymnasium.make_vec(id, num_envs)"},
        env=spec,
        program=options.get("backend") == "native",
    )
    spec.vector_entry_point = partial(make_vec, deepcopy(spec), **options)
    spec.id = f"agym/{spec.id.replace('/', '-')}"
    gymnasium.registry[spec.id] = spec
    return str(spec.id)
