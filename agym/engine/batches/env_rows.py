"""Rows of single environments: the last observation, the current action, the flags."""

from __future__ import annotations

from typing import Any

from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.opening import Descriptions, Opened
from agym.protocol.value_copies import copy_value


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
        ticket = self._dispatcher.in_flight(slot)
        if ticket is None or ticket.ready is not None or not ticket.has_ended(slot):
            return batches.last(slot)
        objects = {} if ticket.payload is None else ticket.payload.objects
        return batches.row(slot, ticket.plane, objects.get(slot))

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
