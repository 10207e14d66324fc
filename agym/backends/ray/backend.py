"""Ray: environments run in actors on the machines of a cluster, in contiguous ranges.

Ray places the actors, carries the messages and detects deaths. An actor has a table of its own,
whose rows are sent as whole columns, one message per actor and batch each way::

    driver                                                       a node of the cluster
    RayBackend -- ActorHandle -- operation, actions ---------->  RayActor -- host
        |  table  <------------- rows, completions, gauges ---      | its own table

The driver never waits in Ray: a thread of Ray's puts each answer into an outbox, whose bell wakes
the caller. The actor's side is in ``backends/ray/actor.py``.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from agym.backends.base import BackendOptions, Force
from agym.backends.options import Ray
from agym.backends.outbox import Outbox, OutboxBackend
from agym.backends.parts import Supervision
from agym.backends.process.serialization import Sealed, seal
from agym.backends.ray.actor import RayActor
from agym.backends.ray.actor_group import ActorGroup
from agym.backends.ray.actor_handle import ActorHandle, ActorReply
from agym.backends.ray.cluster import MEMBERS, count_workers, warn_of_waiting
from agym.backends.registry import Entries, collect, refuse_import, with_registry
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import WorkerDeath
from agym.protocol.messages.operations import (
    CLOSE,
    FAULT,
    OPEN,
    Attach,
    Close,
    Make,
    Operation,
    Step,
)
from agym.protocol.table import SlotTable
from agym.protocol.transfer import ENV_GAUGES


class RayBackend(OutboxBackend[ActorReply], Supervision):
    """Divides environments among actors."""

    def __init__(self, options: BackendOptions) -> None:
        """Join the cluster, or start one.

        Raises:
            MissingExtraError: Ray is not installed.
            UsageError: There is no such cluster.
        """
        refuse_import()
        self._spec = spec = options.spec_as(Ray)
        ray, joined = MEMBERS.join(spec)
        self._handles: list[ActorHandle] = []
        try:
            super().__init__(options)
            self._group = ActorGroup(ray, spec)
        except BaseException:
            if joined:
                MEMBERS.leave()
            raise
        self._end = weakref.finalize(
            self, _end, self._handles, self._group, self._outbox, joined=joined
        )
        self.ranges = options.ranges(spec.workers or count_workers(ray, spec))
        warn_of_waiting(ray, spec, len(self.ranges))
        self._table: SlotTable | None = None
        self._completions: list[Completion] = []
        self._closing = False
        # Whether replacements need ``post`` from the start: they are coroutine environments.
        self._posting = False

    # ---------------------------------------------------------------- starting and ending actors

    def start(self) -> None:
        """Start the actors concurrently."""
        # Refuse what cannot be pickled before anything starts.
        registry = collect()
        makes = [self._pack(ids, registry) for ids in self.ranges]
        self._group.open(len(self.ranges))
        for worker, make in enumerate(makes):
            self._handles.append(self._start(worker, make, OPEN))

    def _pack(self, ids: range, registry: Entries) -> Any:
        """Seal the options of an actor, which only the actor unpickles."""
        factories = with_registry(self.options.some(ids), registry)
        mine = replace(self.options, factories=factories, first=ids.start)
        return seal(mine, by_value=True, parts=self.options.named(ids))

    def _start(self, worker: int, make: Any, number: int) -> ActorHandle:
        ids = self.ranges[worker]
        launch = partial(self._group.start, RayActor, worker)
        handle = ActorHandle(worker, ids, launch, self._outbox)
        making = Operation(number, ids.start, ids.stop, Make(make))
        handle.post(making, seal((making, ())))
        # A pool has its own thread. Whether coroutines need one is known once one is made.
        handle.posting = self._posting or self._spec.workers_per_node is not None
        return handle

    def attach(self, table: SlotTable) -> None:
        """Store the table, and have the actors make their own."""
        self._table = table
        self._posting = self._handles[0].posting
        for handle in self._handles:
            self._attach(handle, table)

    def _attach(self, handle: ActorHandle, table: SlotTable) -> None:
        ids, arrays = handle.ids, table.gauges.arrays
        table.gauges.settle([ids])  # keep the counts so far
        gauges = {name: arrays[name][ids.start : ids.stop] for name in ENV_GAUGES}
        message = Attach(table.num_envs, table.final, gauges=gauges)
        handle.send(seal((Operation(OPEN, 0, table.num_envs, message), ())))

    @property
    def pids(self) -> Sequence[int | None]:
        """The actors' processes that are on this machine."""
        return [None if handle.death else handle.local_pid for handle in self._handles]

    @property
    def supervision(self) -> Supervision:
        return self

    def replace_worker(self, worker: int, number: int) -> None:
        """Start another actor, on any node that has room or will have it."""
        make = self._pack(self.ranges[worker], collect())
        self._handles[worker] = handle = self._start(worker, make, number)
        if self._table is not None:
            self._attach(handle, self._table)

    def end_worker(self, worker: int, reason: str) -> None:
        """Kill an actor; its later answers are dropped."""
        handle = self._handles[worker]
        completions = self.poll()  # first, since it replaces the list
        self._completions += completions
        if handle.death is None:
            self._report_death(handle, reason, late=True)

    def _report_death(
        self,
        handle: ActorHandle,
        reason: str,
        because: WorkerDeath | None = None,
        *,
        late: bool = False,
    ) -> None:
        self._group.kill(handle.actor)
        self._completions += handle.fail_pending(
            reason, because, late=late, report=not self._closing
        )

    # ---------------------------------------------------------------- operations

    def submit(self, operation: Operation) -> None:
        """Post all parts, each with its actions, after packing all: a failure sends nothing."""
        self._check_connection()
        message = operation.message
        by_value = not (isinstance(message, Step) and message.parts is None)
        messages = [
            (handle, part, seal((part, self._actions(part)), by_value=by_value, parts=part.given()))
            for handle in self._handles
            for part in operation.slice(handle.ids)
        ]
        for handle, part, sealed in messages:
            if handle.death is None:
                self._post(handle, part, sealed)
            else:
                payload = Payload(problems=[handle.death])
                self._completions.append(Completion(*part.span, payload))

    def _actions(self, part: Operation) -> Sequence[Any]:
        if self._table is None or not isinstance(part.message, Step):
            return ()
        return [block[part.start : part.stop] for block in self._table.actions]

    def _post(self, handle: ActorHandle, operation: Operation, sealed: Sealed) -> None:
        """Send an operation to an actor; if that fails, the actor counts as dead."""
        try:
            handle.post(operation, sealed)
        except Exception as error:
            self._report_death(handle, self._group.describe(error))

    def poll(self) -> Sequence[Completion]:
        self._check_connection()
        for answer in self._outbox.take():
            handle = answer.handle
            if handle.death is not None or answer.actor is not handle.actor:
                continue
            made = handle.made
            try:
                for completion in handle.take(answer, self._table):
                    if completion.number == FAULT:
                        self._report_lost_actor(handle, completion)
                        break
                    if completion.number == CLOSE:
                        handle.closed = True
                        self._group.kill(handle.actor)
                    self._completions.append(completion)
                if self._closing and handle.made > made and handle.death is None:
                    self._close(handle)  # only now it is known whether to post
            except Exception as error:
                if handle.is_starting and self._group.never_ran(error):
                    self._group.kill(handle.actor)  # it might start after all
                    handle.launch()
                else:
                    self._report_death(handle, self._group.describe(error))
        completions, self._completions = self._completions, []
        return completions

    def _check_connection(self) -> None:
        """Report all actors dead if Ray is disconnected: a call would have it reconnect."""
        if not self._group.connected:
            for handle in self._handles:
                if handle.death is None and not handle.closed:
                    self._report_death(
                        handle, "this process left the cluster: ray.shutdown() was called"
                    )

    def _report_lost_actor(self, handle: ActorHandle, completion: Completion) -> None:
        """Report an actor dead, because a worker process of it died."""
        assert completion.payload is not None
        (death,) = (p for p in completion.payload.problems if isinstance(p, WorkerDeath))
        reason = f"since its worker process {death.pid} died: {death.reason}"
        self._report_death(handle, reason, death)

    def news(self) -> bool:
        return bool(self._completions) or self._outbox.filled

    # ---------------------------------------------------------------- closing

    def close(self, force: Force = Force.NONE) -> None:
        """Ask the actors to close, or kill them: Ray ends them at once."""
        if force is not Force.NONE:
            for handle in self._handles:
                if handle.death is None and not handle.closed:
                    self._report_death(handle, "it did not close its environments in time")
            return
        self._closing = True
        self._check_connection()
        for handle in self._handles:
            if handle.death is None and handle.made:
                self._close(handle)

    def _close(self, handle: ActorHandle) -> None:
        closing = Operation(CLOSE, handle.ids.start, handle.ids.stop, Close())
        self._post(handle, closing, seal((closing, ())))

    @property
    def ended(self) -> bool:
        return all(handle.closed or handle.death is not None for handle in self._handles)

    def abandon(self) -> bool:
        """Keep the actors' handles in a forked child, where Ray cannot even release them."""
        _INHERITED.append(self._handles)
        _INHERITED.append(self._group)
        return super().abandon()

    def release(self) -> None:
        """Kill what is left, and leave the cluster if it was joined."""
        self._end()
        self._table = None


# Ray's handles of a parent process, whose reference counts must not fall here.
_INHERITED: list[Any] = []


def _end(
    handles: list[ActorHandle], group: ActorGroup, outbox: Outbox[ActorReply], *, joined: bool
) -> None:
    for handle in handles:
        with suppress(Exception):
            group.kill(handle.actor)
    handles.clear()
    group.close()
    outbox.close()
    if joined:
        MEMBERS.leave()
