"""What is known and allocated once the environments are made, and rows of single ones of them."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from agym._system.files import os_errors_as_usage_errors
from agym.backends.pool import Pool
from agym.engine.batches.builder import BatchBuilder
from agym.engine.batches.out_target import Buffers
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.errors import SpaceMismatchError, UsageError
from agym.hosts.rows import Rows
from agym.protocol.messages.completions import Description, Payload
from agym.protocol.space_layout import Layout
from agym.protocol.table import SlotTable
from agym.protocol.value_copies import copy_value


class Descriptions:
    """The descriptions of environments, one per run of equal ones."""

    def __init__(self, payload: Payload) -> None:
        """Sort the descriptions from all workers.

        Raises:
            SpaceMismatchError: Environments differ.
        """
        self._by_start: list[tuple[int, Description]] = sorted(payload.values.items())
        for start, other in self._by_start:
            mismatch = self.first.mismatch(other)
            if mismatch is not None:
                raise SpaceMismatchError(f"environment {start} does not fit: {mismatch}")

    @property
    def first(self) -> Description:
        """The description of the first environment."""
        return self._by_start[0][1]

    def of(self, env_id: int) -> Description:
        """Return an environment's description."""
        return self._by_start[bisect(self._by_start, env_id, key=itemgetter(0)) - 1][1]


@dataclass(frozen=True)
class Opened:
    """Open environments.

    Attributes:
        table: The slot table.
        batches: Builds results from it.
        rows: Reads actions from it.
        buffers: The rollout buffers.
    """

    table: SlotTable
    batches: BatchBuilder
    rows: Rows
    buffers: Buffers


@dataclass(frozen=True)
class Opening:
    """How to open environments.

    Attributes:
        num_envs: Number of environments.
        copy: Give batches away, instead of views of a plane.
        final: Final observations have rows of their own.
        leases: Batches may be leased to the caller, because the engine never reads them again.
        recycles: Environments move between workers.
    """

    num_envs: int
    copy: bool
    final: bool
    leases: bool
    recycles: bool

    @classmethod
    def of(
        cls, num_envs: int, autoreset: str, *, copy: bool, plain: bool, recycles: bool
    ) -> Opening:
        """Decide; ``plain`` says that no fault needs a batch after it was returned."""
        leases = copy and plain and autoreset != "disabled"
        return cls(num_envs, copy, autoreset == "same_step", leases, recycles)

    def complete(self, description: Description, backend: Pool) -> Opened:
        """Lay out the table.

        Raises:
            UsageError: Environments cannot move between workers, or there is no memory for them.
        """
        if self.recycles and description.cancellable:
            raise UsageError(
                "recycle= moves environments between worker processes, which coroutine environments"
                " cannot do: leave it out"
            )
        with os_errors_as_usage_errors("the environments cannot be made"):
            table = SlotTable(
                Layout(description.observation_space),
                Layout(description.action_space),
                self.num_envs,
                final=self.final,
                leases=self.leases,
                shared=backend.shared,
            )
        vector_infos = backend.options.vector_infos
        batches = BatchBuilder(table, copy=self.copy, vector_infos=vector_infos)
        rows = Rows(table, 0, self.num_envs)
        buffers = Buffers(table, backend, direct=self.leases)
        return Opened(table, batches, rows, buffers)


class EnvRows:
    """Reads rows of single environments.

    Attributes:
        opened: What is allocated for the environments while they are open, else ``None``.
        described: What they are like; known from then on.
    """

    opened: Opened | None = None
    described: Descriptions

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def cancellable(self) -> bool:
        """Whether operations of single environments are known to be cancellable."""
        return self.opened is not None and self.described.first.cancellable

    def latest_turn(self, slot: int, worker: range, *, alone: bool) -> float:
        """Return when the latest turn came or comes by a rate limit, 0 if there is none.

        Args:
            slot: An environment.
            worker: The environments of its worker.
            alone: Whether it runs beside these; else it runs after some of them.
        """
        if self.opened is None:
            return 0.0
        turns = self.opened.table.gauges.arrays["rate_turn"]
        ids = slice(slot, slot + 1) if alone else slice(worker.start, worker.stop)
        return float(turns[ids].max()) / 1e9

    def last(self, slot: int) -> tuple[Any, tuple[bool, bool]]:
        """Return the last known observation and flags of an environment."""
        assert self.opened is not None
        batches = self.opened.batches
        ticket = self._dispatcher.queues.owner(slot)
        if ticket is None or ticket.ready is not None or not ticket.has_ended(slot):
            return batches.last(slot)
        objects = {} if ticket.payload is None else ticket.payload.objects
        return batches.row(slot, ticket.plane_of(slot), objects.get(slot))

    def action(self, slot: int, ticket: Ticket) -> Any:
        """Return an environment's action in a step, in the form that the environment takes."""
        assert self.opened is not None
        parts = ticket.message.values
        part = parts and [parts[ticket.ids.index(slot)]]
        return copy_value(self.opened.rows.actions(slot, slot + 1, part)[0])

    def flags(self, slot: int, plane: int) -> tuple[bool, bool]:
        """Return the flags of an environment's row."""
        assert self.opened is not None
        row = self.opened.table.planes[plane]
        return bool(row.terminated[slot]), bool(row.truncated[slot])
