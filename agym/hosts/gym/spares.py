"""Spares of Gymnasium environments: made and reset in threads of their own."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agym.hosts.base import Factory
from agym.hosts.fleet.setup import spare_factories, stand_in_key
from agym.hosts.fleet.spares import Ahead, Beginning, SparePool
from agym.hosts.gym.fleet_calls import FleetCalls
from agym.hosts.gym.owner import OwnerThread
from agym.hosts.snapshots.replaying import note_start
from agym.protocol.messages.resets import EpisodeStart

# How long to wait for spares that are still being reset, or closed: less than a worker has for it.
CLOSE_SECONDS = 4.0

# How an episode began, its first observation and its info.
Begun = tuple[EpisodeStart, Any, dict[str, Any]]


class SpareThreads:
    """The spares of one host.

    Attributes:
        pool: Which of them is for which environment.
    """

    def __init__(
        self,
        fleet: FleetCalls,
        factories: Sequence[Factory],
        count: int,
        make: Callable[[Factory], Any],
    ) -> None:
        """Have ``count`` spares, which ``make`` makes when they are reset for the first time."""
        self.pool: SparePool[OwnerThread] = SparePool()
        self._fleet = fleet
        self._make = make
        self._keys = [*map(stand_in_key, factories)]
        self._factories = dict(zip(self._keys, factories, strict=True))
        self._extra = [*map(stand_in_key, spare_factories(factories, count))]
        self._ended: list[OwnerThread] = []

    def begin(self, i: int, beginning: Beginning, env: Any) -> tuple[Begun, Any] | None:
        """Exchange an environment for a spare that began its episode.

        Returns:
            How it began, and the spare; ``None`` if there is none.
        """
        fleet, pool = self._fleet, self.pool
        ahead = pool.take(i, beginning, self._keys[i])
        if ahead is None:
            fleet.count("spares_missed", i)
            return None
        fleet.count("spares_used" if ahead.result.done() else "spares_late", i)
        try:
            error = ahead.result.exception()
        except BaseException:  # Ctrl-C
            pool.ahead.append(ahead)
            raise
        if error is not None:  # the environment's own reset tells whether that is a fault
            self._replace(ahead.owner)
            return None
        fleet.owners[i].env = env
        pool.idle.append(fleet.owners[i])
        fleet.owners[i] = ahead.owner
        return ahead.result.result(), ahead.owner.env

    def reset_ahead(
        self, begun: int, steps_of: Callable[[int], int], next_of: Callable[[int], Beginning]
    ) -> None:
        """Begin to reset idle spares; see :meth:`SparePool.assign`."""
        for owner in self.pool.failures():
            self._replace(owner)
        while self._extra:
            self.pool.idle.append(OwnerThread(self._extra.pop()))
        for owner, i, beginning in self.pool.assign(begun, self._keys, steps_of, next_of):
            reset = owner.submit(partial(self._reset, owner, i, beginning))
            self.pool.ahead.append(Ahead(owner, i, beginning, reset))

    def _reset(self, owner: OwnerThread, i: int, beginning: Beginning) -> Begun:
        if owner.env is None:
            owner.env = self._make(self._factories[owner.key])
        arguments = copy.deepcopy(beginning.arguments())
        start = note_start(owner.env, arguments)
        self._fleet.wait(i, spare=True)
        observation, info = owner.env.reset(**arguments)
        return start, observation, info

    def _replace(self, owner: OwnerThread) -> None:
        """Close a spare that failed; another is made when one is needed."""
        self._end(owner)
        self._ended.append(owner)
        self._extra.append(owner.key)

    def _end(self, owner: OwnerThread) -> None:
        owner.submit(partial(_close, owner))  # what it raises concerns nobody
        owner.stop()

    def close(self) -> None:
        """Close the spares when their resets have ended.

        What hangs is left behind after some seconds; its thread closes it when it comes back.
        """
        owners = [*self.pool.idle, *(each.owner for each in self.pool.ahead)]
        for each in self.pool.ahead:
            each.result.cancel()  # unless it has begun
        for owner in owners:
            self._end(owner)
        end = time.monotonic() + CLOSE_SECONDS
        for owner in [*owners, *self._ended, *self._fleet.owners]:
            owner.join(max(0.0, end - time.monotonic()))
        self.pool = SparePool()


def _close(owner: OwnerThread) -> None:
    if owner.env is not None:
        owner.env.close()
