"""The data of open environments: descriptions, the slot table, and single rows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gymnasium.vector import AutoresetMode

from agym.core._system.files import os_errors_as_usage_errors
from agym.core.backends.pool import Pool
from agym.core.engine.batches.builder import BatchBuilder
from agym.core.engine.batches.out_target import Buffers
from agym.core.engine.calls.dispatcher import Dispatcher
from agym.core.engine.calls.ticket import Ticket
from agym.core.hosts.rows import Rows
from agym.core.protocol.messages.completions import Description
from agym.core.protocol.metrics.gauges import Gauges
from agym.core.protocol.table import SlotTable
from agym.core.protocol.value_copies import copy_value
from agym.errors import SpaceMismatchError, UsageError


@dataclass(frozen=True)
class Opened:
    """Open environments.

    Attributes:
        table: The slot table.
        batches: Builds results from it.
        rows: Reads actions from it.
        buffers: The step buffers.
    """

    table: SlotTable
    batches: BatchBuilder
    rows: Rows
    buffers: Buffers


class EnvRows:
    """Opens the environments, and reads rows of single ones.

    Attributes:
        backend: Makes and runs them.
        dispatcher: Knows the operation of each environment.
        opened: What is allocated for the environments while they are open, else ``None``.
        described: The description of each environment, kept after closing.
    """

    opened: Opened | None = None

    def __init__(self, backend: Pool, dispatcher: Dispatcher, *, copy: bool, plain: bool) -> None:
        """Decide how to open the environments.

        Args:
            backend: Makes them.
            dispatcher: Knows the operation of each environment.
            copy: Return batches that the caller owns, not views of a plane.
            plain: No fault needs a batch after it was returned.
        """
        self.described: list[Description] = []
        self.backend = backend
        self.dispatcher = dispatcher
        self._copy = copy
        # The caller may write into a leased plane. So lease only if the engine never reads a batch
        # again: recovery does (not ``plain``), and so do environments on hold under "disabled".
        on_hold = backend.options.autoreset is AutoresetMode.DISABLED
        self._leases = copy and plain and not on_hold

    def describe(self, found: Mapping[int, Description]) -> None:
        """Store the descriptions from all workers; each stands for a run of equal environments.

        Raises:
            SpaceMismatchError: Environments differ.
        """
        starts = sorted(found)
        for start in starts:
            mismatch = found[starts[0]].mismatch(found[start])
            if mismatch is not None:
                raise SpaceMismatchError(f"environment {start} does not fit: {mismatch}")
        for start, stop in pairwise([*starts, len(self.backend.options.factories)]):
            self.described += [found[start]] * (stop - start)

    def open(self) -> Opened:
        """Lay out the table for environments that are described.

        Raises:
            UsageError: Environments cannot move between workers, or there is no memory for them.
        """
        backend, description = self.backend, self.described[0]
        options = backend.options
        num_envs = len(options.factories)
        if backend.recycle is not None and description.cancellable:
            raise UsageError(
                "recycle= moves environments between worker processes, which does not work for"
                " coroutine environments: omit recycle="
            )
        with os_errors_as_usage_errors("the environments cannot be made"):
            table = SlotTable(
                *description.layouts,
                num_envs,
                final=options.autoreset is AutoresetMode.SAME_STEP,
                leases=self._leases,
                shared=backend.shared,
            )
        batches = BatchBuilder(table, copy=self._copy, vector_infos=options.vector_infos)
        buffers = Buffers(table, backend, direct=self._leases)
        self.opened = Opened(table, batches, Rows(table, 0, num_envs), buffers)
        return self.opened

    @property
    def gauges(self) -> Gauges:
        """The counters that workers keep, while the environments are open."""
        assert self.opened is not None
        return self.opened.table.gauges

    @property
    def cancellable(self) -> bool:
        """Whether operations of single environments are known to be cancellable."""
        return self.opened is not None and self.described[0].cancellable

    def is_waiting(self, slot: int) -> bool:
        """Whether an environment waits behind the concurrency limit."""
        return self.opened is not None and bool(self.gauges.waiting[slot])

    def latest_turn(self, slot: int) -> float:
        """Return when the rate limit lets, or let, an environment run; 0 without a rate limit."""
        if self.opened is None:
            return 0.0
        ids = range(slot, slot + 1)
        if not self.cancellable:  # its worker runs environments one after another
            ids = next(ids for ids in self.backend.ranges if slot in ids)
        turns = self.gauges.arrays["rate_turn"]
        return float(turns[ids.start : ids.stop].max()) / 1e9

    def last(self, slot: int) -> tuple[Any, tuple[bool, bool]]:
        """Return the last known observation and flags of an environment."""
        assert self.opened is not None
        table, plane = self.opened.table, self.opened.batches.plane_of(slot)
        objects = table.objects[slot] if table.objects else []
        ticket = self.dispatcher.queues.owner(slot)
        if ticket is not None and ticket.ready is None and ticket.has_ended(slot):
            plane = ticket.plane_of(slot)
            if ticket.payload is not None:
                objects = ticket.payload.objects.get(slot, objects)
        return table.row(plane, slot, objects)

    def action(self, slot: int, ticket: Ticket) -> Any:
        """Return an environment's action in a step, in the form that its ``step`` expects."""
        assert self.opened is not None
        parts = ticket.message.values
        part = parts and [parts[ticket.ids.index(slot)]]
        return copy_value(self.opened.rows.actions(slot, slot + 1, part)[0])

    def flags(self, slot: int, plane: int) -> tuple[bool, bool]:
        """Return the flags of an environment's row."""
        assert self.opened is not None
        row = self.opened.table.planes[plane]
        return bool(row.terminated[slot]), bool(row.truncated[slot])
