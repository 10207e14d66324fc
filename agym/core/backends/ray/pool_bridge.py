"""Runs a pool of worker processes in an actor, for a driver on another machine.

Only the bridge's thread uses the pool. It sleeps on the pool's descriptors and its inbox's bell.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from agym.core._system.defer_signals import RECHECK_SECONDS
from agym.core._system.platform import sleep_on
from agym.core.backends.outbox import Outbox
from agym.core.backends.pool import Pool
from agym.core.backends.ray.reply_buffer import ReplyBuffer
from agym.core.protocol.messages.completions import Completion, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import Operation
from agym.core.protocol.table import SlotTable


class PoolBridge:
    """Runs operations on a pool, and collects its completions."""

    def __init__(self, pool: Pool, replies: ReplyBuffer) -> None:
        self._pool = pool
        self._replies = replies
        self._inbox: deque[Callable[[], None]] = deque()
        self._bell = Outbox()  # only its bell is used, for the inbox
        self._closing = False

    def start(self, make: Operation) -> None:
        """Start the pool; ``make`` makes the environments."""
        self._enqueue(partial(self._try, make, self._pool.start, make.number))
        threading.Thread(target=self._run, name="agym-pool-bridge", daemon=True).start()

    def attach(self, table: SlotTable) -> None:
        self._enqueue(partial(self._pool.attach, table))

    def post(self, operation: Operation) -> None:
        """Queue an operation."""
        self._enqueue(partial(self._try, operation, self._pool.submit, operation))

    def close(self) -> None:
        self._enqueue(self._close)

    def _enqueue(self, do: Callable[[], None]) -> None:
        # Append, then ring. The bridge's thread parks, then empties the inbox, so it either finds
        # this call there or is woken by the ring.
        self._inbox.append(do)
        self._bell.ring()

    def _close(self) -> None:
        self._closing = True
        self._pool.close()

    def _try(self, operation: Operation, function: Callable[..., None], *arguments: Any) -> None:
        """Start an operation by a call of the pool, and complete it if that raises."""
        try:
            function(*arguments)
        except Exception as error:
            failure = Failure.of(error, operation.start, operation.message.name)
            self._replies.add([Completion(*operation.span, Payload(problems=[failure]))])
            self._replies.ring()

    def _run(self) -> None:
        """Run the thread; if it fails, the actor ends, which the driver notices."""
        pool, inbox, bell = self._pool, self._inbox, self._bell
        try:
            ended = False
            while not ended:
                bell.park()
                pool.park()
                while inbox:
                    inbox.popleft()()
                # Read ``ended`` before polling, so that the poll returns all earlier completions.
                ended = self._closing and pool.ended
                completions = pool.poll()
                if completions:
                    self._replies.add(completions)
                    self._replies.ring()
                elif not ended:
                    sleep_on({**bell.waitables(), **pool.waitables()}, RECHECK_SECONDS)
                bell.unpark()
                pool.unpark()
            pool.release()
        except BaseException as error:
            self._replies.fail(error)
