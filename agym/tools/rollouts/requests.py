"""Requests that wait for a batch, and the rule by which a batch goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Reason = Literal["full", "all_waiting", "time"]


class Request(NamedTuple):
    """An observation, who waits for its answer, and since when, in seconds of ``perf_counter``."""

    observation: Any
    future: asyncio.Future[Any]
    asked: float


@dataclass(frozen=True)
class Gathered:
    """A batch that is to go now, and why."""

    requests: tuple[Request, ...]
    reason: Reason


class Requests:
    """The requests without an answer, and the tasks that may ask.

    A batch goes when it is full, when its first request has waited for ``max_wait`` seconds, or
    when each task that could ask is waiting. A task that has asked before could ask again until it
    ends, so nobody has to announce how many there are.
    """

    def __init__(self, max_batch: int, max_wait: float, on_departure: Callable[[], None]) -> None:
        """Call ``on_departure`` when a task has ended, for which others may have waited."""
        self._max_batch = max_batch
        self._max_wait = max_wait
        self._on_departure = on_departure
        # In the order in which they were asked; a dict, so that a cancelled one leaves at once.
        self._queue: dict[asyncio.Future[Any], Request] = {}
        self._askers: set[asyncio.Task[Any]] = set()
        self._unanswered = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def unanswered(self) -> int:
        """How many wait, those whose batch is under way included."""
        return self._unanswered

    @property
    def futures(self) -> tuple[asyncio.Future[Any], ...]:
        """Those that no batch has taken yet."""
        return tuple(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) >= self._max_batch

    def add(self, request: Request, asker: asyncio.Task[Any] | None) -> None:
        """Add a request of a task, which waits for nothing else."""
        if asker is not None and asker not in self._askers:
            self._askers.add(asker)
            asker.add_done_callback(self._depart)
        self._queue[request.future] = request
        self._unanswered += 1

    def remove(self, future: asyncio.Future[Any]) -> None:
        """Forget a request that was answered, or whose asker was cancelled."""
        self._queue.pop(future, None)
        self._unanswered -= 1

    def _depart(self, asker: asyncio.Task[Any]) -> None:
        self._askers.discard(asker)
        if self._queue:
            self._on_departure()

    def take(self, now: float) -> Gathered | None:
        """Return the batch that is to go now, if there is one."""
        if not self._queue:
            return None
        if self.full:
            reason: Reason = "full"
        elif self._unanswered >= len(self._askers):
            reason = "all_waiting"
        elif now >= self.deadline:
            reason = "time"
        else:
            return None
        taken = []
        for future in self._queue:
            taken.append(self._queue[future])
            if len(taken) == self._max_batch:
                break
        for request in taken:
            del self._queue[request.future]
        return Gathered(tuple(taken), reason)

    @property
    def deadline(self) -> float:
        """When the batch goes at the latest; only while a request waits for one."""
        return next(iter(self._queue.values())).asked + self._max_wait
