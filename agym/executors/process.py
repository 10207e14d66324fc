"""Process: environments in worker processes, many in each, in contiguous ranges.

One slot table in shared memory, a mailbox per worker. This is the caller's side of it; what a
worker does is in ``executors/worker.py``.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from multiprocessing.util import Finalize
from selectors import EVENT_READ, EVENT_WRITE

from agym.core.arena import Arena
from agym.core.machine import available_cores
from agym.core.operations import CLOSE, OPEN, SENT_PLANE, Death, Extras, Operation, Outcome
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

    def __init__(self, placement: Placement) -> None:
        """Remember what to make."""
        check_platform()
        super().__init__(placement)
        self.ranges = placement.ranges(placement.workers or available_cores())
        self._mailboxes: list[Mailbox] = []
        self._processes: list[WorkerProcess] = []
        self._dead: dict[int, Death] = {}
        self._outcomes: list[Outcome] = []
        self._closing = False
        # Runs when the executor is released, or forgotten, or at exit; whichever comes first.
        self._end = Finalize(self, _end, (self._mailboxes, self._processes), exitpriority=10)

    def start(self) -> None:
        """Start the workers; they all start at the same time."""
        placement = self.placement
        makes = []
        for ids in self.ranges:
            factories = placement.factories[ids.start : ids.stop]
            shared = factories, placement.autoreset, placement.max_concurrency
            makes.append(Operation(OPEN, "make", ids.start, ids.stop, shared=shared))
        # What cannot be packed is refused before anything has started.
        messages = [pack_by_value(make) for make in makes]
        for make, message in zip(makes, messages, strict=True):
            self._start(make, message)

    def _start(self, make: Operation, message: list[Buffer]) -> None:
        ids = range(make.start, make.stop)
        worker = len(self._processes)
        ours, theirs = socket.socketpair()
        try:
            process = WorkerProcess(
                work,
                (theirs, len(ids), os.getpid() + worker, self._inherited(ours)),
                name=f"agym-{worker}",
                start_method=self.placement.start_method,
            )
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        fields = mailbox_fields(len(ids))
        arena = Arena(Arena.size_of(fields), shared=True)
        mailbox = Mailbox(arena.carve(fields)["words"].data, Channel(ours), ids)
        self._processes.append(process)
        self._mailboxes.append(mailbox)
        mailbox.post(make, message, arena.descriptor)
        arena.close()

    def _inherited(self, ours: socket.socket) -> list[int]:
        """Our ends that a fork copies into the worker, where they would hide that we are gone."""
        if self.placement.start_method != "fork":
            return []
        return [ours.fileno(), *(mailbox.channel.fileno() for mailbox in self._mailboxes)]

    def attach(self, table: SlotTable) -> None:
        """Send the table's descriptor; the workers lay it out from their own spaces."""
        for mailbox in self._mailboxes:
            attach = Operation(OPEN, "attach", 0, table.num_envs, shared=table.final)
            mailbox.send(attach, pack_by_value(attach), table.arena.descriptor)
        table.arena.close()

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
        """The channels, and while closing also the processes' sentinels."""
        waitables = {}
        for worker, mailbox in enumerate(self._mailboxes):
            if worker not in self._dead:
                events = EVENT_READ | (EVENT_WRITE if mailbox.channel.backlog else 0)
                waitables[mailbox.channel.fileno()] = events
            if self._closing:
                waitables[self._processes[worker].sentinel] = EVENT_READ
        return waitables

    def park(self) -> None:
        """From now on workers send a bell."""
        for mailbox in self._mailboxes:
            mailbox.bell.park()

    def unpark(self) -> None:
        """Read what woke the caller, and see who is gone."""
        for worker, mailbox in enumerate(self._mailboxes):
            mailbox.bell.unpark()
            if worker not in self._dead:
                mailbox.receive()
                if mailbox.channel.ended:
                    self._bury(worker)

    def _bury(self, worker: int) -> None:
        """A worker's channel has ended: all that it owes comes back as its death."""
        process, mailbox = self._processes[worker], self._mailboxes[worker]
        exitcode = process.reap(timeout=0.0 if self._closing else LAST_BREATH_SECONDS)
        if exitcode is None and not self._closing:
            process.kill()  # it has cut its own channel, and nobody can reach it any more
            exitcode = process.reap(timeout=1.0)
        death = Death(worker, process.pid or 0, exitcode, mailbox.ids, _describe_exit(exitcode))
        self._dead[worker] = death
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

    def release(self) -> None:
        """End what has not ended, and close channels and processes."""
        self._end()
        self._mailboxes, self._processes = [], []


def _describe_exit(exitcode: int | None) -> str:
    if exitcode is None:
        return "no exit code yet"
    if exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        return f"killed by {signal.Signals(-exitcode).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-exitcode}"


def _end(mailboxes: list[Mailbox], processes: list[WorkerProcess]) -> None:
    """End workers: by the end of their channels, else by force."""
    for mailbox in mailboxes:
        mailbox.channel.close()
    left = processes
    for force in (None, WorkerProcess.terminate, WorkerProcess.kill):
        if force is not None:
            for process in left:
                force(process)
        end = time.monotonic() + 1.0
        left = [p for p in left if p.reap(max(0.0, end - time.monotonic())) is None]
    for process in processes:
        if process not in left:
            process.close()
