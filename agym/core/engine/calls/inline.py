"""The inline path: a step of all environments in the caller's thread, with nothing else under way.

It requires that all environments were reset, that there is no recycling, and that no recovery or
hook needs every step. No ticket is made, unless a part of the result does not fit into the rows.
Every other step takes the general path, through the dispatcher and the collector.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agym.core._system.defer_signals import Uninterrupted
from agym.core.engine.batches.results import StepResult
from agym.core.engine.calls.collector import Collector
from agym.core.engine.calls.ticket import Ticket
from agym.core.protocol.table import PLANES
from agym.errors import AgymError


class InlineSteps:
    """Steps all environments through one call of the backend."""

    def __init__(self, backend: Any, collector: Collector) -> None:
        self._backend = backend
        self._collector = collector
        self._all = range(len(collector.backend.options.factories))

    def step(self, actions: Any) -> StepResult[Any] | Ticket | None:
        """Step all environments. Ctrl-C may interrupt it anywhere; they must be reset then.

        Returns:
            The result; the ticket of the step, if the rows do not contain all of it; or ``None``
            if the inline path is not possible, and nothing was done.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
        """
        collector = self._collector
        dispatcher, recovery = collector.dispatcher, collector.recovery
        opened = collector.rows.opened
        if (
            not collector.status.all_ready
            or dispatcher.tickets
            or collector.hooks.follow_steps
            or collector.sent.queues
            or recovery.follows
            or recovery.recovering
            or recovery.pending
            or opened is None
        ):
            return None
        batches, traffic = opened.batches, collector.traffic
        given = batches.write_all(actions, here=True)
        number, plane, built = next(dispatcher.numbers), 0, False
        traffic.until_sample -= 1
        followed = traffic.start(number) if traffic.returned or not traffic.until_sample else 0
        try:
            plane = batches.choose_plane(self._all)
            # Ctrl-C may interrupt any line from here to ``return``, and any line of an environment.
            # ``plane`` and ``built`` tell the handlers below how far the step got.
            dispatcher.in_place = self._all
            infos = self._backend.step_inline(number, plane, given)
            dispatcher.in_place = None
            if infos is not False:
                built = True
                result = batches.whole(plane, infos)
                if followed:
                    traffic.settle(followed, opened.table.gauges, collector.backend.ranges)
                return result
            # Ctrl-C between ``adopt`` and ``poll`` would leave a ticket that owns all rows and
            # never ends, so signals wait until both have run.
            with Uninterrupted():
                if isinstance(given, np.ndarray):  # recovery may need the actions in the table
                    given = batches.write_all(given)
                ticket = dispatcher.adopt(number, plane, given)
                plane = 0  # from here on, the ticket returns the plane
                collector.poll()
            return ticket
        except BaseException as error:
            with Uninterrupted():
                self._call_off(number, error, built=built)
            raise
        finally:
            if plane >= PLANES:
                batches.leases.give_back(plane)

    def _call_off(self, number: int, error: BaseException, *, built: bool) -> None:
        """Clean up after an error; ``built`` if the steps succeeded, and only the result failed."""
        dispatcher = self._collector.dispatcher
        dispatcher.in_place = None
        ticket = dispatcher.tickets.get(number)
        if ticket is not None:
            dispatcher.call_off(ticket, error)
        elif not isinstance(error, Exception if built else AgymError):
            self._collector.status.mark_unready(self._all, "was interrupted in step")
