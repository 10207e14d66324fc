"""Ray: environments run in actors on the machines of a cluster, in contiguous ranges.

Ray places the actors, carries the messages and detects deaths. An actor has its own table, whose
rows are sent as whole columns, one message per actor and batch each way::

    driver                                                       a node of the cluster
    RayPool -- RayPort -- operation, actions ---------------->   RayActor -- host
        |  table  <------------- rows, completions, gauges ---      | its own table

The driver never waits in Ray: a thread of Ray puts each reply into an outbox, whose bell wakes the
caller. The actor's side is in ``backends/ray/actor.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agym.core.backends.options import Ray
from agym.core.backends.port import BackendOptions
from agym.core.backends.process.process_pool import RemotePool
from agym.core.backends.process.serialization import seal
from agym.core.backends.ray.cluster import MEMBERS, ActorGroup, count_workers, warn_of_waiting
from agym.core.backends.ray.ray_port import ActorEnded, RayPort
from agym.core.protocol.messages.completions import Completion
from agym.core.protocol.messages.operations import OPEN, Make, Operation

DISCONNECTED = "this process has left the cluster: ray.shutdown() was called"


class RayPool(RemotePool):
    """Divides environments among actors."""

    def __init__(self, options: BackendOptions) -> None:
        """Join the cluster, or start one.

        Raises:
            MissingExtraError: Ray is not installed.
            UsageError: There is no such cluster.
        """
        spec = options.spec_as(Ray)
        super().__init__(options, RayPort)
        ray, joined = MEMBERS.join(spec)
        self._group = ActorGroup(ray, spec)
        self._closers.append(self._group.close)
        if joined:
            self._closers.append(MEMBERS.leave)
        self.ranges = options.ranges(spec.workers or count_workers(ray, spec))
        warn_of_waiting(ray, spec, len(self.ranges))

    def start(self, number: int = OPEN) -> None:
        self._group.open(len(self.ranges))
        super().start(number)

    def _ready(self, worker: int, number: int, message: Make) -> tuple[Any, ...]:
        """Seal the options of an actor, which only the actor unpickles."""
        ids = self.ranges[worker]
        named = self.options.named(ids)
        options = seal(self._options_of(worker), by_value=True, parts=named)
        make = Operation(number, ids.start, ids.stop, Make(options))
        return make, seal((make, ()))

    def _port(self, worker: int) -> RayPort:
        port: RayPort = super()._port(worker)
        port.group = self._group
        return port

    def submit(self, operation: Operation) -> None:
        self._check_connection()
        super().submit(operation)

    def poll(self) -> Sequence[Completion]:
        self._check_connection()
        return super().poll()

    def _check_connection(self) -> None:
        """Report all actors dead if Ray is disconnected: any call would make Ray reconnect."""
        if not self._group.connected:
            for port in self._ports:
                if not port.ended:
                    self._report_death(port, ActorEnded(DISCONNECTED))
