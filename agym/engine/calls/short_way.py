"""The short way: a step of all environments with nothing else under way.

All must have been reset, with no deadline, recovery or recycling, and no hook that follows steps.

It makes no ticket, unless the backend has not ended the step when it returns. Everything else takes
the general way, through the dispatcher and the collector.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from agym._system.defer_signals import Uninterrupted
from agym.backends.parts import Watched
from agym.engine.batches.actions import ActionWriter
from agym.engine.batches.results import StepResult
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.calls.ticket import Ticket
from agym.engine.collector import Collector
from agym.engine.hooks.hooks import Hooks
from agym.engine.status import EnvStatus
from agym.errors import AgymError
from agym.protocol.messages.operations import Step
from agym.protocol.metrics.gauges import clock
from agym.protocol.table import SENT_PLANE, SlotTable
from agym.protocol.typing import Info

# Steps all environments. Returns their infos, or ``True`` if these are in the rows; ``False`` if
# the step is still under way.
Run = Callable[[int, int, Any], list[Info] | bool]


class Watching:
    """Runs a step while the backend watches for its end, which a signal handler may take in."""

    def __init__(self, part: Watched, dispatcher: Dispatcher, hooks: Hooks) -> None:
        self._part = part
        self._dispatcher = dispatcher
        self._hooks = hooks

    def run(self, number: int, plane: int, parts: list[Any] | None) -> bool:
        dispatcher, part = self._dispatcher, self._part
        begun = time.perf_counter() if self._hooks.all else 0.0
        dispatcher.watched = number, plane, parts
        whole = part.step_watched(number, plane, parts)
        dispatcher.watched = None  # from here on, a signal handler drops the step's completions
        if begun:
            self._hooks.after_wait(Step.name, begun, time.perf_counter(), in_task=False)
        if dispatcher.adopted is not None:
            return False
        if whole:
            part.settle_watched(number)
        return whole


class ShortWay:
    """Steps all environments through one call of the backend."""

    def __init__(
        self,
        run: Run,
        writer: ActionWriter,
        status: EnvStatus,
        dispatcher: Dispatcher,
        collector: Collector,
        hooks: Hooks,
        *,
        inline: bool,
    ) -> None:
        """Use parts of the engine; ``inline`` if ``run`` steps in this thread."""
        self._inline = inline
        self._run = run
        self._writer = writer
        self._status = status
        self._dispatcher = dispatcher
        self._collector = collector
        self._hooks = hooks

    def step(self, actions: Any) -> StepResult[Any] | Ticket | None:
        """Step all environments.

        Returns:
            The result; or the ticket of the step, if it is still under way; or ``None`` if this way
            cannot be taken. Nothing was done then.

        Raises:
            UsageError: Wrong number, shape or dtype of actions.
        """
        dispatcher, collector = self._dispatcher, self._collector
        opened = collector.rows.opened
        if (
            not self._status.all_ready
            or dispatcher.tickets
            or self._hooks.follow_steps
            or collector.sent.queues
            or opened is None
        ):
            return None
        parts = self._write(opened.table, actions)
        batches, traffic = opened.batches, collector.traffic
        number, plane, whole = next(dispatcher.numbers), 0, False
        traffic.left -= 1
        followed = traffic.begin(number) if traffic.returned or not traffic.left else 0
        try:
            plane = batches.choose_plane(None)
            dispatcher.in_place = self._writer.all
            infos = self._run(number, plane, parts)
            dispatcher.in_place = None
            if whole := infos is not False:
                result = batches.whole(plane, None if infos is True else infos)
                if followed:
                    traffic.settle(followed, opened.table.gauges, collector.ranges)
                    if not self._inline:
                        traffic.waits.watched += clock() - followed
                return result
            with Uninterrupted():
                ticket = dispatcher.adopt(number, plane, parts)
                plane = 0  # its ticket gives it back
                collector.poll()
            return ticket
        except BaseException as error:
            with Uninterrupted():
                self._call_off(number, error, built=whole)
            raise
        finally:
            if plane > SENT_PLANE:
                batches.planes.give_back(plane)

    def _write(self, table: SlotTable, actions: Any) -> Any:
        """Write the actions; the common case, in which there is nothing to convert, comes first.

        Returns:
            What is not in the table; in this thread, an array of all actions.
        """
        writer = self._writer
        if type(actions) is np.ndarray and writer.cut is None and table.action.single:
            for block in table.actions:
                if actions.dtype == block.dtype and actions.shape == block.shape:
                    if self._inline:
                        # Numbers are copied when environments get them, rows are not.
                        return actions if actions.ndim == 1 else actions.copy()
                    block[...] = actions
                    return None
        return writer.write_all(table, actions)

    def _call_off(self, number: int, error: BaseException, *, built: bool) -> None:
        """Clean up after an error; ``built`` if only the result was missing."""
        dispatcher = self._dispatcher
        dispatcher.in_place = dispatcher.watched = dispatcher.adopted = None
        ticket = dispatcher.tickets.get(number)
        if ticket is not None:
            dispatcher.call_off(ticket, error)
        elif not isinstance(error, Exception if built else AgymError):
            self._status.mark_unready(self._writer.all, "was interrupted in step")
