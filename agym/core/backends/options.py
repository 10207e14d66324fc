"""The options of each backend, for ``agym.make(backend=...)``.

Options of a single backend are fields of that backend's class, like transports in httpx::

    agym.make("Ant-v5", 64, backend="process")
    agym.make("Ant-v5", 64, backend=agym.backends.Process(start_method="fork", pin=True))
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from agym.core.protocol.arguments import (
    check_choice,
    check_count,
    check_flag,
    check_seconds,
    is_number,
)
from agym.errors import UsageError

BackendName = Literal["auto", "serial", "thread", "asyncio", "process", "vector", "twin", "ray"]
StartMethod = Literal["spawn", "forkserver", "fork"]
Strategy = Literal["spread", "pack"]

# Ray's names of resources: as options of an actor, and in the bundle of a placement group.
RAY_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}

# Under these names, actors would wait for a custom resource that no node has.
MISTAKEN_RESOURCES = {
    **dict.fromkeys(("cpu", "cpus", "num_cpu"), "num_cpus"),
    **dict.fromkeys(("gpu", "gpus", "num_gpu"), "num_gpus"),
}


@dataclass(frozen=True)
class Recycle:
    """When to replace a worker process with a fresh one, for environments that leak memory.

    Example:
        >>> import agym
        >>> backend = agym.backends.Process(workers=1, recycle=agym.Recycle(episodes=100))
        >>> with agym.make("CartPole-v1", 2, backend=backend) as envs:
        ...     observations, infos = envs.reset(seed=0)

    The replacement starts next to the old process, so nothing waits for it. It takes over each
    environment in the middle of its episode, or at the end if its state cannot be copied.

    Attributes:
        episodes: After this many episodes of one of its environments.
        rss_mb: Once its resident memory exceeds this many megabytes.

    Raises:
        UsageError: Neither is given, or a value is not positive.
    """

    episodes: int | None = None
    rss_mb: float | None = None

    def __post_init__(self) -> None:
        if self.episodes is None and self.rss_mb is None:
            raise UsageError("Recycle() never recycles: pass episodes= or rss_mb=")
        if self.episodes is not None:
            object.__setattr__(self, "episodes", check_count("Recycle.episodes", self.episodes))
        if self.rss_mb is not None:
            check_seconds("Recycle.rss_mb", self.rss_mb, "megabytes")


@dataclass(frozen=True, kw_only=True)
class BackendSpec:
    """A backend with its options.

    Attributes:
        workers: Maximum number of workers; environments are divided among them in contiguous
            ranges. ``None`` for the backend's default. The same as ``workers=`` of
            :func:`agym.make`. ``Serial`` and ``Asyncio`` always have one.
    """

    name: ClassVar[str] = ""

    # The class of its ports, or of its pool if ports are not enough; or the path to import it from.
    port: ClassVar[Any] = None

    # The options that are counts.
    counts: ClassVar[tuple[str, ...]] = ("workers",)

    workers: int | None = None

    def __post_init__(self) -> None:
        for name in self.counts:
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_count(name, value))


@dataclass(frozen=True, kw_only=True)
class Auto(BackendSpec):
    """Runs environments in the caller's thread, unless another backend is clearly faster.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, backend=agym.backends.Auto()) as envs:
        ...     observations, infos = envs.reset(seed=0)

    :func:`agym.plan` shows the choice and the reason.
    """

    name = "auto"


@dataclass(frozen=True, kw_only=True)
class Serial(BackendSpec):
    """Runs environments in the caller's thread, one after the other.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, backend=agym.backends.Serial()) as envs:
        ...     observations, infos = envs.reset(seed=0)
    """

    name = "serial"
    port = "agym.core.backends.serial.SerialPool"


@dataclass(frozen=True, kw_only=True)
class Thread(BackendSpec):
    """Runs environments in threads: by default one thread per environment, up to 256.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4, backend=agym.backends.Thread(workers=2)) as envs:
        ...     observations, infos = envs.reset(seed=0)
    """

    name = "thread"
    port = "agym.core.backends.thread.ThreadPort"


@dataclass(frozen=True, kw_only=True)
class Vector(BackendSpec):
    """Runs environments as one ``VectorEnv``, or one ``VectorEnv`` per worker, each in a thread.

    Example:
        >>> import agym
        >>> from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
        >>> backend = agym.backends.Vector(workers=2)
        >>> with agym.make(CartPoleVectorEnv, 64, backend=backend, output="array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (64, 4)
    """

    name = "vector"
    port = "agym.core.backends.vector.VectorPool"


@dataclass(frozen=True, kw_only=True)
class Twin(Vector):
    """Runs environments as one twin, which computes many environments at once, bit for bit.

    Example:
        >>> import agym
        >>> with agym.make("FrozenLake-v1", 2, backend=agym.backends.Twin()) as envs:
        ...     observations, infos = envs.reset(seed=0)

    Raises:
        UsageError: The environment has no twin, or the twin is not equal to the original on this
            machine.
    """

    name = "twin"


@dataclass(frozen=True, kw_only=True)
class TwinInCaller(Twin):
    """Like ``Twin``, in the caller's thread."""

    port = "agym.core.backends.vector.TwinPool"


@dataclass(frozen=True, kw_only=True)
class LoopSpec(BackendSpec):
    """Options of backends that run event loops."""

    counts: ClassVar[tuple[str, ...]] = ("workers", "max_concurrency")

    max_concurrency: int | None = None


@dataclass(frozen=True, kw_only=True)
class Asyncio(LoopSpec):
    """Runs coroutine environments (:class:`agym.AsyncEnv`) on one event loop.

    Example:
        >>> import agym
        >>> class Clock:
        ...     async def reset(self, *, seed=None, options=None):
        ...         return 0, {}
        ...     async def step(self, action):
        ...         return action, 0.0, False, False, {}
        >>> backend = agym.backends.Asyncio(max_concurrency=100)
        >>> with agym.make(Clock, 1000, backend=backend) as envs:
        ...     observations, infos = envs.reset()

    Under :func:`agym.make_async` it is the caller's loop, otherwise a loop in a thread.

    Attributes:
        max_concurrency: Maximum number of environments that are busy at the same time.
    """

    name = "asyncio"
    port = "agym.core.backends.loop.LoopPort"


@dataclass(frozen=True, kw_only=True)
class Process(LoopSpec):
    """Runs environments in worker processes: by default one per core that this process may use.

    Example:
        >>> import agym
        >>> backend = agym.backends.Process(workers=2, start_method="spawn")
        >>> with agym.make("CartPole-v1", 4, backend=backend) as envs:
        ...     observations, infos = envs.reset(seed=0)

    BLAS, OpenMP and torch use one thread in each worker, or the number in ``OMP_NUM_THREADS`` and
    similar variables.

    Attributes:
        start_method: How worker processes start: ``"spawn"`` (also for ``None``), ``"forkserver"``
            or ``"fork"``. Forking a process with other threads may deadlock; from Python 3.12 on
            it raises a ``DeprecationWarning``.
        pin: Keep each worker, and its replacements, on one core (Linux).
        recycle: When to replace a worker with a fresh one; ``None`` for never.
        max_concurrency: Maximum number of coroutine environments of one worker that are busy at the
            same time.

    Raises:
        UsageError: An option is not supported on this system.
    """

    name = "process"
    port = "agym.core.backends.process.process_pool.ProcessPool"

    start_method: StartMethod | None = None
    pin: bool = False
    recycle: Recycle | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_method is not None:
            check_start_method("start_method", self.start_method)
        check_flag("pin", self.pin)
        if self.pin and not hasattr(os, "sched_setaffinity"):
            raise UsageError(
                "pin=True needs a system where processes can choose their cores, such as Linux:"
                " omit it on this system"
            )
        if self.recycle is not None and not isinstance(self.recycle, Recycle):
            raise UsageError(f"recycle={self.recycle!r} must be an agym.Recycle, or None")


@dataclass(frozen=True, kw_only=True)
class ProcessWithCaller(Process):
    """Like ``Process``, with the caller's thread as one of the workers; ``auto`` may choose it."""

    port = "agym.core.backends.process.caller_pool.CallerPool"


@dataclass(frozen=True, kw_only=True)
class Ray(LoopSpec):
    """Runs environments in the actors of a Ray cluster: by default one per CPU.

    Example:
        >>> import agym
        >>> backend = agym.backends.Ray(resources={"num_cpus": 0.5}, placement="pack")
        >>> envs = agym.make("CartPole-v1", 64, backend=backend)  # doctest: +SKIP

    Attributes:
        address: The cluster to join, as for ``ray.init``. By default, the cluster that this process
            has joined; else the cluster that Ray finds (``RAY_ADDRESS``, or one on this machine);
            else a new cluster on this machine, which ends with the last environments in it.
        resources: Reserved by each actor on its node: ``num_cpus`` (by default 1, or
            ``workers_per_node``), ``num_gpus``, ``memory`` in bytes, and custom resources by name.
        placement: ``"spread"`` actors over the nodes, or ``"pack"`` them onto few nodes.
        runtime_env: Ray's runtime environment for the actors.
        workers_per_node: One actor per node (or ``workers`` actors) with this many worker processes
            in it, so that one message per node and batch crosses the network; ``None`` for actors
            that run environments directly.
        max_concurrency: Maximum number of coroutine environments of one actor, or of one worker
            process in it, that are busy at the same time.

    Raises:
        UsageError: An option is invalid.
    """

    name = "ray"
    port = "agym.core.backends.ray.ray_pool.RayPool"
    counts = ("workers", "max_concurrency", "workers_per_node")

    address: str | None = None
    resources: Mapping[str, float] | None = None
    placement: Strategy = "spread"
    runtime_env: Mapping[str, Any] | None = None
    workers_per_node: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resources is not None:
            if not isinstance(self.resources, Mapping):
                raise UsageError(
                    f"resources={self.resources!r} must be a dict of amounts, such as"
                    " {'num_cpus': 1, 'custom': 0.5}"
                )
            for name, amount in self.resources.items():
                if not isinstance(name, str) or not is_number(amount) or not 0 <= amount < math.inf:
                    raise UsageError(
                        f"resources={{{name!r}: {amount!r}}} must be a finite number of at least 0"
                    )
                if name.lower() in MISTAKEN_RESOURCES:
                    raise UsageError(
                        f"resources={{{name!r}: ...}}: use"
                        f" {MISTAKEN_RESOURCES[name.lower()]!r}, Ray's name"
                    )
            object.__setattr__(self, "resources", dict(self.resources))
        check_choice("placement", self.placement, get_args(Strategy))
        if self.runtime_env is not None:
            if not isinstance(self.runtime_env, Mapping):
                raise UsageError(
                    f"runtime_env={self.runtime_env!r} must be a dict, as for ray.init"
                )
            object.__setattr__(self, "runtime_env", dict(self.runtime_env))
        if self.address is not None and (not isinstance(self.address, str) or not self.address):
            raise UsageError(f"address={self.address!r} must be a cluster address, such as 'auto'")

    @property
    def bundle(self) -> dict[str, float]:
        """The resources that an actor reserves, by the names of a node's resources."""
        wanted = {"num_cpus": float(self.workers_per_node or 1), **(self.resources or {})}
        return {RAY_RESOURCES.get(name, name): amount for name, amount in wanted.items() if amount}


SPECS: dict[str, type[BackendSpec]] = {
    spec.name: spec for spec in (Auto, Serial, Thread, Asyncio, Process, Vector, Twin, Ray)
}


def check_start_method(name: str, method: Any) -> None:
    """Check a start method of worker processes, called ``name`` by the caller.

    Raises:
        UsageError: This system has no such start method.
    """
    check_choice(name, method, multiprocessing.get_all_start_methods())
