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

import platform
from collections.abc import Iterator, Sequence
from pickle import PickleBuffer
from typing import Any, NamedTuple

from agym.core.backends.options import Ray
from agym.core.backends.outbox import Outbox
from agym.core.backends.port import BackendOptions, Force, Port
from agym.core.backends.process.process_pool import RemotePool
from agym.core.backends.process.serialization import Sealed, seal, unseal
from agym.core.backends.ray.cluster import (
    LISTEN,
    MEMBERS,
    ActorGroup,
    count_workers,
    warn_of_waiting,
)
from agym.core.backends.ray.reply_buffer import Reply, put_rows
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import Failure, WorkerDeath
from agym.core.protocol.messages.operations import Operation, Step
from agym.core.protocol.metrics.gauges import ENV_GAUGES, HOST_GAUGES, clock
from agym.core.protocol.table import SlotTable

# How many times to start an actor whose node is lost first: Ray needs a while to notice.
MAX_LAUNCHES = 20

# Gauges that are times by the actor's clock.
_TIMES = ("began", "ended")


class ActorReply(NamedTuple):
    """The result of a call of an actor.

    Attributes:
        actor: The actor that was called; another actor may have been started since.
        future: The reply, or the error of the call.
        listening: Whether it was a call of ``listen``.
    """

    actor: Any
    future: Any
    listening: bool


class ActorEnded(Exception):
    """The reason why an actor is gone."""


