"""Serial: every environment in the caller's own thread, one after the other.

The oracle of all tests, the fastest place for a few cheap environments, and the one to debug
in. It does block: ``step`` steps the environments before it returns, also under the async face
and on its event loop, which environments do not see (``_system/no_running_loop.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from agym._system.defer_signals import Interruptible
from agym._system.no_running_loop import NoRunningLoop
from agym.backends.base import Backend, BackendOptions, close_host, open_host
from agym.hosts.gym import EnvHost
from agym.protocol.messages import UNBROKEN_KINDS, Completion, Operation
from agym.protocol.table import SlotTable


class SerialBackend(Backend):
    """Runs operations at once, in ``submit``."""

    immediate = True

    def __init__(self, options: BackendOptions) -> None:
        """Remember what to make."""
        super().__init__(options)
        self._host = EnvHost(
            options.factories, 0, options.autoreset, log=options.record_actions,
            infos=options.infos,
        )  # fmt: skip
        self._outcomes: list[Completion] = []
        self._ended = False
        # Known from the beginning, since each step would have to ask. Who makes environments while
        # a loop runs, as in a notebook, uses them there as well.
        self._on_loop = not options.blocking or asyncio._get_running_loop() is not None

    def start(self) -> None:
        """Make the environments."""
        with Interruptible(), self._outside():
            outcome = open_host(self._host)
        self._outcomes.append(outcome)

    def attach(self, table: SlotTable) -> None:
        """Give the host its table."""
        self._host.attach(table)

    def submit(self, operation: Operation) -> None:
        """Run the operation."""
        unbroken = operation.kind in UNBROKEN_KINDS
        with nullcontext() if unbroken else Interruptible(), self._outside():
            outcome = self._host.run(operation)
        self._outcomes.append(outcome)

    def step(self, number: int, plane: int, each: list[Any] | None = None) -> bool:
        """Step all environments."""
        host = self._host
        if self._on_loop:
            with NoRunningLoop():
                extras = host.step(0, host.stop, plane, each)
        else:
            extras = host.step(0, host.stop, plane, each)
        if extras is not None:
            self._outcomes.append(Completion(number, 0, host.stop, extras))
        return extras is None

    def poll(self) -> Sequence[Completion]:
        """Give what has been run."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        """Close the environments."""
        with Interruptible(), self._outside():
            outcome = close_host(self._host)
        self._outcomes.append(outcome)
        self._ended = True

    def _outside(self) -> AbstractContextManager[None]:
        """Where environments are run: outside of the caller's loop, if there is one."""
        return NoRunningLoop() if self._on_loop else nullcontext()

    @property
    def ended(self) -> bool:
        """Whether the environments are closed."""
        return self._ended
