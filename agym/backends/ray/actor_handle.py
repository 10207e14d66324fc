"""Link to an actor: what was posted to it, what it owes, and its replies in their order."""

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
from agym.protocol.messages import (
    FAULT,
    Completion,
    Description,
    Failure,
    Operation,
    Payload,
    WorkerDeath,
)
from agym.protocol.metrics.gauges import clock
from agym.protocol.table import SlotTable
from agym.protocol.transfer import ENV_GAUGES, HOST_GAUGES, put_rows

# The threads of an actor beside the one that runs operations: one that waits for news, and one that
# takes operations where the first is taken up.
LISTEN, POST = "listen", "post"
THREADS = {LISTEN: 1, POST: 1}

# How often an actor is started whose node is lost before it runs: it takes Ray a while to notice.
MOST_LAUNCHES = 20

# Gauges that are times of the actor's clock.
_TIMES = ("began", "ended")


class ActorReply(NamedTuple):
    """What came of a call to an actor.

    Attributes:
        link: Whose.
        actor: Which, since another one may have been started in its place.
        future: The answer, or why there is none.
        listening: It was the call that waits for news.
    """

    handle: ActorHandle
    actor: Any
    future: Any
    listening: bool


class PendingOp(NamedTuple):
    """An operation that an actor has not ended.

    Attributes:
        stop: One past its last environment.
        kind: Its kind.
        ended: Those of its environments that have ended it.
    """

    stop: int
    kind: str
    ended: set[int]


