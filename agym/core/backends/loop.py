"""Loop: coroutine environments run on one event loop, all at the same time.

Under the async API this is the caller's loop. The sync API gets a private loop in a thread.
Constructors run on the loop too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agym.core.backends.options import BackendSpec, LoopSpec
from agym.core.backends.port import Force, Port, closed, open_host
from agym.core.backends.process.worker_process import own_loop
from agym.core.hosts.loop_host import LoopHost, guarded
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Operation
from agym.core.protocol.table import SlotTable

# How many seconds to wait for the loop of unreferenced environments, which may hang.
STOP_SECONDS = 1.0


class LoopPort(Port):
    """Runs a coroutine host on an event loop."""

    splits = False
    runner = "its event loop"
    watchable = False

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        return 1

    def _report(self, operation: Operation, slot: int, payload: Payload | None) -> None:
        self.outbox.put(self, Completion(operation.number, slot, slot + 1, payload))

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._loop_thread is None:
            guarded(self.report, function, *arguments)
        else:
            # The loop may close at any moment in its thread. The call is then lost, but that thread
            # has reported why the loop ended, and the pool fails all pending operations.
            with suppress(RuntimeError):
                self._loop_thread.loop.call_soon_threadsafe(
                    guarded, self.report, function, *arguments
                )

    def start(self, make: Operation) -> None:
        options = self.options
        self._host = options.host(
            LoopHost, self.ids, report=self._report, fail=self.report,
            max_concurrency=options.spec_as(LoopSpec).max_concurrency,
            fatal=() if options.blocking else (KeyboardInterrupt, SystemExit),
        )  # fmt: skip
        self._loop_thread = _LoopThread(self.report) if options.blocking else None
        if self._loop_thread is not None:
            self._loop_thread.start()
        self._on_loop(lambda: self.report(open_host(self._host, make.number)))

    def attach(self, table: SlotTable) -> None:
        self._on_loop(self._host.attach, table)

    def post(self, operation: Operation) -> None:
        self._on_loop(self._host.enqueue, operation)

    def close(self, force: Force = Force.NONE) -> None:
        """Cancel pending operations and close the environments."""
        if self._loop_thread is None:
            lost = asyncio._get_running_loop() is None
        else:
            lost = self._loop_thread.over
        if force is Force.KILL or lost:  # the interpreter is exiting, and the loop has ended
            self._give_up()
        elif force is Force.NONE:
            self._on_loop(self._start_closing)

    def _start_closing(self) -> None:
        if self._loop_thread is not None and self._loop_thread.over:
            # The loop runs only to cancel its tasks, and would never start a new task.
            self._give_up()
            self.outbox.ring()
            return
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        failures = []
        try:
            failures = await self._host.close()
        except Exception as error:
            failures = [Failure.of(error, 0, "close")]
        finally:  # also if the loop ends, which cancels this task
            # ``closed`` promises the caller that no completion follows. So report first, and ring
            # last, for a caller that sleeps and whose completions are dropped.
            self.report(closed(self._host, failures))
            self.closed = True
            self.outbox.ring()

    def _give_up(self) -> None:
        """Give up environments that resist cancellation, and their private loop."""
        self.closed = True
        if self._loop_thread is not None:
            self._loop_thread.given_up = True

    @property
    def ended(self) -> bool:
        return self.closed or (self._loop_thread is not None and self._loop_thread.loop.is_closed())

    def release(self) -> None:
        if self._loop_thread is not None:
            self._loop_thread.stop()

    def join(self) -> None:
        if self._loop_thread is not None:
            self._loop_thread.join()


class _LoopThread:
    """An event loop in a private thread, until it is stopped.

    Attributes:
        given_up: A task on the loop does not end; do not wait for it.
        over: The loop has stopped; it may still run to cancel its tasks.
    """

    given_up = False
    over = False
    _stopping = False

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        """Make the loop; if an error ends it before :meth:`stop`, pass the error to ``fail``."""
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
            # Before ``_fail``, which wakes the caller: its ``close`` must see that nothing can be
            # scheduled on this loop any more.
            self.over = True
            if error is not None:
                self._fail(error)  # before the runner cancels the tasks, which then fail, too
            del error  # the traceback refers to this frame

    def stop(self) -> None:
        """Stop the loop, cancel its tasks, and wait a limited time for the thread."""
        self._stopping = True
        if self._thread.is_alive():
            with suppress(RuntimeError):  # the loop ended just now, by itself
                self.loop.call_soon_threadsafe(self.loop.stop)
            self.join(STOP_SECONDS)
        else:
            self._runner.close()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread of a stopped loop."""
        # The garbage collector may call this on the loop's thread, which cannot wait for itself.
        thread = self._thread
        if thread.is_alive() and not self.given_up and thread is not threading.current_thread():
            thread.join(seconds)
