"""The driver's handle of an actor: its pending operations, and its replies in order."""

from __future__ import annotations

import pickle
import platform
from collections.abc import Callable, Iterator, Sequence
from pickle import PickleBuffer
from typing import Any, NamedTuple

from agym.backends.outbox import Outbox
from agym.backends.process.serialization import Sealed, unseal
from agym.backends.ray.reply_buffer import Reply
from agym.protocol.arguments import runs
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure, WorkerDeath
from agym.protocol.messages.operations import FAULT, Make, Operation
from agym.protocol.metrics.gauges import clock
from agym.protocol.table import SlotTable
from agym.protocol.transfer import ENV_GAUGES, HOST_GAUGES, put_rows

# Threads of an actor beside the one that runs operations: one waits for completions, one accepts
# operations while the first is occupied.
LISTEN, POST = "listen", "post"
THREADS = {LISTEN: 1, POST: 1}

# How often to start an actor whose node is lost before it runs: Ray takes a while to notice.
MOST_LAUNCHES = 20

# Gauges that are times by the actor's clock.
_TIMES = ("began", "ended")


class ActorReply(NamedTuple):
    """The answer to a call of an actor.

    Attributes:
        handle: The actor's handle.
        actor: The actor that was called; another may have replaced it since.
        future: The reply, or why there is none.
        listening: It was a call of ``listen``.
    """

    handle: ActorHandle
    actor: Any
    future: Any
    listening: bool


class PendingOp(NamedTuple):
    """An operation that an actor has not completed.

    Attributes:
        stop: One past its last environment.
        name: Its name.
        ended: The environments that have completed it.
    """

    stop: int
    name: str
    ended: set[int]


