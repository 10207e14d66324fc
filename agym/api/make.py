"""Make environments, load them from a file, and find them under wrappers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from agym.api.aio import AsyncEnvs
from agym.api.handles import Handle
from agym.api.options.build import build
from agym.api.options.environments import EnvLike
from agym.api.options.options import AutoresetLike, BackendLike, Infos, OnFault, Options
from agym.api.output import Output
from agym.api.sync import Envs
from agym.core._system.files import read_pickle, write_pickle
from agym.core.engine.snapshots import Snapshot
from agym.errors import UsageError

if TYPE_CHECKING:
    import jax
    import torch

# The types of a batch's observations by ``output=``, unless an annotation says otherwise: nested
# observations need one, such as ``envs: agym.Envs[dict[str, Floats], Actions]``.
ListObs = TypeVar("ListObs", default=list[Any])
ArrayObs = TypeVar("ArrayObs", default=NDArray[Any])
TensorObs = TypeVar("TensorObs", default="torch.Tensor")
JaxObs = TypeVar("JaxObs", default="jax.Array")
AnyActions = TypeVar("AnyActions", default=Any)

# The attributes in which wrappers of agym, Gymnasium and Stable-Baselines3 keep the wrapped object.
WRAPPED = ("runner", "env", "venv")
MAX_WRAPPERS = 100


@dataclass(frozen=True)
class Recipe:
    """The arguments of :func:`agym.make` or :func:`agym.make_async`.

    Attributes:
        env: The argument of the same name.
        num_envs: The argument of the same name.
        env_kwargs: Keywords for the environments.
        options: All other arguments.
        blocking: ``True`` for ``make``, ``False`` for ``make_async``.
    """

    env: EnvLike
    num_envs: int | None
    env_kwargs: dict[str, Any]
    options: Options
    blocking: bool

    def make(self) -> Any:
        """Make the environments: ``Envs`` if ``blocking``, else ``AsyncEnvs``."""
        engine = build(
            self.env, self.num_envs, self.env_kwargs, self.options, blocking=self.blocking
        )
        envs = (Envs if self.blocking else AsyncEnvs)(engine, self.options.output)
        envs._recipe = self
        return envs

    def save(self, path: str | os.PathLike[str], snapshots: list[Snapshot]) -> None:
        """Write the recipe and the states of the environments to a file."""
        head = {
            "env": snapshots[0].env,
            "num_envs": len(snapshots),
            "versions": snapshots[0].versions,
        }
        write_pickle("run", path, (self, snapshots), head)


@overload
def make(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["list"] = ...,
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> Envs[ListObs, AnyActions, list[float], list[bool]]: ...  # fmt: skip


@overload
def make(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["array"],
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> Envs[ArrayObs, AnyActions, NDArray[np.float64], NDArray[np.bool_]]: ...  # fmt: skip


@overload
def make(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["torch"],
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> Envs[TensorObs, AnyActions, torch.Tensor, torch.Tensor]: ...  # fmt: skip


@overload
def make(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["jax"],
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> Envs[JaxObs, AnyActions, jax.Array, jax.Array]: ...  # fmt: skip


@overload
def make(
    env: EnvLike, num_envs: int | None = ..., *, output: Output,
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> Envs: ...  # fmt: skip


def make(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    autoreset: AutoresetLike = "disabled",
    output: Output = "list",
    copy: bool = True,
    infos: Infos = "all",
    episode_stats: bool = False,
    timeout: float | None = None,
    on_fault: OnFault = "raise",
    rate_limit: float | None = None,
    **env_kwargs: Any,
) -> Envs:
    """Make a batch of environments with Gym's ``reset`` and ``step``, for code without asyncio.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 3) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     len(observations)
        3

    It returns lists, and a finished environment waits until it is reset. :func:`make_async`,
    :func:`make_vec` and :func:`agym.sb3.make_vec_env` return arrays, and reset environments: see
    :doc:`the table of the four ways to make environments </reference/making>`.

    Args:
        env: An id (``"module:Env-v0"`` imports the module that registers it; an id without a
            version is the latest version), an ``EnvSpec``, a function or class that makes an
            environment (a factory), or a list of factories.
        num_envs: Number of environments, 1 by default; not needed for a list.
        backend: Where environments run: ``"serial"`` (in this thread), ``"thread"``, ``"process"``,
            ``"asyncio"`` (coroutine environments), ``"vector"`` (a ``VectorEnv``), ``"twin"`` (an
            :doc:`exact twin </tutorials/twins>`), ``"ray"`` (a Ray cluster), or ``"auto"``: a twin
            if there is one, else ``"serial"``, unless another backend is clearly faster (see
            :func:`plan`). Or an object of :mod:`agym.backends` with that backend's options, such as
            ``agym.backends.Process(pin=True)``, or of your own subclass of
            :class:`~agym.backends.BackendSpec`.
        workers: Number of worker processes or threads; each gets a contiguous range of
            environments. By default one process per core that this process may use, by its affinity
            and its cgroup's CPU quota, or one thread per environment up to 256.
        autoreset: What follows an episode's end: ``"disabled"`` (the environment waits until it is
            reset), ``"next_step"`` or ``"same_step"``, as in Gymnasium.
        output: ``"list"``, ``"array"`` (stacked NumPy arrays), ``"torch"`` (tensors over the same
            memory, pinned if there is a GPU) or ``"jax"`` (arrays on JAX's default device).
            Actions may always be lists, arrays or tensors.
        copy: ``True`` for batches that never change. ``False`` for views, which are faster and
            valid until the second full batch after theirs.
        infos: ``"all"``; ``"episode"`` for only ``info["episode"]`` in the step that ends an
            episode; or ``"none"``. ``fault`` and ``final_obs`` are always reported.
        episode_stats: Report return, length and seconds of an episode in the step that ends it:
            ``info["episode"] == {"r": ..., "l": ..., "t": ...}``, as Gymnasium's
            ``RecordEpisodeStatistics`` does around each environment.
        timeout: Deadline of one operation, in seconds. After it, a worker process is killed and
            replaced, a thread is abandoned, and a coroutine is cancelled. A ``"serial"`` step can't
            be interrupted.
        on_fault: What to do when an environment fails: ``"raise"``, ``"restart"`` or ``"replay"``,
            or a :class:`FaultPolicy`, which also has limits and a folder for records of failures.
        rate_limit: Calls of ``step`` and ``reset`` per second, over all environments of one kind
            (an id, a class, a factory) and all workers. A call beyond the limit waits; this time
            doesn't count towards ``timeout``.
        **env_kwargs: For the environment, as in ``gymnasium.make``. A keyword is refused if it is
            the name of another library's option (``n_envs``, ``wrappers``) or looks like a misspelt
            option, unless the environment's constructor has a parameter of that name.

    Returns:
        The environments, constructed and ready for ``reset``.

    Raises:
        UsageError: An argument is invalid.
        MissingExtraError: The library of ``output`` is not installed.
        EnvError: A constructor raised.
    """
    options = Options(
        backend, workers, autoreset, output, copy, infos, episode_stats, timeout, on_fault,
        rate_limit,
    )  # fmt: skip
    envs: Envs = Recipe(env, num_envs, env_kwargs, options, blocking=True).make()
    return envs


@overload
def make_async(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["list"],
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> AsyncEnvs[ListObs, AnyActions, list[float], list[bool]]: ...  # fmt: skip


@overload
def make_async(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["array"] = ...,
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> AsyncEnvs[ArrayObs, AnyActions, NDArray[np.float64], NDArray[np.bool_]]: ...  # fmt: skip


@overload
def make_async(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["torch"],
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> AsyncEnvs[TensorObs, AnyActions, torch.Tensor, torch.Tensor]: ...  # fmt: skip


@overload
def make_async(
    env: EnvLike, num_envs: int | None = ..., *, output: Literal["jax"],
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> AsyncEnvs[JaxObs, AnyActions, jax.Array, jax.Array]: ...  # fmt: skip


@overload
def make_async(
    env: EnvLike, num_envs: int | None = ..., *, output: Output,
    backend: BackendLike = ..., workers: int | None = ..., autoreset: AutoresetLike = ...,
    copy: bool = ..., infos: Infos = ..., episode_stats: bool = ..., timeout: float | None = ...,
    on_fault: OnFault = ..., rate_limit: float | None = ..., **env_kwargs: Any,
) -> AsyncEnvs: ...  # fmt: skip


def make_async(
    env: EnvLike,
    num_envs: int | None = None,
    *,
    backend: BackendLike = "auto",
    workers: int | None = None,
    autoreset: AutoresetLike = "next_step",
    output: Output = "array",
    copy: bool = True,
    infos: Infos = "all",
    episode_stats: bool = False,
    timeout: float | None = None,
    on_fault: OnFault = "raise",
    rate_limit: float | None = None,
    **env_kwargs: Any,
) -> AsyncEnvs:
    """Make a batch of environments for async code.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 3) as envs:
        ...         observations, infos = await envs.reset(seed=0)
        ...         return observations.shape
        >>> agym.run(main())
        (3, 4)

    The arguments are those of :func:`make`; the defaults are arrays and Gymnasium's next-step
    autoreset (:doc:`the four ways to make environments </reference/making>`).

    ``backend="auto"`` chooses in this call, before the environments are opened. It chooses
    ``"serial"``, which blocks the event loop, only for batches of less than a millisecond, or for a
    factory that returns the same environment each time. It assumes that your program computes
    nothing while the environments step. If it does, for about as long as a batch takes, use
    ``backend="process"``.

    Returns:
        The environments, to be opened by ``async with`` or ``await``.

    Raises:
        UsageError: An argument is invalid.
    """
    options = Options(
        backend, workers, autoreset, output, copy, infos, episode_stats, timeout, on_fault,
        rate_limit,
    )  # fmt: skip
    envs: AsyncEnvs = Recipe(env, num_envs, env_kwargs, options, blocking=False).make()
    return envs


def load(
    path: str | os.PathLike[str], *, backend: BackendLike | None = None, workers: int | None = None
) -> Envs | AsyncEnvs:
    """Load the environments that ``envs.save(path)`` saved, and continue the run.

    Example:
        >>> import agym, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with agym.make("CartPole-v1", 2) as envs:
        ...         observations, infos = envs.reset(seed=0)
        ...         envs.save(f"{folder}/run.agym")
        ...         expected = envs.step([0, 1]).observations
        ...     with agym.load(f"{folder}/run.agym") as envs:
        ...         observations = envs.step([0, 1]).observations
        >>> bool((observations[0] == expected[0]).all())
        True

    **Only open files that you trust:** a file can run any code when it is read.

    Args:
        path: The file.
        backend: Another backend than the saved one, with its default number of workers.
        workers: Another number of workers.

    Returns:
        Environments for sync or async code, as they were saved. Those of :func:`agym.make` are
        ready for ``step``; those of :func:`agym.make_async` must be opened first, with
        ``async with`` or ``await``.

    Raises:
        UsageError: The file cannot be read, is damaged, or is not a saved run.
        SnapshotError: The environments made here are of another kind than the saved ones.
    """
    (recipe, snapshots), _ = read_pickle("run", path)
    if backend is None and workers is not None:
        backend, workers = replace(recipe.options.spec, workers=workers), None
    if backend is not None:
        options = replace(recipe.options, backend=backend, workers=workers)
        recipe = replace(recipe, options=options)
    envs: Envs | AsyncEnvs = recipe.make()
    if isinstance(envs, AsyncEnvs):
        envs._saved = snapshots
        return envs
    try:
        envs.restore(snapshots)
    except BaseException:
        envs.close()
        raise
    return envs


def envs_of(env: Any, caller: str = "agym.envs_of") -> Envs | AsyncEnvs:
    """Return the agym environments under any wrappers.

    Example:
        >>> import agym, gymnasium
        >>> envs = agym.make_vec("CartPole-v1", 2, backend="serial")
        >>> wrapped = gymnasium.wrappers.vector.ClipReward(envs, -1, 1)
        >>> agym.envs_of(wrapped)
        Envs(CartPole-v1, num_envs=2, backend='serial')
        >>> wrapped.close()

    Args:
        env: Environments of ``agym.make``, ``make_async``, ``make_vec`` or ``agym.sb3``, or a
            handle ``envs[i]``, in any wrappers of Gymnasium or Stable-Baselines3.
        caller: The name of your function, for the error message.

    Returns:
        The environments.

    Raises:
        UsageError: There are no agym environments under the wrappers.
    """
    inner = env
    for _ in range(MAX_WRAPPERS):
        if isinstance(inner, Envs | AsyncEnvs):
            return inner
        if isinstance(inner, Handle):  # a handle would look "env" up in the environment
            inner = inner._envs
        else:
            wrapped = (getattr(inner, name, None) for name in WRAPPED)
            inner = next((value for value in wrapped if value is not None), None)
    remedy = "pass those of agym.make, agym.make_async, agym.make_vec or agym.sb3"
    if getattr(getattr(env, "unwrapped", None), "same_games", False):
        backend = "twin" if hasattr(env.unwrapped, "original") else "vector"
        remedy = f"use agym.make_vec(..., backend={backend!r}), which plays the same games"
    raise UsageError(
        f"{caller} takes environments that agym runs, not {type(env).__name__}: {remedy}"
    )
