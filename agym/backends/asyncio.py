"""Asyncio: coroutine environments run on one event loop, all at the same time.

Under the async API this is the caller's loop. The sync API gets a private loop in a thread.
Constructors run on the loop too.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from agym.backends.base import BackendOptions, Force, closed, open_host
from agym.backends.options import Asyncio
from agym.backends.outbox import Outbox, OutboxBackend
from agym.backends.process.worker_process import own_loop
from agym.hosts.loop import LoopHost, guarded
from agym.protocol.arguments import runs
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.failures import Failure, WorkerDeath, describe_exception
from agym.protocol.messages.operations import FAULT, OPEN, Operation
from agym.protocol.table import SlotTable

# How long to wait for the loop of forgotten environments, one of which may hang on it.
STOP_SECONDS = 1.0


class AsyncioBackend(OutboxBackend[Completion | BaseException]):
    """Runs a coroutine host on an event loop."""

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self._host = LoopHost(
            options.factories,
            0,
            options.autoreset,
            # No reference to the backend, which may be forgotten.
            partial(_report, self._outbox),
            self._outbox.put,
            options.spec_as(Asyncio).max_concurrency,
            fatal=() if options.blocking else (KeyboardInterrupt, SystemExit),
            log=options.record_actions,
            infos=options.infos,
            fleet=options.fleet,
        )
        self._loop_thread = _LoopThread(self._outbox.put) if options.blocking else None
        # The environments that have not completed an operation, by its number.
        self._pending: dict[int, set[int]] = {}
        # Why no operation completes any more.
        self._death: WorkerDeath | None = None
        self._completions: list[Completion] = []
        self.watchable = options.blocking  # the caller's own loop must turn
        self._closing: asyncio.Task[None] | None = None
        self._end = weakref.finalize(self, _end, self._loop_thread, self._outbox)
        self._ended = False

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._loop_thread is None:
            guarded(self._outbox.put, function, *arguments)
        else:
            with suppress(RuntimeError):  # the loop has ended, which its thread reports
                self._loop_thread.loop.call_soon_threadsafe(
                    guarded, self._outbox.put, function, *arguments
                )

    def start(self) -> None:
        if self._loop_thread is not None:
            self._loop_thread.start()
        self._pending[OPEN] = {*self.ranges[0]}
        self._on_loop(lambda: self._outbox.put(open_host(self._host)))

    def attach(self, table: SlotTable) -> None:
        self._on_loop(self._host.attach, table)

    def submit(self, operation: Operation) -> None:
        number, start, stop, _ = operation
        if self._death is not None:
            self._completions.append(Completion(*operation.span, Payload(problems=[self._death])))
            return
        self._pending.setdefault(number, set()).update(range(start, stop))
        self._on_loop(self._host.begin, operation)

    def poll(self) -> Sequence[Completion]:
        completions, self._completions = self._completions, []
        for item in self._outbox.take():
            if self._death is not None:
                break
            if isinstance(item, BaseException):
                completions += self._report_death(item)
                continue
            completions.append(item)
            number, start, stop, _ = item
            ids = self._pending.get(number)
            if ids is not None:
                ids.difference_update(range(start, stop))
                if not ids:
                    del self._pending[number]
        return completions

    def _report_death(self, error: BaseException) -> list[Completion]:
        """Report that no operation completes any more, for all that is pending too."""
        reason = f"its event loop raised {describe_exception(error)}"
        (everything,) = self.ranges
        self._death = death = WorkerDeath(
            0, None, None, everything, reason, cause=error, replaceable=False
        )
        spans = [(FAULT, everything.start, everything.stop)]
        for number, ids in self._pending.items():
            spans += [(number, run.start, run.stop) for run in runs(tuple(sorted(ids)))]
        self._pending.clear()
        return [Completion(*span, Payload(problems=[death])) for span in spans]

    def close(self, force: Force = Force.NONE) -> None:
        """Cancel pending operations and close the environments."""
        if self._loop_thread is None:
            lost = asyncio._get_running_loop() is None
        else:
            lost = self._loop_thread.over
        if force is Force.KILL or lost:  # the interpreter is exiting, and the loop has ended
            self._give_up()
        elif force is Force.NONE:
            self._on_loop(self._begin_closing)

    def _begin_closing(self) -> None:
        if self._loop_thread is not None and self._loop_thread.over:
            # The loop only runs on to cancel its tasks, and would never start another.
            self._give_up()
            self._outbox.ring()
            return
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        failures = []
        try:
            failures = await self._host.close()
        except Exception as error:
            failures = [Failure.of(error, 0, "close")]
        finally:  # also where the loop ends, which cancels this task
            self._outbox.put(closed(self._host, failures))
            self._ended = True
            self._outbox.ring()

    def _give_up(self) -> None:
        """Give up environments that resist cancellation, and the private loop with them."""
        self._ended = True
        if self._loop_thread is not None:
            self._loop_thread.given_up = True

    @property
    def ended(self) -> bool:
        return self._ended or (self._loop_thread is not None and self._loop_thread.loop.is_closed())

    def release(self) -> None:
        """Stop the private loop, and close the outbox."""
        if self.finalized:
            return
        self._end()
        if self._loop_thread is not None:
            self._loop_thread.join()


class _LoopThread:
    """An event loop in a thread of its own, until it is stopped.

    Attributes:
        given_up: A task on the loop does not end, and is not waited for.
        over: The loop has stopped; it may still run to cancel its tasks.
    """

    given_up = False
    over = False
    _stopping = False

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        """Make the loop; what ends it before :meth:`stop` is passed to ``fail``."""
        self._fail = fail
        self._runner = asyncio.Runner(loop_factory=own_loop)
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="agym-loop", daemon=True)
        self.start = self._thread.start

    def _run(self) -> None:
        with suppress(BaseException), self._runner:
            error: BaseException | None = None
            try:
                self.loop.run_forever()
                if not self._stopping:
                    error = RuntimeError("an environment stopped its event loop")
            except BaseException as ended_by:
                error = ended_by
            self.over = True  # before the caller learns of it
            if error is not None:
                self._fail(error)  # before the runner cancels the tasks, which then fail too
            del error  # which refers to this frame

    def stop(self) -> None:
        """Stop the loop, cancel its tasks, and wait a limited time for the thread."""
        self._stopping = True
        if self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self.loop.stop)
            self.join(STOP_SECONDS)
        else:
            self._runner.close()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread of a stopped loop."""
        # The garbage collector may call this on the loop's own thread.
        thread = self._thread
        if thread.is_alive() and not self.given_up and thread is not threading.current_thread():
            thread.join(seconds)


def _end(loop_thread: _LoopThread | None, outbox: Outbox[Completion | BaseException]) -> None:
    if loop_thread is not None:
        loop_thread.stop()
    outbox.close()


def _report(
    outbox: Outbox[Completion | BaseException],
    operation: Operation,
    slot: int,
    payload: Payload | None,
) -> None:
    completion = Completion(operation.number, slot, slot + 1, payload)
    outbox.put(completion, completion.num_without_problem)
