"""Connects this process to a Ray cluster when environments need it, and disconnects it afterwards.

Ray has one connection per process. If there is none, the first environments join a cluster, or
start one on this machine. The last of them to close disconnects, and ends a cluster that was
started. A connection that the caller opened (``ray.init``, or a Ray task or actor) is never closed.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from typing import Any

from agym.core._system.cpus import available_cores
from agym.core._system.extras import require
from agym.core.backends.options import Ray
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
