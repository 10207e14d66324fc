"""What a call checks before it sends anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agym.backends.pool import Pool
from agym.engine.batches.out_target import OutTarget
from agym.engine.calls.collector import Collector
from agym.engine.calls.dispatcher import Dispatcher
from agym.engine.opened import Opened
from agym.engine.status import EnvStatus
from agym.errors import BusyError, ClosedError, UsageError
from agym.protocol.arguments import Ids, parse_env_ids
from agym.protocol.messages.operations import Message

CLOSED = "the environments are closed: make new ones"
NOT_OPEN = "the environments are not open yet: use `async with` or `await` first"
FORKED = (
    "these environments belong to the process that this one was forked from, and are usable"
    " there alone: make new ones here"
)

STEPPING = (
    "environment {} is still stepping: wait for that step (await it, or let its thread finish)"
    " before the next"
)


class Checks:
    """Refuses what cannot be done, and says why.

    Attributes:
        forked: The environments belong to the process that this one was forked from.
    """

    forked = False

    def __init__(
        self, backend: Pool, status: EnvStatus, dispatcher: Dispatcher, collector: Collector
    ) -> None:
        self._backend = backend
        self._status = status
        self._dispatcher = dispatcher
        self._collector = collector

    def opened(self) -> Opened:
        """Return what is known of open environments.

        Raises:
            ClosedError: They are closed, or not open yet.
        """
        if self._collector.closing is not None:
            raise ClosedError(FORKED if self.forked else CLOSED)
        opened = self._collector.rows.opened
        if opened is None:
            raise ClosedError(NOT_OPEN)
        return opened

    def usable(self, ids: Ids) -> None:
        """Refuse environments that accept no operations any more."""
        self.opened()
        self._status.check(ids)

    def groups(self, message: Message, ids: Ids, seeds: Sequence[int | None] | None = None) -> None:
        """Refuse what some environments of a group cannot do without the others."""
        groups = self._backend.groups
        reason = None if groups is None else groups.reason_unsupported(message, ids, seeds)
        if reason is not None:
            raise UsageError(reason)

    def steppable(self, ids: Ids) -> None:
        """Refuse environments that still step, or that must be reset first."""
        self._collector.sent.check(ids)
        queues = self._dispatcher.queues
        if not queues.idle:
            self._collector.poll()
            busy = queues.stepping(ids)
            if busy is not None:
                self._backend.check_workers()
                self._collector.poll()
                busy = queues.stepping(ids)
            if busy is not None:
                raise BusyError(STEPPING.format(busy))
        self._status.check_ready(ids)

    def idle(self, ids: Ids, operation: str) -> None:
        """Refuse environments of which an operation is under way, unless they are lost."""
        for other in self._dispatcher.tickets.values():
            busy = set(ids).intersection(other.ids).difference(self._status.lost)
            if busy and not other.done:
                raise BusyError(
                    f"environment {min(busy)} is busy with {other.message.name}: await that first",
                    operation,
                )

    def not_in_place(self, env_ids: Sequence[int] | None, num_envs: int) -> None:
        """Refuse environments that another thread is stepping in place, without waiting for it.

        Raises:
            BusyError: An environment is being stepped.
        """
        running = self._dispatcher.in_place
        if running is not None:
            for i in parse_env_ids(env_ids, num_envs):
                if i in running:
                    raise BusyError(STEPPING.format(i))

    def out(self, out: Any, env_ids: Sequence[int] | None, num_envs: int) -> OutTarget:
        """Check what is to take a result.

        Raises:
            UsageError: It cannot.
            BusyError: It is a step of a rollout buffer that is still being written.
        """
        target = self.opened().buffers.check(out, len(parse_env_ids(env_ids, num_envs)))
        if target.plane is not None:
            self._collector.poll()
            tickets = self._dispatcher.tickets.values()
            if any(ticket.plane == target.plane for ticket in tickets):
                raise BusyError(
                    "this step of the rollout buffer is still being written: await that first, or"
                    " take another"
                )
        return target