class ActorHandle:
    """An actor, from its start to its end.

    Attributes:
        worker: Its index.
        ids: Its environments.
        actor: Ray's handle.
        death: Why it is gone, if it is.
        closed: It has closed its environments.
        pid: Its process, once it has said so.
        made: Its environments are made, or could not be.
        posting: Operations have to be posted to it, since no thread of its runs them for Ray.
    """

    made = False
    posting = False

    death: WorkerDeath | None = None
    closed = False
    pid: int | None = None

    def __init__(
        self, worker: int, ids: range, launch: Callable[[], Any], outbox: Outbox[ActorReply]
    ) -> None:
        """Have Ray start an actor, and begin to listen to it.

        Args:
            worker: Its index.
            ids: Its environments.
            launch: Has an actor started as soon as there is room; gives Ray's handle.
            outbox: Where answers go.
        """
        self.worker = worker
        self.ids = ids
        self._launch = launch
        self._outbox = outbox
        # What it was sent before its first answer.
        self._first: list[tuple[Sealed, bool]] = []
        self._launches = 0
        # By number and first environment.
        self._owed: dict[tuple[int, int], PendingOp] = {}
        self._next = 0
        self._host: str | None = None
        self._early: dict[int, Reply] = {}
        # What to add to its clock for ours.
        self._offset: int | None = None
        # The last kind of operation of all environments, and of those with a later one.
        self._last = "make"
        self._lasts: dict[int, str] = {}
        self.launch()

    # ---------------------------------------------------------------- to the actor

    def launch(self) -> None:
        """Start an actor, in the place of one that never ran if there was one."""
        self._launches += 1
        self.actor = self._launch()
        self._listen()
        for message, posting in self._first:
            self._call(message, posting=posting)

    @property
    def local_pid(self) -> int | None:
        """Its process, if that is on this machine."""
        return self.pid if self._host == platform.node() else None

    @property
    def is_starting(self) -> bool:
        """Whether it has never answered, and may be started once more."""
        return self.pid is None and self._launches < MOST_LAUNCHES

    def post(self, operation: Operation, message: Sealed) -> None:
        """Hand an operation over, which will have outcomes.

        Args:
            operation: What to do, within its range.
            message: The same with what it needs beside that, sealed.

        Raises:
            Exception: Ray cannot send it.
        """
        number, kind, start, stop, *_ = operation
        self._owed[number, start] = PendingOp(stop, kind, set())
        if stop - start == len(self.ids):
            self._last = kind
            self._lasts.clear()
        else:
            self._lasts.update(dict.fromkeys(range(start, stop), kind))
        self.send(message)

    def send(self, message: Sealed) -> None:
        """Hand over what has no outcome."""
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
        outbox, actor = self._outbox, self.actor  # Ray's thread is to hold no backend
        answer.future().add_done_callback(
            lambda done: outbox.put(ActorReply(self, actor, done, listening))
        )

    # ---------------------------------------------------------------- from the actor

    def take(self, said: ActorReply, table: SlotTable | None) -> Iterator[Completion]:
        """Take in an answer, and what could not be taken in before it.

        Raises:
            Exception: There is none, as Ray says it: the actor is gone.
        """
        reply: Reply | None = unseal(said.future.result())
        if said.listening and not self.closed:
            self._listen()
        if reply is not None:
            self._early[reply.number] = reply
        while self._next in self._early:
            reply = self._early.pop(self._next)
            self._next += 1
            self.pid, self._host = reply.pid, reply.host
            self._first.clear()
            if table is not None:
                for parcel in reply.parcels:
                    put_rows(table, parcel)
                self._take_gauges(reply, table)
            for number, start, stop, packed in reply.outcomes:
                self._settle(number, start, stop)
                extras = None if packed is None else _unpack(packed, start)
                if not self.made:
                    self.made = True
                    found = None if extras is None else extras.values.get(start)
                    self.posting |= isinstance(found, Description) and found.coroutines
                yield Completion(number, start, stop, extras)

    def _take_gauges(self, reply: Reply, table: SlotTable) -> None:
        arrays, ids = table.gauges.arrays, self.ids
        offset = clock() - reply.clock
        # The quickest message so far tells best how the clocks differ.
        self._offset = offset if self._offset is None else min(offset, self._offset)
        for name, value in zip(HOST_GAUGES, reply.gauges, strict=False):
            arrays[name][ids.start] = value + (self._offset if name in _TIMES else 0)
        if reply.env_gauges is not None:
            for name in ENV_GAUGES:
                arrays[name][ids.start : ids.stop] = reply.env_gauges[name]

    def _settle(self, number: int, low: int, high: int) -> None:
        """Cross off what has ended."""
        owed = self._owed.get((number, low))
        if owed is not None and owed.stop == high:
            del self._owed[number, low]
            return
        for (other, start), (stop, _, ended) in self._owed.items():
            if other == number and start <= low and high <= stop:
                ended.update(range(low, high))
                if len(ended) == stop - start:
                    del self._owed[other, start]
                return

    def fail_pending(
        self, reason: str, because: WorkerDeath | None, *, late: bool, told: bool
    ) -> list[Completion]:
        """The actor is gone: all that it owes comes back as its death.

        Args:
            reason: Why.
            because: The death of a worker process in it, which it does not outlive.
            late: It missed a deadline.
            told: Tell of the death itself, too.
        """
        busy = dict.fromkeys(self.ids, "")
        for (_, start), (stop, kind, ended) in reversed(self._owed.items()):
            busy.update((i, kind) for i in range(start, stop) if i not in ended)
        suspects = self.ids if because is None else because.env_ids
        doing = {
            i: kind
            if kind and i in suspects
            else f"idle after {kind or self._lasts.get(i, self._last)}"
            for i, kind in busy.items()
        }
        running = None if because is None else because.running
        exitcode = None if because is None else because.exitcode
        # Without a process it would be a thread.
        self.death = death = WorkerDeath(
            self.worker, self.pid or 0, exitcode, self.ids, reason, doing, running, late=late
        )
        outcomes = []
        if told:
            extras = Payload(problems=[death])
            outcomes.append(Completion(FAULT, self.ids.start, self.ids.stop, extras))
        for (number, start), (stop, _, ended) in self._owed.items():
            left = tuple(i for i in range(start, stop) if i not in ended)
            outcomes += [
                Completion(number, span.start, span.stop, Payload(problems=[death]))
                for span in runs(left)
            ]
        self._owed.clear()
        self._early.clear()
        return outcomes


def _unpack(packed: Sequence[PickleBuffer], start: int) -> Payload:
    """Unpack extras, whose arrays get memory of their own."""
    _, pickled, *buffers = packed
    try:
        extras: Payload = pickle.loads(pickled, buffers=[bytearray(part) for part in buffers])
    except Exception as error:
        return Payload(problems=[Failure.of(error, start, "sending its answer")])
    return extras
