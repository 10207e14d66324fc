"""Spares of coroutine environments: reset on the loop, while the others run."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any

from agym.hosts.base import Factory
from agym.hosts.coroutine.manners import Manners
from agym.hosts.coroutine.owner import OwnerTask
from agym.hosts.fleet.setup import stand_in_key
from agym.hosts.fleet.spares import Ahead, Beginning, SparePool
from agym.hosts.snapshots.replaying import note_start
from agym.protocol.messages.resets import EpisodeStart

# How an episode began, its first observation and its info.
Begun = tuple[EpisodeStart, Any, dict[str, Any]]
Close = Callable[[Any], Any]


class SpareTasks:
    """The spares of one host.

    Attributes:
        pool: Which of them is for which environment.
    """

    def __init__(self, manners: Manners, make: Callable[[Factory], Any], close: Close) -> None:
        """Use functions that make an environment, and close one."""
        self.pool: SparePool[OwnerTask] = SparePool()
        self._manners = manners
        self._make = make
        self._close = close
        self._factories: dict[object, Factory] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def make(
        self, envs: Sequence[Any], factories: Sequence[Factory], extra: Sequence[Factory]
    ) -> None:
        """Give each environment a task of its own, and make the spares."""
        self._factories = {stand_in_key(factory): factory for factory in factories}
        pairs = zip(envs, factories, strict=True)
        self._manners.owners = [OwnerTask(env, stand_in_key(factory)) for env, factory in pairs]
        for factory in extra:
            self.pool.idle.append(OwnerTask(self._make(factory), stand_in_key(factory)))

    async def begin(self, i: int, beginning: Beginning) -> Begun | None:
        """Put a spare in an environment's place that began its episode; ``None`` without one."""
        manners, pool = self._manners, self.pool
        ahead = pool.take(i, beginning, manners.owners[i].key)
        if ahead is None:
            manners.count("spares_missed", i)
            return None
        manners.count("spares_used" if ahead.result.done() else "spares_late", i)
        try:
            begun: Begun | BaseException = await ahead.result
        except asyncio.CancelledError:
            self._replace(ahead.owner)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        except Exception:  # the environment's own reset tells whether that is a fault
            self._replace(ahead.owner)
            return None
        if isinstance(begun, BaseException):
            self._replace(ahead.owner)
            if isinstance(begun, KeyboardInterrupt):
                raise begun
            return None
        pool.idle.append(manners.owners[i])
        manners.owners[i] = ahead.owner
        return begun

    def reset_ahead(self, steps: Sequence[int], next_of: Callable[[int], Beginning]) -> None:
        """Begin to reset idle spares; see :meth:`SparePool.assign`."""
        for owner in self.pool.failures():
            self._replace(owner)
        keys = [owner.key for owner in self._manners.owners]
        for owner, i, beginning in self.pool.assign(steps, keys, next_of):
            reset = asyncio.ensure_future(self._reset(owner, i, beginning))
            reset.add_done_callback(_retrieve)
            self.pool.ahead.append(Ahead(owner, i, beginning, reset))

    async def _reset(self, owner: OwnerTask, i: int, beginning: Beginning) -> Begun | BaseException:
        """Reset a spare; return what would end the loop if a task raised it."""
        try:
            if owner.env is None:  # its predecessor failed
                owner.env = self._make(self._factories[owner.key])
            arguments = copy.deepcopy(beginning.arguments())
            start = note_start(owner.env, arguments)
            observation, info = await self._manners.reset_spare(i, owner, arguments)
        except (KeyboardInterrupt, SystemExit) as error:
            return error
        return start, observation, info

    def _replace(self, owner: OwnerTask) -> None:
        """Close a spare that failed; another is made when one is needed."""
        if owner.env is not None:
            self.give_up(owner)
        self.pool.idle.append(OwnerTask(None, owner.key))

    def give_up(self, owner: OwnerTask) -> None:
        """Close an environment that is of no use any more, without waiting for it."""
        closing = asyncio.ensure_future(owner.stop(self._close(owner.env)))
        closing.add_done_callback(_retrieve)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Cancel the resets, and close the spares; what they raise concerns nobody."""
        for each in self.pool.ahead:
            each.result.cancel()
        owners = [*self.pool.idle, *(each.owner for each in self.pool.ahead)]
        await asyncio.gather(*(each.result for each in self.pool.ahead), return_exceptions=True)
        closing = [owner.stop(self._close(owner.env)) for owner in owners if owner.env is not None]
        await asyncio.gather(*closing, *self._closing, return_exceptions=True)
        self.pool = SparePool()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Look at an exception, so that asyncio does not complain."""
    if not task.cancelled():
        task.exception()
