"""Serial: every environment runs in the caller's thread, one after another.

It is the oracle of all tests, the fastest backend for a few cheap environments, and the best for
debugging. It blocks: ``step`` steps the environments before it returns, also under the async API.
There, the caller's event loop is hidden from environments (``_system/isolation.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from agym.core._system.defer_signals import Interruptible
from agym.core._system.isolation import NoRunningLoop
from agym.core.backends.options import BackendSpec
from agym.core.backends.pool import Pool
from agym.core.backends.port import BackendOptions, Force, Port, close_host, open_host
from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.messages.completions import Completion
from agym.core.protocol.messages.operations import Operation
from agym.core.protocol.table import SlotTable
from agym.core.protocol.typing import Array, Info


class SerialPort(Port):
    """Runs operations synchronously, in ``post``."""

    polled = True
    splits = False

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        return 1

    def start(self, make: Operation) -> None:
        self._host = self._make_host()
        self._completions: list[Completion] = []
        # Determined once, because each check costs time in every step. Environments that are made
        # while a loop runs, as in a notebook, are used there, too.
        self._on_loop = not self.options.blocking or asyncio._get_running_loop() is not None
        # Environments may run for long, so deferred signals are delivered here. Whatever handles a
        # completion runs outside, where Ctrl-C cannot lose it.
        with Interruptible(), self._hide_loop():
            completion = open_host(self._host, make.number)
        self._completions.append(completion)

    def _make_host(self) -> Any:
        """Create the host; no environment is constructed yet."""
        return self.options.host(SyncHost, self.ids)

    def attach(self, table: SlotTable) -> None:
        self._host.attach(table)

    def post(self, operation: Operation) -> None:
        with Interruptible(), self._hide_loop():
            completion = self._host.run(operation)
        self._completions.append(completion)

    def step_inline(
        self, number: int, plane: int, parts: list[Any] | Array | None
    ) -> list[Info] | Literal[False]:
        """Step all environments; ``parts`` are the actions that are not in the table.

        An array has all actions; environments may keep its rows.

        Returns:
            The infos, which the caller may keep, if these and the rows are the whole result;
            otherwise a completion follows.
        """
        host = self._host
        if self._on_loop:
            with NoRunningLoop():
                rest = host.step_here(plane, parts)
        else:
            rest = host.step_here(plane, parts)
        if isinstance(rest, list):
            return rest
        self._completions.append(Completion(number, 0, host.stop, rest))
        return False

    def collect(self) -> Sequence[Completion]:
        self.pending.clear()
        completions, self._completions = self._completions, []
        return completions

    def news(self) -> bool:
        return bool(self._completions)

    def close(self, force: Force = Force.NONE) -> None:
        with Interruptible(), self._hide_loop():
            completion = close_host(self._host)
        self._completions.append(completion)
        self.closed = True

    def _hide_loop(self) -> AbstractContextManager[None]:
        """Hide the caller's event loop from environments, if there is one."""
        return NoRunningLoop() if self._on_loop else nullcontext()


class SerialPool(Pool):
    """One port, which exists from the start, because it also steps environments inline."""

    kind: type[SerialPort] = SerialPort
    inline: SerialPort
    runs_in_caller = True

    # There is no worker to lose: environments are closed at exit, and a forked child has a copy.
    finalized = False

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options, self.kind)
        self.inline = super()._port(0)

    def _port(self, worker: int) -> SerialPort:
        return self.inline

    def abandon(self) -> bool:
        return False

    def release(self) -> None:
        """Do nothing: there is nothing to release."""
