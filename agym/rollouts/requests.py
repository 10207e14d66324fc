"""Requests that wait for a batch, and the rule for when a batch is due."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple

Reason = Literal["full", "all_waiting", "time"]


class Request(NamedTuple):
    """An observation, the future of its answer, and the time of the request by ``perf_counter``."""

    observation: Any
    future: asyncio.Future[Any]
    asked: float


@dataclass(frozen=True)
class Gathered:
    """A batch that is due, and the reason."""

    requests: tuple[Request, ...]
    reason: Reason


class Requests:
    """The requests without an answer, and the tasks that may ask.

    A batch is due when it is full, when its first request has waited for ``max_wait`` seconds, or
    when every task that may ask is waiting. A task may ask from its first request until it ends, so
    the number of tasks need not be announced. A batch has requests of one kind, because others
    cannot be stacked with them.

    Only the loop's thread uses it, and no method awaits.
    """

    def __init__(self, max_batch: int, max_wait: float, on_departure: Callable[[], None]) -> None:
        """Call ``on_departure`` when a task has ended, since now all others may be waiting."""
        self._max_batch = max_batch
        self._max_wait = max_wait
        self._on_departure = on_departure
        # By kind, then in the order of the requests. These are dicts so that a cancelled request
        # can be removed in constant time. An empty queue is deleted.
        self._queues: dict[Hashable, dict[asyncio.Future[Any], Request]] = {}
        self._askers: set[asyncio.Task[Any]] = set()
        self.unanswered = 0

    @property
    def futures(self) -> tuple[asyncio.Future[Any], ...]:
        """The futures of the requests that are in no batch yet."""
        return tuple(future for queue in self._queues.values() for future in queue)

    def add(self, kind: Hashable, request: Request, asker: asyncio.Task[Any] | None) -> bool:
        """Add the request of a task, which awaits its answer; return whether a batch is full."""
        if asker is not None and asker not in self._askers:
            self._askers.add(asker)
            # A weak reference, because the task may outlive the policy.
            asker.add_done_callback(partial(_depart, weakref.ref(self)))
        queue = self._queues.setdefault(kind, {})
        queue[request.future] = request
        self.unanswered += 1
        return len(queue) >= self._max_batch

    def remove(self, kind: Hashable, future: asyncio.Future[Any]) -> None:
        """Forget a request that was answered, or whose task was cancelled."""
        self.unanswered -= 1
        queue = self._queues.get(kind)
        if queue is not None and queue.pop(future, None) is not None and not queue:
            del self._queues[kind]

    def depart(self, asker: asyncio.Task[Any]) -> None:
        """Forget a task that has ended."""
        self._askers.discard(asker)
        if self._queues:
            self._on_departure()

    def take(self, now: float) -> Gathered | None:
        """Remove and return a batch that is due, if there is one."""
        for kind, queue in self._queues.items():
            if len(queue) >= self._max_batch:
                return self._gather(kind, "full")
        if not self._queues:
            return None
        oldest = min(self._queues, key=self._asked)
        if self.unanswered >= len(self._askers):
            return self._gather(oldest, "all_waiting")
        return self._gather(oldest, "time") if now >= self._asked(oldest) + self._max_wait else None

    def _gather(self, kind: Hashable, reason: Reason) -> Gathered:
        queue = self._queues[kind]
        requests = tuple(islice(queue.values(), self._max_batch))
        for request in requests:
            del queue[request.future]
        if not queue:
            del self._queues[kind]
        return Gathered(requests, reason)

    def _asked(self, kind: Hashable) -> float:
        """Return the time of the first request of a kind."""
        return next(iter(self._queues[kind].values())).asked

    @property
    def deadline(self) -> float | None:
        """When ``max_wait`` is over for the oldest request; ``None`` without requests."""
        if not self._queues:
            return None
        return min(map(self._asked, self._queues)) + self._max_wait


def _depart(requests: weakref.ref[Requests], asker: asyncio.Task[Any]) -> None:
    alive = requests()
    if alive is not None:
        alive.depart(asker)
