"""Process, with the caller's thread as the last worker: ``auto`` chooses it for the sync APIs.

While worker processes step their ranges, the caller would only wait. So it steps a range itself:
one process fewer has to be woken, and one fewer competes for the cores::

    caller -- post --> worker 0   steps its range --.
           -- post --> worker 1   steps its range --+--> collect
           -- post --> itself     steps its range --'

The caller's range comes last, after all others have been posted. Its environments have only the
guarantees of ``serial``: a crash or a hang is not contained.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from agym.core.backends.port import BackendOptions, Force
from agym.core.backends.process.process_pool import ProcessPool
from agym.core.backends.process.serialization import Buffer
from agym.core.backends.serial import SerialPort
from agym.core.protocol.messages.operations import Operation, plain_step
from agym.core.protocol.table import Extension

# Size of the caller's range, relative to an equal share: the caller also collects the results.
# Measured on two cores: CartPole x64 is 1.09 times as fast as with two processes.
CALLER_SHARE = 0.94


class CallerPort(SerialPort):
    """The caller's own range, with the interface of :class:`ProcessPort` that the pool uses."""

    finished_at = crowded_until = 0.0

    def start(self, make: Operation, packed: Sequence[Buffer] = ()) -> None:
        super().start(make)

    def pack(self, operation: Operation) -> Sequence[Buffer]:
        return ()

    def post(self, operation: Operation, packed: Sequence[Buffer] = ()) -> None:
        super().post(operation)

    def post_step(self, number: int, start: int, stop: int, plane: int, size: int) -> None:
        self.post(Operation(number, start, stop, plain_step(plane)))

    def take_step(self) -> bool:
        """Accept the only completion, if it has no payload."""
        if len(self._completions) != 1 or self._completions[0].payload is not None:
            return False
        self._completions.clear()
        return True

    def is_gone(self, ready: Collection[int]) -> bool:
        return False

    def extend(self, extension: Extension) -> None:
        """Do nothing: the host uses the caller's table directly."""

    shrink = extend

    def close(self, force: Force = Force.NONE) -> None:
        if not self.closed:
            super().close(force)

    def release(self) -> None:
        """Close environments that were not closed, as worker processes do when they end."""
        with suppress(BaseException):
            self.close()


class CallerPool(ProcessPool):
    """Divides environments among worker processes and the caller's thread."""

    runs_in_caller = True

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        n, others = len(options.factories), len(self.ranges) - 1
        start = n - max(1, round(CALLER_SHARE * n / (others + 1))) if others else 0
        bounds = [start * k // max(1, others) for k in range(others + 1)]
        self.ranges = [range(low, high) for low, high in pairwise([*bounds, n])]

    def _port(self, worker: int) -> Any:
        others = len(self.ranges) - 1
        if worker == others:
            kind: Any = CallerPort  # a polled port has no outbox
            return kind(worker, self.ranges[worker], self.options, None)
        port = super()._port(worker)
        port.workers = others
        return port
