"""Ray: environments in actors on the machines of a cluster, in contiguous ranges.

Ray places the actors, carries the messages and notices what dies. An actor has a table of its own;
its rows come as whole columns, one message per actor and batch each way::

    driver                                                    a node of the cluster
    RayBackend -- RayLink -- operation, actions ---------->  RayActor -- host
        |  table  <---------- rows, outcomes, gauges -------     | its own table

The driver never asks Ray to wait: each answer is put into an outbox, by a thread of Ray's, whose
bell wakes whoever sleeps. What an actor does is in ``backends/ray/actor.py``.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from agym.backends.base import BackendOptions
from agym.backends.options import Ray
from agym.backends.outbox import Outbox, OutboxBackend
from agym.backends.process.serialization import Sealed, seal
from agym.backends.ray.actor import RayActor
from agym.backends.ray.actor_group import ActorGroup
from agym.backends.ray.actor_handle import ActorHandle, ActorReply
from agym.backends.ray.cluster import MEMBERS, count_workers, warn_of_waiting
from agym.backends.registry import Entries, collect, refuse_import, with_registry
from agym.protocol.messages import CLOSE, FAULT, OPEN, Completion, Operation, Payload, WorkerDeath
from agym.protocol.table import Extension, SlotTable
from agym.protocol.transfer import ENV_GAUGES


class RayBackend(OutboxBackend[ActorReply]):
    """Deals environments to actors."""

    replaceable = True

    def __init__(self, options: BackendOptions) -> None:
        """Join the cluster, or start one; nothing is made yet.

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
            self._stage = ActorGroup(ray, spec)
        except BaseException:
            if joined:
                MEMBERS.leave()
            raise
        self._end = weakref.finalize(
            self, _end, self._handles, self._stage, self._outbox, joined=joined
        )
        self.ranges = options.ranges(spec.workers or count_workers(ray, spec))
        warn_of_waiting(ray, spec, len(self.ranges))
        self._table: SlotTable | None = None
        self._outcomes: list[Completion] = []
        self._closing = False
        # Environments are coroutine environments.
        self._posting = False

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Have the actors made; they all make their environments at the same time."""
        # What cannot be packed is refused before anything has started.
        registry = collect()
        makes = [self._pack(ids, registry) for ids in self.ranges]
        self._stage.open(len(self.ranges))
        for worker, make in enumerate(makes):
            self._handles.append(self._start(worker, make, OPEN))

    def _pack(self, ids: range, registry: Entries) -> Any:
        """Say what an actor is to make, packed, since the actor alone is to unpack it."""
        factories = with_registry(self.options.some(ids), registry)
        mine = replace(self.options, factories=factories, first=ids.start)
        return seal(mine, by_value=True, parts=self.options.named(ids))

    def _start(self, worker: int, make: Any, number: int) -> ActorHandle:
        ids = self.ranges[worker]
        launch = partial(self._stage.start, RayActor, worker)
        handle = ActorHandle(worker, ids, launch, self._outbox)
        making = Operation(number, "make", ids.start, ids.stop)
        handle.post(making, seal((making, make)))
        # A pool has its own thread; that of coroutine environments is known once one is made.
        handle.posting = self._posting or self._spec.workers_per_node is not None
        return handle

    def attach(self, table: SlotTable) -> None:
        """Remember the table, and have the actors make their own."""
        self._table = table
        self._posting = self._handles[0].posting
        for handle in self._handles:
            self._attach(handle, table)

    def _attach(self, handle: ActorHandle, table: SlotTable) -> None:
        ids, arrays = handle.ids, table.gauges.arrays
        table.gauges.settle([ids])  # what was before counts on
        gauges = {name: arrays[name][ids.start : ids.stop] for name in ENV_GAUGES}
        attach = Operation(OPEN, "attach", 0, table.num_envs)
        handle.send(seal((attach, (table.final, gauges))))

    def extend(self, extension: Extension) -> None:
        """Actors need not know: rows go where the driver wants them."""

    @property
    def pids(self) -> Sequence[int | None]:
        """The actors' processes, as far as they are on this machine."""
        return [None if handle.death else handle.local_pid for handle in self._handles]

    def replace_worker(self, worker: int, number: int) -> None:
        """Have another actor made, on whichever node has room or comes to have it."""
        make = self._pack(self.ranges[worker], collect())
        self._handles[worker] = handle = self._start(worker, make, number)
        if self._table is not None:
            self._attach(handle, self._table)

    def end_worker(self, worker: int, reason: str) -> None:
        """Have an actor killed; nothing that it still says is heard."""
        handle = self._handles[worker]
        said = self.poll()  # first: it takes the list away
        self._outcomes += said
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
        self._stage.kill(handle.actor)
        self._outcomes += handle.fail_pending(reason, because, late=late, told=not self._closing)

    # ---------------------------------------------------------------- operations

    def submit(self, operation: Operation) -> None:
        """Post the parts of an operation, each with its actions.

        All are packed before one is posted: what cannot be packed leaves nothing half done.
        """
        self._check_connection()
        by_value = operation.kind != "step" or operation.each is not None
        messages = [
            (handle, part, seal((part, self._actions(part)), by_value=by_value, parts=part.given()))
            for handle in self._handles
            for part in operation.shares(handle.ids)
        ]
        for handle, part, message in messages:
            if handle.death is None:
                self._post(handle, part, message)
            else:
                extras = Payload(problems=[handle.death])
                self._outcomes.append(Completion(*part.span, extras))

    def _actions(self, part: Operation) -> Sequence[Any]:
        if self._table is None or part.kind != "step":
            return ()
        return [block[part.start : part.stop] for block in self._table.actions]

    def _post(self, handle: ActorHandle, operation: Operation, message: Sealed) -> None:
        """Hand an operation to an actor; one that takes nothing is as good as dead."""
        try:
            handle.post(operation, message)
        except Exception as error:
            self._report_death(handle, self._stage.describe(error))

    def poll(self) -> Sequence[Completion]:
        """Take in what actors have answered."""
        self._check_connection()
        for said in self._outbox.take():
            handle = said.handle
            if handle.death is not None or said.actor is not handle.actor:
                continue
            made = handle.made
            try:
                for outcome in handle.take(said, self._table):
                    if outcome.number == FAULT:
                        self._report_lost_actor(handle, outcome)
                        break
                    if outcome.number == CLOSE:
                        handle.closed = True
                        self._stage.kill(handle.actor)
                    self._outcomes.append(outcome)
                if self._closing and handle.made > made and handle.death is None:
                    self._close(handle)  # only now it is known how
            except Exception as error:
                if handle.is_starting and self._stage.never_ran(error):
                    self._stage.kill(handle.actor)  # if it should come after all, it takes the room
                    handle.launch()
                else:
                    self._report_death(handle, self._stage.describe(error))
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _check_connection(self) -> None:
        """Without one there are no actors; and to call one would have Ray make another."""
        if not self._stage.connected:
            for handle in self._handles:
                if handle.death is None and not handle.closed:
                    self._report_death(
                        handle, "this process left the cluster: ray.shutdown() was called"
                    )

    def _report_lost_actor(self, handle: ActorHandle, outcome: Completion) -> None:
        """A worker process of an actor died: the actor goes with it."""
        assert outcome.extras is not None
        (death,) = (p for p in outcome.extras.problems if isinstance(p, WorkerDeath))
        who = f"its worker process {death.pid} did: {death.reason}"
        self._report_death(handle, who, death)

    def news(self) -> bool:
        """Look whether an answer is there."""
        return bool(self._outcomes) or self._outbox.filled

    # ---------------------------------------------------------------- leaving

    def close(self) -> None:
        """Ask the actors to close their environments once they have done what was posted."""
        self._closing = True
        self._check_connection()
        for handle in self._handles:
            if handle.death is None and handle.made:
                self._close(handle)

    def _close(self, handle: ActorHandle) -> None:
        closing = Operation(CLOSE, "close", handle.ids.start, handle.ids.stop)
        self._post(handle, closing, seal((closing, ())))

    def terminate(self) -> None:
        """Kill the actors that are left: Ray ends them at once."""
        for handle in self._handles:
            if handle.death is None and not handle.closed:
                self._report_death(handle, "it did not close its environments in time")

    @property
    def ended(self) -> bool:
        """Whether every actor has closed its environments, or is gone."""
        return all(handle.closed or handle.death is not None for handle in self._handles)

    def abandon(self) -> bool:
        """Forget the actors, in a forked child, where Ray does not work: not even to let go."""
        _INHERITED.append(self._handles)
        _INHERITED.append(self._stage)
        return super().abandon()

    def release(self) -> None:
        """Kill what is left, and leave the cluster if it was joined."""
        self._end()
        self._table = None


# What belongs to a parent process; Ray's handles must not be counted down here.
_INHERITED: list[Any] = []


def _end(
    handles: list[ActorHandle], stage: ActorGroup, outbox: Outbox[ActorReply], *, joined: bool
) -> None:
    for handle in handles:
        with suppress(Exception):
            stage.kill(handle.actor)
    handles.clear()
    stage.close()
    outbox.close()
    if joined:
        MEMBERS.leave()
