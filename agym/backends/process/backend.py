"""Process: environments run in worker processes, in contiguous ranges.

All workers map one slot table in shared memory, and each has a mailbox. This is the caller's side;
``backends/process/worker_main.py`` is the worker's.

A worker that is being recycled has a *spare* beside it, which has constructed the same environments
and takes them over one by one. The two count as one worker: if either dies, both are replaced.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from multiprocessing.util import Finalize
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from agym._system.cpus import available_cores, core_numbers, quota
from agym.backends.base import Backend, BackendOptions, Force
from agym.backends.options import Process
from agym.backends.parts import Shared, Spares, Supervision, Watched, Workers
from agym.backends.process.mailbox import Mailbox
from agym.backends.process.serialization import Buffer, pack_by_value
from agym.backends.process.worker_handle import WorkerHandle, pack_make, start_worker
from agym.backends.process.worker_process import WorkerProcess, check_daemon, check_platform
from agym.backends.registry import Entries, collect, refuse_import
from agym.backends.spinning import SPIN_SECONDS, WATCH_SECONDS, SpinPolicy
from agym.protocol.arguments import runs
from agym.protocol.memory import Arena
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import Failure, WorkerDeath, describe_exit
from agym.protocol.messages.operations import (
    CLOSE,
    FAULT,
    OPEN,
    Close,
    Make,
    Operation,
    Restart,
    Spare,
    Step,
)
from agym.protocol.table import Extension, SlotTable

# The exit code normally arrives right after EOF.
EXIT_CODE_SECONDS = 0.05

# Numbers the backends of this process.
_started = count()


class ProcessBackend(Backend, Workers, Supervision):
    """Divides environments among worker processes, and posts operations to their mailboxes."""

    def __init__(self, options: BackendOptions) -> None:
        check_platform()
        check_daemon()
        refuse_import()
        super().__init__(options)
        self._spec = options.spec_as(Process)
        self.recycle = self._spec.recycle
        self.ranges = options.ranges(self._spec.workers or available_cores())
        # Callers, and the backends of one, count cores from different numbers, so that they do not
        # all begin with the same one.
        self._position = os.getpid() + next(_started) * len(self.ranges)
        # By worker; that of a dead worker stays until it is replaced.
        self._handles: list[WorkerHandle] = []
        self._spares: dict[int, WorkerHandle] = {}
        # The environments that a worker's spare has taken over.
        self._moved: dict[int, set[int]] = {}
        # Those of the workers, to which steps go unless environments move; with the spares'.
        self._primary: list[Mailbox] = []
        self._mailboxes: list[Mailbox] = []
        # Replaced workers, to be closed when nobody sleeps on their descriptors.
        self._replaced: list[WorkerHandle] = []
        self._dead: dict[int, WorkerDeath] = {}
        self._arenas: list[Arena] = []
        self._exits = select.poll()
        self._completions: list[Completion] = []
        self._table: SlotTable | None = None
        self._parked = False
        self._closing = False
        # Runs at release, at garbage collection or at exit, whichever comes first.
        held = (self._handles, self._spares, self._replaced, self._arenas)
        self._end = Finalize(self, _end, held, exitpriority=10)

    # ---------------------------------------------------------------- starting and ending workers

    def start(self) -> None:
        """Start the workers concurrently."""
        # Refuse what cannot be pickled before anything starts.
        registry = self._registry()
        makes = [pack_make(self.options, ids, OPEN, registry, Make()) for ids in self.ranges]
        for worker, (make, message) in enumerate(makes):
            self._handles.append(self._start_worker(make, message, worker))
        self._list_mailboxes()

    def _registry(self) -> Entries | None:
        """Return the registry to send; ``None`` if workers are forks of this process."""
        return None if self._spec.start_method == "fork" else collect()

    def attach(self, table: SlotTable) -> None:
        """Send the table's descriptor; the workers derive the layout from their own spaces."""
        self._table = table
        self._arenas += [table.arena, *(added.arena for added in table.extensions.values())]
        for handle in self._handles:
            handle.attach(table)

    @property
    def shared(self) -> Shared:
        return self

    def extend(self, extension: Extension) -> None:
        self._arenas.append(extension.arena)
        for handle in self._living_handles():
            handle.extend(extension)

    def shrink(self, extension: Extension) -> None:
        self._arenas.remove(extension.arena)
        for handle in self._living_handles():
            handle.shrink(extension.planes.start)

    @property
    def supervision(self) -> Supervision:
        return self

    def replace_worker(self, worker: int, number: int) -> None:
        handle = self._start_another(worker, number, Restart())
        self._replaced.append(self._handles[worker])
        self._handles[worker] = handle
        self._dead.pop(worker, None)
        self._list_mailboxes()

    def _start_worker(self, make: Operation, message: list[Buffer], worker: int) -> WorkerHandle:
        workers, cores = len(self.ranges), len(core_numbers())
        # To watch takes nothing from the others: neither a core, nor of a quota that all share.
        may_watch = workers <= cores <= quota()
        handle = start_worker(
            make, message, worker, self._spec, position=self._position + worker,
            crowded=workers >= cores, watch=WATCH_SECONDS if may_watch else SPIN_SECONDS,
        )  # fmt: skip
        self._exits.register(handle.process.ended, select.POLLIN)
        return handle

    def _start_another(self, worker: int, number: int, message: Make) -> WorkerHandle:
        ids = self.ranges[worker]
        packed = pack_make(self.options, ids, number, self._registry(), message)
        handle = self._start_worker(*packed, worker)
        if self._table is not None:
            handle.attach(self._table)
        if self._parked:
            handle.mailbox.bell.park()
        return handle

    def _list_mailboxes(self) -> None:
        self._primary = [handle.mailbox for handle in self._handles]
        self._mailboxes = [*self._primary, *(spare.mailbox for spare in self._spares.values())]

    def end_worker(self, worker: int, reason: str) -> None:
        """Kill a worker, and report its death at once, even if the system takes its time.

        What is posted to it from now on would be lost.
        """
        self._handles[worker].process.kill()
        if worker not in self._dead:
            self._report_death(worker, reason)

    def running(self, worker: int) -> int | None:
        return self._handles[worker].mailbox.running

    @property
    def pids(self) -> Sequence[int | None]:
        return [
            None if worker in self._dead else handle.process.pid
            for worker, handle in enumerate(self._handles)
        ]

    # ---------------------------------------------------------------- recycling

    @property
    def spares(self) -> Spares:
        return self

    def prepare(self, worker: int, number: int, spare: Spare) -> None:
        self._spares[worker] = self._start_another(worker, number, spare)
        self._list_mailboxes()

    def discard(self, worker: int) -> None:
        self._discard_spare(worker)

    def move(self, worker: int, slot: int, *, back: bool = False) -> None:
        if worker not in self._spares:  # gone with its worker, whose death is about to be reported
            return
        moved = self._moved.setdefault(worker, set())
        if back:
            moved.discard(slot)
        else:
            moved.add(slot)

    def finish(self, worker: int) -> bool:
        if worker not in self._spares:
            return False
        del self._moved[worker]
        old, self._handles[worker] = self._handles[worker], self._spares.pop(worker)
        self._exits.unregister(old.process.ended)
        for late in self._replaced:  # its successor has had a whole life meanwhile
            if late.mailbox.ids == old.mailbox.ids:
                late.process.kill()
        self._replaced.append(old)
        self._list_mailboxes()
        return True

    def _discard_spare(self, worker: int) -> list[Mailbox]:
        """End a spare; return its mailbox, which fails with its worker's."""
        spare = self._spares.pop(worker, None)
        self._moved.pop(worker, None)
        if spare is None:
            return []
        spare.process.kill()
        self._exits.unregister(spare.process.ended)
        self._replaced.append(spare)
        self._list_mailboxes()
        return [spare.mailbox]

    # ---------------------------------------------------------------- operations

    def submit(self, operation: Operation) -> None:
        """Post plain steps to the rings, and everything else as messages."""
        number, start, stop, message = operation
        routine = not self._dead and not self._moved
        if isinstance(message, Step) and message.parts is None and routine:
            plane, sent = message.plane, message.sent
            for mailbox in self._primary:
                low, high = mailbox.start, mailbox.stop
                if start < high and low < stop:
                    if low < start or stop < high:
                        low, high = max(low, start), min(high, stop)
                    size = 1 if sent else high - low
                    mailbox.post_step(number, low, high, plane, size)
        else:
            self._submit_messages(operation)

    @property
    def watched(self) -> Watched:
        return self

    def step_watched(self, number: int, plane: int, parts: list[Any] | None) -> bool:
        """Post a step of all environments, and watch for its end while that is worth it."""
        if parts is not None or self._dead or self._moved:
            self.submit(Operation(number, 0, len(self.options.factories), Step(plane, parts)))
            return False
        for mailbox in self._primary:
            start, stop = mailbox.start, mailbox.stop
            mailbox.post_step(number, start, stop, plane, stop - start)
        spinning = self.spinning
        if not spinning.worth_spinning:
            return False
        begun = time.perf_counter()
        for mailbox in self._primary:
            if not mailbox.watch(begun + spinning.limit):
                if not self.news():
                    spinning.spend()
                return False
        spinning.learn(time.perf_counter() - begun, slept=False)
        return True

    def settle_watched(self, number: int) -> None:
        for mailbox in self._primary:
            mailbox.take_step(number)

    def _submit_messages(self, operation: Operation) -> None:
        """Pack all parts before sending any, so that a failure leaves nothing half done."""
        messages = [
            (worker, mailbox, part, pack_by_value(mailbox.complete(part), part.given()))
            for worker, mailbox, ids in self._routes()
            for part in operation.split(ids)
        ]
        for worker, mailbox, part, message in messages:
            if worker in self._dead:
                payload = Payload(problems=[self._dead[worker]])
                self._completions.append(Completion(*part.span, payload))
            else:
                mailbox.post(part, message)

    def _routes(self) -> Iterator[tuple[int, Mailbox, range]]:
        """Yield the mailbox of each range of environments."""
        for worker, handle in enumerate(self._handles):
            moved = self._moved.get(worker)
            if moved is None:
                yield worker, handle.mailbox, self.ranges[worker]
                continue
            for run in runs(tuple(sorted(moved))):
                yield worker, self._spares[worker].mailbox, run
            for run in runs(tuple(i for i in self.ranges[worker] if i not in moved)):
                yield worker, handle.mailbox, run

    def poll(self) -> Sequence[Completion]:
        completions, self._completions = self._completions, []
        for mailbox in self._mailboxes:
            completions += mailbox.collect()
        return completions

    def news(self) -> bool:
        for mailbox in self._mailboxes:
            if mailbox.news():
                return True
        return bool(self._completions)

    # ---------------------------------------------------------------- waiting

    @property
    def workers(self) -> Workers:
        return self

    @cached_property
    def spinning(self) -> SpinPolicy:
        return SpinPolicy(WATCH_SECONDS)

    def waitables(self) -> Mapping[int, int]:
        for old in self._replaced:
            old.watched = False
        waitables = {}
        for handle in self._living_handles():
            channel = handle.mailbox.channel
            waitables[channel.fileno()] = EVENT_READ | (EVENT_WRITE if channel.backlog else 0)
            waitables[handle.process.ended] = EVENT_READ
        if self._closing:
            waitables.update((handle.process.ended, EVENT_READ) for handle in self._handles)
        return waitables

    def _living_handles(self) -> list[WorkerHandle]:
        living = [handle for worker, handle in enumerate(self._handles) if worker not in self._dead]
        return [*living, *self._spares.values()]

    def park(self, envs: int = 1) -> None:
        self._parked = True
        for mailbox in self._mailboxes:
            mailbox.bell.park()

    def unpark(self) -> None:
        self._parked = False
        if self._replaced:
            self._close_replaced()
        for mailbox in self._mailboxes:
            mailbox.bell.unpark()
        self.check_workers()

    def _close_replaced(self) -> None:
        """Close the workers that were replaced, once nobody sleeps on their descriptors."""
        for old in [*self._replaced]:
            if not old.watched and old.close():
                self._replaced.remove(old)

    def check_workers(self) -> None:
        gone = {descriptor for descriptor, _ in self._exits.poll(0)}
        for worker, handle in enumerate(self._handles):
            if worker not in self._dead and _has_ended(handle, gone):
                self._report_death(worker)
        for worker, spare in [*self._spares.items()]:
            if _has_ended(spare, gone):
                if worker in self._moved:
                    self._handles[worker].process.kill()
                    self._report_death(worker)
                else:
                    self._report_lost_spare(worker, spare)

    def _report_lost_spare(self, worker: int, spare: WorkerHandle) -> None:
        """Report a spare that ended before it took anything over: it could not be made."""
        reason = describe_exit(spare.process.reap(EXIT_CODE_SECONDS))
        self._completions += spare.mailbox.collect()
        self._discard_spare(worker)
        ids = self.ranges[worker]
        death = WorkerDeath(worker, spare.process.pid, None, ids, reason)
        for number, start, stop, _ in spare.mailbox.fail_pending(death):
            failure = Failure(start, "make", f"its new worker died, {reason}", "")
            self._completions.append(Completion(number, start, stop, Payload(problems=[failure])))

    def _report_death(self, worker: int, forced: str | None = None) -> None:
        """Report a worker's death, for all that is pending too; ``forced`` is why it was killed."""
        handle = self._handles[worker]
        process, mailbox = handle.process, handle.mailbox
        exitcode = process.reap(timeout=0.0 if self._closing else EXIT_CODE_SECONDS)
        if exitcode is None and forced is not None:
            exitcode = -signal.SIGKILL
        elif exitcode is None and not self._closing:
            process.kill()  # it closed its channel, and cannot be reached
            exitcode = process.reap(timeout=1.0)
        self._exits.unregister(process.ended)
        mailboxes = [mailbox, *self._discard_spare(worker)]
        for each in mailboxes:
            self._completions += each.collect()
        death = WorkerDeath(
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
        payload = Payload(problems=[death])
        if not self._closing:
            self._completions.append(
                Completion(FAULT, mailbox.ids.start, mailbox.ids.stop, payload)
            )
        for each in mailboxes:
            self._completions += each.fail_pending(death)

    # ---------------------------------------------------------------- closing

    def close(self, force: Force = Force.NONE) -> None:
        for handle in self._handles:
            if force is Force.TERMINATE:
                handle.process.terminate()
            elif force is Force.KILL:
                handle.process.kill()
        if force is Force.NONE:
            self._ask_to_close()

    def _ask_to_close(self) -> None:
        self._closing = True
        for worker in [*self._spares]:
            self._discard_spare(worker)
        for worker, handle in enumerate(self._handles):
            if worker not in self._dead:
                ids = self.ranges[worker]
                close = Operation(CLOSE, ids.start, ids.stop, Close())
                handle.mailbox.post(close, pack_by_value(close))

    @property
    def finalized(self) -> bool:
        return not self._end.still_active()

    @property
    def ended(self) -> bool:
        return not any(handle.process.is_alive() for handle in self._handles)

    def abandon(self) -> bool:
        """Drop the workers in a forked child; channels and processes drop themselves."""
        self._handles, self._spares, self._replaced, self._dead = [], {}, [], {}
        self._list_mailboxes()
        return True

    def release(self) -> None:
        self._end()
        self._handles, self._spares, self._arenas, self._table = [], {}, [], None
        self._list_mailboxes()


def _has_ended(handle: WorkerHandle, gone: set[int]) -> bool:
    handle.mailbox.receive()
    return handle.mailbox.channel.ended or handle.process.ended in gone


def _end(
    handles: list[WorkerHandle],
    spares: dict[int, WorkerHandle],
    old: list[WorkerHandle],
    arenas: list[Arena],
) -> None:
    """End workers: by EOF on their channels, else by force."""
    for arena in arenas:
        arena.close()
    every = [*handles, *spares.values(), *old]
    for handle in every:
        handle.mailbox.close()
    left = [handle.process for handle in every]
    for force in (None, WorkerProcess.terminate, WorkerProcess.kill):
        if force is not None:
            for process in left:
                force(process)
        end = time.monotonic() + 1.0
        left = [p for p in left if p.reap(max(0.0, end - time.monotonic())) is None]
    for handle in every:
        if handle.process not in left:
            handle.process.close()
