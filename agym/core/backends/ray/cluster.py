"""Connects this process to a Ray cluster while environments need it, and starts actors there.

Ray has one connection per process. If there is none, the first environments join a cluster, or
start one on this machine. The last of them to close disconnects, and ends a cluster that was
started. A connection that the caller opened (``ray.init``, or a Ray task or actor) is never closed.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import warnings
from contextlib import suppress
from typing import Any

from agym.core._system.cpus import available_cores
from agym.core._system.extras import require
from agym.core.backends.options import RAY_RESOURCES, Ray
from agym.core.backends.ray.actor import RayActor
from agym.errors import UsageError

_USAGE = "RAY_USAGE_STATS_ENABLED"


class Members:
    """Counts the users of a connection that agym opened."""

    def __init__(self) -> None:
        # Environments may be made and closed in several threads. Reentrant, because the garbage
        # collector may close environments in a thread that is just joining.
        self._lock = threading.RLock()
        self._count = 0
        self._job: str | None = None  # identifies agym's connection

    def join(self, spec: Ray) -> Any:
        """Connect to a cluster, unless this process is already connected.

        Returns:
            The module ``ray``, and whether :meth:`leave` must be called.

        Raises:
            MissingExtraError: Ray is not installed.
            UsageError: There is no such cluster, or this process is in a different cluster.
        """
        ray = require("ray", "ray")
        with self._lock:
            if ray.is_initialized():
                _check_address(ray, spec.address)
                if not self._count or self._job != _job(ray):
                    return ray, False
            else:
                _connect(ray, spec)
                self._count, self._job = 0, _job(ray)
            self._count += 1
        return ray, True

    def leave(self) -> None:
        """Disconnect, if these are the last environments."""
        with self._lock:
            ray = require("ray", "ray")
            if not ray.is_initialized() or self._job != _job(ray):
                return  # the caller has disconnected, and may have connected again
            self._count -= 1
            if not self._count:
                ray.shutdown()


MEMBERS = Members()


def _job(ray: Any) -> str:
    return str(ray.get_runtime_context().get_job_id())


def _check_address(ray: Any, address: str | None) -> None:
    current = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", "local", current):
        raise UsageError(
            f"address={address!r}: this process is already in the cluster at {current}; omit"
            " address=, or call ray.shutdown() first"
        )


def _connect(ray: Any, spec: Ray) -> None:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR}
    address = spec.address or os.environ.get("RAY_ADDRESS") or "auto"
    if address != "local":
        try:
            ray.init(address=address, **quiet)
            return
        except (ConnectionError, ValueError) as error:
            if spec.address or "RAY_ADDRESS" in os.environ:
                raise UsageError(f"address={address!r}: cannot connect: {error}") from error
    # A cluster that agym starts is as large as requested, and sends no usage statistics.
    wanted = max(available_cores(), int((spec.workers or 1) * spec.bundle.get("CPU", 0) + 0.999))
    before = os.environ.get(_USAGE)
    os.environ.setdefault(_USAGE, "0")
    try:
        ray.init(address="local", num_cpus=wanted, include_dashboard=False, **quiet)
    finally:
        if before is None:
            del os.environ[_USAGE]


def count_workers(ray: Any, spec: Ray) -> int:
    """Return how many actors fit: one per node, or as many as its CPUs allow."""
    bundle, free = spec.bundle, ray.available_resources()
    room = fitting(bundle, free)
    # A bundle must fit on one node: free resources of several nodes do not add up.
    on_nodes = [fitting(bundle, resources) for resources in nodes(ray)]
    if spec.workers_per_node is not None:
        on_nodes = [min(1, count) for count in on_nodes]
    return max(1, min(room, sum(on_nodes)))


def nodes(ray: Any) -> list[dict[str, float]]:
    """Return the total resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def fitting(bundle: dict[str, float], resources: dict[str, float]) -> int:
    """Return how many bundles fit into ``resources``."""
    counts = (int(resources.get(name, 0.0) / amount + 1e-6) for name, amount in bundle.items())
    return min(counts, default=1)


