"""Process: environments in worker processes, many in each, in contiguous ranges.

One slot table in shared memory, a mailbox per worker. This is the caller's side of it; what a
worker does is in ``executors/worker.py``.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from multiprocessing.util import Finalize
from selectors import EVENT_READ, EVENT_WRITE

from agym.core.arena import Arena
from agym.core.machine import available_cores
from agym.core.operations import (
    CLOSE,
    FAULT,
    OPEN,
    SENT_PLANE,
    Death,
    Extras,
    Operation,
    Outcome,
    describe_exit,
)
from agym.core.slots import SlotTable
from agym.executors.base import Executor, Placement
from agym.executors.channel import Channel
from agym.executors.mailbox import Mailbox, mailbox_fields
from agym.executors.supervisor import WorkerProcess, check_platform
from agym.executors.wire import Buffer, pack_by_value
from agym.executors.worker import work

# Between the end of a dead worker's channel and its exit code there is next to nothing.
LAST_BREATH_SECONDS = 0.05


class ProcessExecutor(Executor):
    """Deals environments to worker processes, and operations to their mailboxes."""

    shared = True
    replaceable = True

    def __init__(self, placement: Placement) -> None:
        """Remember what to make."""
        check_platform()
        super().__init__(placement)
        self.ranges = placement.ranges(placement.workers or available_cores())
        # Of each worker, by its index; those of one that died stay until it is replaced.
        self._mailboxes: list[Mailbox] = []
        self._processes: list[WorkerProcess] = []
        self._dead: dict[int, Death] = {}
        # Why a worker was ended by force.
        self._reasons: dict[int, str] = {}
        # Closed when nobody sleeps on them any more.
        self._old: list[tuple[Mailbox, WorkerProcess]] = []
        self._unwatched = 0
        self._arenas: list[Arena] = []
        self._ends = select.poll()
        self._outcomes: list[Outcome] = []
        self._table: SlotTable | None = None
        self._parked = False
        self._closing = False
        # Runs when the executor is released, or forgotten, or at exit; whichever comes first.
        held = (self._mailboxes, self._processes, self._old, self._arenas)
        self._end = Finalize(self, _end, held, exitpriority=10)

    def start(self) -> None:
        """Start the workers; they all start at the same time."""
        # What cannot be packed is refused before anything has started.
        messages = [self._pack_make(worker, OPEN) for worker in range(len(self.ranges))]
        for worker, (make, message) in enumerate(messages):
            mailbox, process = self._start(worker, make, message)
            self._mailboxes.append(mailbox)
            self._processes.append(process)

    def _pack_make(self, worker: int, number: int) -> tuple[Operation, list[Buffer]]:
        ids, placement = self.ranges[worker], self.placement
        factories = placement.factories[ids.start : ids.stop]
        shared = (
            factories,
            placement.autoreset,
            placement.max_concurrency,
            placement.watched,
            placement.logged,
        )
        make = Operation(number, "make", ids.start, ids.stop, shared=shared)
        return make, pack_by_value(make)

    def _start(
        self, worker: int, make: Operation, message: list[Buffer]
    ) -> tuple[Mailbox, WorkerProcess]:
        ids = range(make.start, make.stop)
        ours, theirs = socket.socketpair()
        channel = Channel(ours)  # before the process starts, since a fork must let go of it
        try:
            process = WorkerProcess(
                work,
                (theirs, len(ids), os.getpid() + worker),
                name=f"agym-{worker}",
                start_method=self.placement.start_method,
            )
            process.start()
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        fields = mailbox_fields(len(ids))
        arena = Arena(Arena.size_of(fields), shared=True)
        mailbox = Mailbox(arena.carve(fields)["words"].data, channel, ids)
        self._ends.register(process.ended, select.POLLIN)
        mailbox.post(make, message, arena.descriptor)
        arena.close()
        return mailbox, process

    def attach(self, table: SlotTable) -> None:
        """Send the table's descriptor; the workers lay it out from their own spaces."""
        self._table = table
        self._arenas.append(table.arena)
        for mailbox in self._mailboxes:
            _attach(mailbox, table)

    def replace_worker(self, worker: int, number: int) -> None:
        """Start another process; it maps the same table."""
        make, message = self._pack_make(worker, number)
        mailbox, process = self._start(worker, make, message)
        self._old.append((self._mailboxes[worker], self._processes[worker]))
        self._mailboxes[worker], self._processes[worker] = mailbox, process
        self._dead.pop(worker, None)
        if self._table is not None:
            _attach(mailbox, self._table)
        if self._parked:
            mailbox.bell.park()

    def end_worker(self, worker: int, reason: str) -> None:
        """Kill a worker; its death is noticed as any other."""
        self._reasons[worker] = reason
        self._processes[worker].kill()

    @property
    def pids(self) -> Sequence[int | None]:
        """The worker processes."""
        return [
            None if worker in self._dead else process.pid
            for worker, process in enumerate(self._processes)
        ]

    def submit(self, operation: Operation) -> None:
        """Post to the mailboxes concerned: a plain step in the ring, the rest as messages."""
        if operation.kind == "step" and operation.each is None and not self._dead:
            number, _, start, stop, plane, _, _ = operation
            for mailbox in self._mailboxes:
                ids = mailbox.ids
                if start < ids.stop and ids.start < stop:
                    low, high = max(start, ids.start), min(stop, ids.stop)
                    mailbox.post_step(
                        number, low, high, plane, 1 if plane == SENT_PLANE else high - low
                    )
        else:
            self._submit_messages(operation)

    def _submit_messages(self, operation: Operation) -> None:
        """Pack all parts before one is sent: what cannot be packed leaves nothing half done."""
        messages = [
            (worker, part, pack_by_value(part))
            for worker, mailbox in enumerate(self._mailboxes)
            for part in operation.pieces(mailbox.ids)
        ]
        for worker, part, message in messages:
            if worker in self._dead:
                extras = Extras(problems=[self._dead[worker]])
                self._outcomes.append(Outcome(*part.span, extras))
            else:
                self._mailboxes[worker].post(part, message)

    def poll(self) -> Sequence[Outcome]:
        """Collect from all mailboxes."""
        outcomes, self._outcomes = self._outcomes, []
        for mailbox in self._mailboxes:
            outcomes += mailbox.collect()
        return outcomes

    def waitables(self) -> Mapping[int, int]:
        """The channels, and what tells the end of each process."""
        self._unwatched = len(self._old)
        waitables = {}
        for worker, mailbox in enumerate(self._mailboxes):
            if worker not in self._dead:
                events = EVENT_READ | (EVENT_WRITE if mailbox.channel.backlog else 0)
                waitables[mailbox.channel.fileno()] = events
            if worker not in self._dead or self._closing:
                waitables[self._processes[worker].ended] = EVENT_READ
        return waitables

    def park(self) -> None:
        """From now on workers send a bell."""
        self._parked = True
        for mailbox in self._mailboxes:
            mailbox.bell.park()

    def unpark(self) -> None:
        """Read what woke the caller, and see who is gone."""
        self._parked = False
        if self._unwatched:
            self._let_go()
        for mailbox in self._mailboxes:
            mailbox.bell.unpark()
        self.look()

    def look(self) -> None:
        """Read what has come, and see who is gone."""
        gone = {descriptor for descriptor, _ in self._ends.poll(0)}
        for worker, mailbox in enumerate(self._mailboxes):
            if worker not in self._dead:
                mailbox.receive()
                if mailbox.channel.ended or self._processes[worker].ended in gone:
                    self._bury(worker)

    def _let_go(self) -> None:
        """Close what belonged to workers that were replaced, once nobody sleeps on it."""
        for mailbox, process in self._old[: self._unwatched]:
            mailbox.channel.close()
            process.close()
        del self._old[: self._unwatched]
        self._unwatched = 0

    def _bury(self, worker: int) -> None:
        """A worker has ended: that is told, and all that it owes comes back as its death."""
        process, mailbox = self._processes[worker], self._mailboxes[worker]
        exitcode = process.reap(timeout=0.0 if self._closing else LAST_BREATH_SECONDS)
        if exitcode is None and not self._closing:
            process.kill()  # it has cut its own channel, and nobody can reach it any more
            exitcode = process.reap(timeout=1.0)
        self._ends.unregister(process.ended)
        self._outcomes += mailbox.collect()
        forced = self._reasons.pop(worker, None)
        death = Death(
            worker,
            process.pid,
            exitcode,
            mailbox.ids,
            forced or mailbox.channel.corrupt or describe_exit(exitcode),
            mailbox.operations(),
            mailbox.running,
            late=forced is not None,
        )
        self._dead[worker] = death
        told = Extras(problems=[death])
        if not self._closing:
            self._outcomes.append(Outcome(FAULT, mailbox.ids.start, mailbox.ids.stop, told))
        self._outcomes += mailbox.abandon(death)

    def close(self) -> None:
        """Ask the workers to end once they have done what was posted."""
        self._closing = True
        for worker, mailbox in enumerate(self._mailboxes):
            if worker not in self._dead:
                close = Operation(CLOSE, "close", mailbox.ids.start, mailbox.ids.stop)
                mailbox.post(close, pack_by_value(close))

    def terminate(self) -> None:
        """Send SIGTERM to the workers that are left."""
        for process in self._processes:
            process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the workers that are left."""
        for process in self._processes:
            process.kill()

    @property
    def ended(self) -> bool:
        """Whether every worker process has ended."""
        return not any(process.is_alive() for process in self._processes)

    def disown(self) -> bool:
        """Forget the workers, in a forked child; channels and processes let go by themselves."""
        self._mailboxes, self._processes, self._old = [], [], []
        self._dead = {}
        return True

    def release(self) -> None:
        """End what has not ended, and close channels and processes."""
        self._end()
        self._mailboxes, self._processes, self._arenas, self._table = [], [], [], None


def _attach(mailbox: Mailbox, table: SlotTable) -> None:
    attach = Operation(OPEN, "attach", 0, table.num_envs, shared=table.final)
    mailbox.send(attach, pack_by_value(attach), table.arena.descriptor)


def _end(
    mailboxes: list[Mailbox],
    processes: list[WorkerProcess],
    old: list[tuple[Mailbox, WorkerProcess]],
    arenas: list[Arena],
) -> None:
    """End workers: by the end of their channels, else by force."""
    for arena in arenas:
        arena.close()
    for mailbox in [*mailboxes, *(mailbox for mailbox, _ in old)]:
        mailbox.channel.close()
    left = processes = [*processes, *(process for _, process in old)]
    for force in (None, WorkerProcess.terminate, WorkerProcess.kill):
        if force is not None:
            for process in left:
                force(process)
        end = time.monotonic() + 1.0
        left = [p for p in left if p.reap(max(0.0, end - time.monotonic())) is None]
    for process in processes:
        if process not in left:
            process.close()
