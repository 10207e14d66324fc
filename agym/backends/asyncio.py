"""Asyncio: coroutine environments on one event loop, all at the same time.

That is the caller's loop under the async face. A caller without one (the sync face) gets a
private loop in a thread. Constructors run on the loop too.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agym.backends.base import BackendOptions, closed, open_host
from agym.backends.options import Asyncio
from agym.backends.outbox import Outbox, OutboxBackend
from agym.backends.process.supervisor import own_loop
from agym.hosts.coroutine import CoroutineHost
from agym.protocol.messages import Completion, Operation, Payload
from agym.protocol.table import SlotTable

# How long a loop may take to stop whose environments were forgotten: one of them may hang on it.
STOP_SECONDS = 1.0


class AsyncioBackend(OutboxBackend[Completion]):
    """Runs a coroutine host on a loop."""

    def __init__(self, options: BackendOptions) -> None:
        """Remember what to make."""
        super().__init__(options)
        self._host = CoroutineHost(
            options.factories,
            0,
            options.autoreset,
            partial(_tell, self._outbox),  # not of this object, which may be forgotten
            options.spec_as(Asyncio).max_concurrency,
            fatal=() if options.blocking else (KeyboardInterrupt, SystemExit),
            log=options.record_actions,
            infos=options.infos,
        )
        self._private = _LoopThread() if options.blocking else None
        self.watchable = options.blocking  # the caller's own loop has to turn
        self._closing: asyncio.Task[None] | None = None
        self._end = weakref.finalize(self, _end, self._private, self._outbox)
        self._ended = False

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._private is None:
            function(*arguments)
        else:
            self._private.loop.call_soon_threadsafe(function, *arguments)

    def start(self) -> None:
        """Make the environments."""
        if self._private is not None:
            self._private.start()
        self._on_loop(lambda: self._outbox.put(open_host(self._host)))

    def attach(self, table: SlotTable) -> None:
        """Give the host its table."""
        self._on_loop(self._host.attach, table)

    def submit(self, operation: Operation) -> None:
        """Start an operation on each of its environments."""
        self._on_loop(self._host.begin, operation)

    def poll(self) -> Sequence[Completion]:
        """Take what has come."""
        return self._outbox.take()

    def close(self) -> None:
        """Cancel what is under way and close the environments."""
        if self._private is None and asyncio._get_running_loop() is None:
            self.kill()  # Python ends, and the loop has ended before
        else:
            self._on_loop(self._begin_closing)

    def _begin_closing(self) -> None:
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        self._outbox.put(closed(self._host, await self._host.close()))
        self._ended = True
        self._outbox.ring()

    def kill(self) -> None:
        """Give up environments that will not be cancelled, and the private loop with them."""
        self._ended = True
        if self._private is not None:
            self._private.given_up = True

    @property
    def ended(self) -> bool:
        """Whether the environments are closed, or were given up."""
        return self._ended

    def release(self) -> None:
        """End the private loop, and close the bell."""
        if self.forgotten:
            return
        self._end()
        if self._private is not None:
            self._private.join()


class _LoopThread:
    """An event loop in a thread of its own, until it is stopped.

    Attributes:
        given_up: Something on it does not end, and is not waited for.
    """

    given_up = False

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=own_loop)
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="agym-loop", daemon=True)
        self.start = self._thread.start

    def _run(self) -> None:
        with self._runner:
            self.loop.run_forever()

    def stop(self) -> None:
        """Stop the loop, cancel what is left on it, and wait for the thread for a while."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.join(STOP_SECONDS)
        else:
            self._runner.close()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread of a loop that was stopped."""
        # The collector may be at work on the loop itself.
        thread = self._thread
        if thread.is_alive() and not self.given_up and thread is not threading.current_thread():
            thread.join(seconds)


def _end(private: _LoopThread | None, outbox: Outbox[Completion]) -> None:
    if private is not None:
        private.stop()
    outbox.close()


def _tell(
    outbox: Outbox[Completion], operation: Operation, slot: int, extras: Payload | None
) -> None:
    outbox.put(Completion(operation.number, slot, slot + 1, extras))