class RayPort(Port):
    """An actor, from its start to its end.

    Attributes:
        actor: Ray's handle.
        group: Starts and kills it.
    """

    replaceable = True
    splits = False

    group: ActorGroup
    actor: Any = None
    pid = 0  # unknown; ``None`` would mean this process

    def __init__(self, worker: int, ids: range, options: BackendOptions, outbox: Outbox) -> None:
        super().__init__(worker, ids, options, outbox)
        # Messages sent before the first reply, for the case that the actor must be started again.
        self._first: list[Sealed] = []
        self._launches = 0
        self._next = 0
        self._host: str | None = None
        self._replies: dict[int, Reply] = {}
        # The caller's clock minus the actor's clock.
        self._offset: int | None = None
        self._table: SlotTable | None = None
        # The death of a worker process inside the actor, which ends the actor.
        self._cause: WorkerDeath | None = None

    # ---------------------------------------------------------------- to the actor

    def start(self, make: Operation, sealed: Sealed = b"") -> None:
        """Start an actor, and listen to it; its replies go to the outbox."""
        self._first.append(sealed)
        self._launch()

    def _launch(self) -> None:
        """Start an actor, or start another if it never ran."""
        self._launches += 1
        self.actor = self.group.start(self.worker)
        self._listen()
        for message in self._first:
            self._await(self.actor.run.remote(message))

    def attach(self, table: SlotTable) -> None:
        """Store the table, and let the actor create its table."""
        self._table = table
        ids, arrays = self.ids, table.gauges.arrays
        table.gauges.settle(ids)  # keep the counts so far
        gauges = {name: arrays[name][ids.start : ids.stop] for name in ENV_GAUGES}
        message = ops.Attach(table.num_envs, table.final, gauges=gauges)
        attach = Operation(ops.OPEN, 0, table.num_envs, message)
        self.post(attach, seal((attach, ())))

    def pack(self, part: Operation) -> Sealed:
        """Seal an operation with its actions."""
        message, actions = part.message, []
        if isinstance(message, Step) and self._table is not None:
            actions = [block[part.start : part.stop] for block in self._table.actions]
        by_value = not (isinstance(message, Step) and message.parts is None)
        return seal((part, actions), by_value=by_value, parts=part.given())

    def post(self, operation: Operation, sealed: Sealed = b"") -> None:
        """Send a sealed operation; if that fails, the actor counts as dead."""
        if not self.pid:
            self._first.append(sealed)
        try:
            self._await(self.actor.run.remote(sealed))
        except Exception as error:
            self.report(error)

    def close(self, force: Force = Force.NONE) -> None:
        """Ask the actor to close, or kill it: Ray ends it at once."""
        if self.ended:
            return
        if force is not Force.NONE:
            self.report(ActorEnded("it did not close its environments in time"))
            return
        closing = Operation(ops.CLOSE, self.ids.start, self.ids.stop, ops.Close())
        self.record(closing)
        self.post(closing, seal((closing, ())))

    def _listen(self) -> None:
        calling = self.actor.listen.options(concurrency_group=LISTEN)
        self._await(calling.remote(), listening=True)

    def _await(self, call: Any, *, listening: bool = False) -> None:
        actor = self.actor
        # The callback runs in a thread of Ray. It names the actor of this call, because the port
        # may have started another actor by then, and ``take`` drops replies of earlier ones.
        call.future().add_done_callback(
            lambda done: self.outbox.put(self, ActorReply(actor, done, listening))
        )

    # ---------------------------------------------------------------- from the actor

    @property
    def local_pid(self) -> int | None:
        return self.pid if self._host == platform.node() else None

    def take(self, item: ActorReply) -> Iterator[Completion]:
        """Yield the completions of a reply, and of later replies that arrived before it.

        Raises:
            Exception: Ray's error if there is no reply: the actor is gone.
        """
        if item.actor is not self.actor:
            return
        try:
            sealed: Sealed = item.future.result()
            reply: Reply | None = unseal(sealed) if sealed else None
        except Exception as error:
            starting = not self.pid and self._launches < MAX_LAUNCHES
            if starting and self.group.never_ran(error):
                self.kill()  # it may still start later
                self._launch()
                return
            raise
        if item.listening and not self.closed:
            self._listen()
        if reply is not None:
            self._replies[reply.number] = reply
        while self._next in self._replies:
            reply = self._replies.pop(self._next)
            self._next += 1
            yield from self._take_reply(reply)

    def _take_reply(self, reply: Reply) -> Iterator[Completion]:
        self.pid, self._host = reply.pid, reply.host
        self._first.clear()
        if self._table is not None:
            for transfer in reply.transfers:
                put_rows(self._table, transfer)
            self._take_gauges(reply, self._table)
        for number, start, stop, packed in reply.completions:
            payload = None if packed is None else _unpack(packed, start)
            if number == ops.FAULT and payload is not None:
                (death,) = (p for p in payload.problems if isinstance(p, WorkerDeath))
                self._cause, self.exitcode = death, death.exitcode
                raise ActorEnded(f"because its worker process {death.pid} died: {death.reason}")
            if not self.settle(number, start, stop):  # parts that were sent separately, joined
                for i in range(start, stop):
                    self.settle(number, i, i + 1)
            yield Completion(number, start, stop, payload)
            if number == ops.CLOSE:
                self.kill()

    def _take_gauges(self, reply: Reply, table: SlotTable) -> None:
        arrays, ids = table.gauges.arrays, self.ids
        offset = clock() - reply.clock
        # The delay of a message adds to the offset, so the smallest offset is the most accurate.
        self._offset = offset if self._offset is None else min(offset, self._offset)
        for name, value in zip(HOST_GAUGES, reply.gauges, strict=False):
            arrays[name][ids.start] = value + (self._offset if name in _TIMES else 0)
        if reply.env_gauges is not None:
            for name in ENV_GAUGES:
                arrays[name][ids.start : ids.stop] = reply.env_gauges[name]

    # ---------------------------------------------------------------- its end

    def kill(self) -> None:
        self.group.kill(self.actor)

    def release(self) -> None:
        self.kill()

    def explain(self, error: BaseException) -> str:
        return str(error) if isinstance(error, ActorEnded) else self.group.describe(error)

    @property
    def running(self) -> int | None:
        return None if self._cause is None else self._cause.running

    def doing(self) -> dict[int, str]:
        """Return what each environment does, idle if the worker process of another died."""
        doing = super().doing()
        if self._cause is not None:
            for i in {*self.ids}.difference(self._cause.env_ids):
                name = doing[i].removeprefix("idle after ")
                doing[i] = f"idle after {name}"
        return doing


def _unpack(packed: Sequence[PickleBuffer], start: int) -> Payload:
    """Unpack a payload, and copy its arrays."""
    _, *parts = packed
    try:
        payload: Payload = unseal(parts, copy=True)
    except Exception as error:
        return Payload(problems=[Failure.of(error, start, "sending its reply")])
    return payload


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

    def start(self, number: int = ops.OPEN) -> None:
        self._group.open(len(self.ranges))
        super().start(number)

    def _ready(self, worker: int, number: int, message: ops.Make) -> tuple[Any, ...]:
        """Seal the options of an actor, which only the actor unpickles."""
        ids = self.ranges[worker]
        named = self.options.named(ids)
        options = seal(self._options_of(worker), by_value=True, parts=named)
        make = Operation(number, ids.start, ids.stop, ops.Make(options))
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