def warn_of_waiting(ray: Any, spec: Ray, workers: int) -> None:
    """Warn about actors that must wait until the cluster grows."""
    bundle, total = spec.bundle, ray.cluster_resources()
    if not any(fitting(bundle, resources) for resources in nodes(ray)):
        _warn(
            f"no node of the cluster has {bundle} for one actor: the actors wait until such a node"
            " joins; request less with resources="
        )
        return
    for name, amount in bundle.items():
        if workers * amount > total.get(name, 0.0) + 1e-6:
            _warn(
                f"{workers} actors need {workers * amount:g} {name}, but the cluster has"
                f" {total.get(name, 0.0):g}: the actors wait until it grows; use fewer workers, or"
                " request less with resources="
            )


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


# The concurrency group of an actor that waits for completions, next to the thread for operations.
LISTEN = "listen"

# Fields of Ray's messages that are already known.
HEADINGS = ("class_name", "actor_id", "pid", "name", "namespace", "ip")

# Ray's error if an actor cannot be reached, and its texts if an actor was never started, on a node
# that Ray did not yet know to be lost.
CUT_OFF, NEVER_RAN, NODE_DIED = "ActorUnavailableError", "The actor never ran", "node has died"

# How much of Ray's text about a death is kept.
MAX_CHARACTERS = 300


class ActorGroup:
    """The actors of one batch of environments.

    Their resources are one placement group, which Ray spreads or packs. When nodes are lost, Ray
    moves it to other nodes, or to new ones.
    """

    def __init__(self, ray: Any, spec: Ray) -> None:
        self._ray = ray
        self._spec = spec
        self._group: Any = None

    @property
    def connected(self) -> bool:
        """Whether this process is still in a cluster."""
        return bool(self._ray.is_initialized())

    def open(self, workers: int) -> None:
        """Reserve resources for actors, which may not be available yet."""
        if self._spec.bundle:
            bundles = [self._spec.bundle for _ in range(workers)]
            strategy = self._spec.placement.upper()
            self._group = self._ray.util.placement_group(bundles, strategy=strategy)

    def start(self, worker: int) -> Any:
        """Start an actor as soon as its resources are available; return Ray's handle."""
        bundle = dict(self._spec.bundle)
        options: dict[str, Any] = {
            name: bundle.pop(resource, 0) for name, resource in RAY_RESOURCES.items()
            if resource in bundle or name == "num_cpus"
        }  # fmt: skip
        strategy: Any = "SPREAD" if self._spec.placement == "spread" else "DEFAULT"
        if self._group is not None:
            strategies = self._ray.util.scheduling_strategies
            strategy = strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=worker,
                placement_group_capture_child_tasks=False,
            )  # fmt: skip
        remote = self._ray.remote(concurrency_groups={LISTEN: 1})(RayActor)
        return remote.options(
            **options,
            resources=bundle,
            scheduling_strategy=strategy,
            runtime_env=self._spec.runtime_env,
            max_restarts=0,
            max_task_retries=0,
        ).remote()

    def kill(self, actor: Any) -> None:
        if self.connected:
            with suppress(Exception):  # it is already gone
                self._ray.kill(actor)

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None and self.connected:
            with suppress(Exception):
                self._ray.util.remove_placement_group(group)

    def never_ran(self, error: BaseException) -> bool:
        """Return whether an actor that has not replied never can: its node was lost first."""
        text = str(error)
        return type(error).__name__ == CUT_OFF or (NEVER_RAN in text and NODE_DIED in text)

    def describe(self, error: BaseException) -> str:
        """Return why an actor is gone, in one line."""
        cause = getattr(error, "cause", None)  # the error that was raised in the actor itself
        if isinstance(cause, Exception):
            return f"{type(cause).__name__}: {cause}"
        if type(error).__name__ == CUT_OFF:
            return "cut off: its node cannot be reached"
        # The cause is between a heading and advice for readers of Ray's logs.
        text = " ".join(str(error).split()).partition("Worker exit detail: ")
        detail = (text[2] or text[0]).partition(" Some common causes")[0]
        detail = re.sub(rf"({'|'.join(HEADINGS)}): \S+ ?", "", detail)
        short = detail if len(detail) <= MAX_CHARACTERS else f"{detail[:MAX_CHARACTERS]}..."
        return f"Ray reports: {short.rstrip('. ')}"