class ActorHandle:
    """An actor, from its start to its end.

    Attributes:
        actor: Ray's handle.
        death: Why it is gone, if it is.
        closed: It has closed its environments.
        pid: Its process, once it has replied.
        made: Its environments are made, or could not be.
        posting: Operations go to ``post``, since no thread of Ray's runs them.
    """

    made = False
    posting = False

    death: WorkerDeath | None = None
    closed = False
    pid: int | None = None

    def __init__(
        self, worker: int, ids: range, launch: Callable[[], Any], outbox: Outbox[ActorReply]
    ) -> None:
        """Start an actor, by ``launch``, and listen to it; its answers go to ``outbox``."""
        self.worker = worker
        self.ids = ids
        self._launch = launch
        self._outbox = outbox
        # Messages sent before its first reply.
        self._first: list[tuple[Sealed, bool]] = []
        self._launches = 0
        # By number and first environment.
        self._pending: dict[tuple[int, int], PendingOp] = {}
        self._next = 0
        self._host: str | None = None
        self._early: dict[int, Reply] = {}
        # Its clock plus this is ours.
        self._offset: int | None = None
        # The name of the last operation on all environments, and on those with a later one.
        self._last_name = Make.name
        self._last_names: dict[int, str] = {}
        self.launch()

    # ---------------------------------------------------------------- to the actor

    def launch(self) -> None:
        """Start an actor, or start it again if it never ran."""
        self._launches += 1
        self.actor = self._launch()
        self._listen()
        for message, posting in self._first:
            self._call(message, posting=posting)

    @property
    def local_pid(self) -> int | None:
        """Its process, if it is on this machine."""
        return self.pid if self._host == platform.node() else None

    @property
    def is_starting(self) -> bool:
        """Whether it has never replied, and may be started again."""
        return self.pid is None and self._launches < MOST_LAUNCHES

    def post(self, operation: Operation, sealed: Sealed) -> None:
        """Send an operation, sealed with its arguments.

        Raises:
            Exception: Ray cannot send it.
        """
        number, start, stop, message = operation
        self._pending[number, start] = PendingOp(stop, message.name, set())
        if stop - start == len(self.ids):
            self._last_name = message.name
            self._last_names.clear()
        else:
            self._last_names.update(dict.fromkeys(range(start, stop), message.name))
        self.send(sealed)

    def send(self, message: Sealed) -> None:
        """Send a message that has no completion."""
        if self.pid is None:
            self._first.append((message, self.posting))
        self._call(message, posting=self.posting)

    def _call(self, message: Sealed, *, posting: bool) -> None:
        if posting:
            answer = self.actor.post.options(concurrency_group=POST).remote(message)
        else:
            answer = self.actor.run.remote(message)
        self._await(answer, listening=False)

    def _listen(self) -> None:
        calling = self.actor.listen.options(concurrency_group=LISTEN)
        self._await(calling.remote(), listening=True)

    def _await(self, answer: Any, *, listening: bool) -> None:
        outbox, actor = self._outbox, self.actor  # Ray's thread must hold no backend
        answer.future().add_done_callback(
            lambda done: outbox.put(ActorReply(self, actor, done, listening))
        )

    # ---------------------------------------------------------------- from the actor

    def take(self, answer: ActorReply, table: SlotTable | None) -> Iterator[Completion]:
        """Yield the completions of an answer, and of later replies that arrived before it.

        Raises:
            Exception: Ray's, if there is no reply: the actor is gone.
        """
        reply: Reply | None = unseal(answer.future.result())
        if answer.listening and not self.closed:
            self._listen()
        if reply is not None:
            self._early[reply.number] = reply
        while self._next in self._early:
            reply = self._early.pop(self._next)
            self._next += 1
            self.pid, self._host = reply.pid, reply.host
            self._first.clear()
            if table is not None:
                for transfer in reply.transfers:
                    put_rows(table, transfer)
                self._take_gauges(reply, table)
            for number, start, stop, packed in reply.completions:
                self._settle(number, start, stop)
                payload = None if packed is None else _unpack(packed, start)
                if not self.made:
                    self.made = True
                    found = None if payload is None else payload.values.get(start)
                    self.posting |= isinstance(found, Description) and found.cancellable
                yield Completion(number, start, stop, payload)

    def _take_gauges(self, reply: Reply, table: SlotTable) -> None:
        arrays, ids = table.gauges.arrays, self.ids
        offset = clock() - reply.clock
        # The fastest message so far tells best how the clocks differ.
        self._offset = offset if self._offset is None else min(offset, self._offset)
        for name, value in zip(HOST_GAUGES, reply.gauges, strict=False):
            arrays[name][ids.start] = value + (self._offset if name in _TIMES else 0)
        if reply.env_gauges is not None:
            for name in ENV_GAUGES:
                arrays[name][ids.start : ids.stop] = reply.env_gauges[name]

    def _settle(self, number: int, low: int, high: int) -> None:
        """Remove completed environments from the pending operations."""
        pending = self._pending.get((number, low))
        if pending is not None and pending.stop == high:
            del self._pending[number, low]
            return
        for (other, start), (stop, _, ended) in self._pending.items():
            if other == number and start <= low and high <= stop:
                ended.update(range(low, high))
                if len(ended) == stop - start:
                    del self._pending[other, start]
                return

    def fail_pending(
        self, reason: str, because: WorkerDeath | None, *, late: bool, report: bool
    ) -> list[Completion]:
        """Complete all pending operations with the actor's death; ``report`` it by itself, too.

        ``because`` is the death of a worker process in it, which it does not survive.
        """
        busy = dict.fromkeys(self.ids, "")
        for (_, start), (stop, name, ended) in reversed(self._pending.items()):
            busy.update((i, name) for i in range(start, stop) if i not in ended)
        suspects = self.ids if because is None else because.env_ids
        doing = {
            i: name
            if name and i in suspects
            else f"idle after {name or self._last_names.get(i, self._last_name)}"
            for i, name in busy.items()
        }
        running = None if because is None else because.running
        exitcode = None if because is None else because.exitcode
        # A pid of ``None`` would mean a thread.
        self.death = death = WorkerDeath(
            self.worker, self.pid or 0, exitcode, self.ids, reason, doing, running, late=late
        )
        completions = []
        if report:
            payload = Payload(problems=[death])
            completions.append(Completion(FAULT, self.ids.start, self.ids.stop, payload))
        for (number, start), (stop, _, ended) in self._pending.items():
            left = tuple(i for i in range(start, stop) if i not in ended)
            completions += [
                Completion(number, span.start, span.stop, Payload(problems=[death]))
                for span in runs(left)
            ]
        self._pending.clear()
        self._early.clear()
        return completions


def _unpack(packed: Sequence[PickleBuffer], start: int) -> Payload:
    """Unpack a payload, whose arrays get memory of their own."""
    _, pickled, *buffers = packed
    try:
        payload: Payload = pickle.loads(pickled, buffers=[bytearray(part) for part in buffers])
    except Exception as error:
        return Payload(problems=[Failure.of(error, start, "sending its answer")])
    return payload
