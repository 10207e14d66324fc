"""Spares of coroutine environments: reset on the loop, while the others run.

Cancel scopes and sessions need that all methods of an environment run in one task. So a spare has
its task from the beginning, and when it takes an environment's place, its task takes the queue
over. The task of the environment whose episode ended then waits for what it is to reset::

    stand_by(spare): reset ahead --> result --> the place of an environment
    queue of i: task of the old environment --> its last report --> task of the spare
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from agym.hosts.base import Factory
from agym.hosts.coroutine.fleet_calls import FleetCalls
from agym.hosts.fleet.setup import spare_factories, stand_in_key
from agym.hosts.fleet.spares import Ahead, Beginning, SparePool
from agym.hosts.snapshots.replaying import note_start
from agym.protocol.messages.resets import EpisodeStart

# How an episode began, its first observation and its info.
Begun = tuple[EpisodeStart, Any, dict[str, Any]]

# What to reset for which environment, and the future of the result.
Order = tuple[int, Beginning, "asyncio.Future[Begun]"]


class Spare:
    """An environment that waits for a place, and its task.

    Attributes:
        env: The environment; ``None`` if it has not been made.
        key: What environments that may stand in for each other have in common.
        task: The task in which all its methods run.
        orders: What to reset next; and in the end the index of the environment whose place it
            takes.
    """

    def __init__(self, key: object, env: Any = None) -> None:
        self.env = env
        self.key = key
        self.task: asyncio.Task[None] | None = None
        self.orders: asyncio.Queue[Order | int] = asyncio.Queue()


class SpareTasks:
    """The spares of one host.

    Attributes:
        successors: By environment, the spare that takes its place once its old task has reported,
            and the old environment.
    """

    def __init__(
        self,
        fleet: FleetCalls,
        factories: Sequence[Factory],
        count: int,
        make: Callable[[Factory], Any],
        close: Callable[[Any], Coroutine[Any, Any, None]],
        start: Callable[[Spare], asyncio.Task[None]],
    ) -> None:
        """Have ``count`` spares.

        Args:
            fleet: Calls the environments.
            factories: Those of the environments.
            count: How many spares at most.
            make: Makes an environment.
            close: Closes one.
            start: Starts the task of a spare, which runs :meth:`stand_by`, then the queue of the
                place that the spare gets.
        """
        self._fleet = fleet
        self._keys = [*map(stand_in_key, factories)]
        self._factories = dict(zip(self._keys, factories, strict=True))
        # The keys of spares that have to be made.
        self._missing = [*map(stand_in_key, spare_factories(factories, count))]
        self._make = make
        self._close = close
        self._start_task = start
        self._pool: SparePool[Spare] = SparePool()
        self.successors: dict[int, tuple[Spare, Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, i: int, beginning: Beginning, env: Any) -> tuple[Begun, Any] | None:
        """Have a spare begin an episode in the place of an environment.

        Returns:
            How it began, and the spare's environment; ``None`` if none was reset for it.
        """
        ahead = self._pool.take(i, beginning, self._keys[i])
        if ahead is None:
            self._fleet.count("spares_missed", i)
            return None
        self._fleet.count("spares_used" if ahead.result.done() else "spares_late", i)
        try:
            begun: Begun = await ahead.result
        except asyncio.CancelledError:
            self._end(ahead.owner)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        except KeyboardInterrupt:
            self._end(ahead.owner)
            raise
        except BaseException:  # the environment's own reset tells whether that is a fault
            self._end(ahead.owner)
            return None
        self.successors[i] = ahead.owner, env
        return begun, ahead.owner.env

    def reset_ahead(
        self, begun: int, steps_of: Callable[[int], int], next_of: Callable[[int], Beginning]
    ) -> None:
        """Begin to reset idle spares; see :meth:`SparePool.assign`."""
        for spare in self._pool.failures():
            self._end(spare)
        while self._missing:
            self._pool.idle.append(self._start(Spare(self._missing.pop())))
        for spare, i, beginning in self._pool.assign(begun, self._keys, steps_of, next_of):
            result: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()
            result.add_done_callback(_retrieve)
            spare.orders.put_nowait((i, beginning, result))
            self._pool.ahead.append(Ahead(spare, i, beginning, result))

    def _start(self, spare: Spare) -> Spare:
        spare.task = task = self._start_task(spare)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return spare

    def _end(self, spare: Spare) -> None:
        """End the task of a spare that failed, which closes it; another is made when needed."""
        assert spare.task is not None
        spare.task.cancel()
        self._missing.append(spare.key)

    def succeed(self, i: int, task: asyncio.Task[None]) -> tuple[asyncio.Task[None], Spare]:
        """Give a successor its place, and make a spare of the old environment.

        Returns:
            The task of the successor; and the spare, which ``task`` has to run.
        """
        successor, env = self.successors.pop(i)
        assert successor.task is not None
        successor.orders.put_nowait(i)
        self._tasks.discard(successor.task)
        spare = Spare(self._keys[i], env)
        spare.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._pool.idle.append(spare)
        return successor.task, spare

    async def stand_by(self, spare: Spare) -> int:
        """Reset a spare as often as that is ordered, until it gets a place; return the place.

        A spare that is cancelled before is closed.
        """
        try:
            while not isinstance(order := await spare.orders.get(), int):
                await self._reset(spare, *order)
        except asyncio.CancelledError:
            if not spare.orders.empty() and isinstance(order := spare.orders.get_nowait(), int):
                return order  # it had its place already
            if spare.env is not None:
                await self._close(spare.env)
            raise
        return order

    async def _reset(
        self, spare: Spare, i: int, beginning: Beginning, result: asyncio.Future[Begun]
    ) -> None:
        if result.cancelled():
            return  # nobody wants it any more
        try:
            if spare.env is None:
                spare.env = self._make(self._factories[spare.key])
            arguments = copy.deepcopy(beginning.arguments())
            start = note_start(spare.env, arguments)
            reset = self._fleet.reset(i, spare.env, arguments)
            observation, info = await self._fleet.tracked(i, reset)
        except GeneratorExit:
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                result.cancel()
                raise
            if not result.done():
                result.set_exception(error)
        else:
            if not result.done():
                result.set_result((start, observation, info))

    async def aclose(self) -> None:
        """Cancel the resets, and close the spares; what they raise concerns nobody."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _retrieve(result: asyncio.Future[Begun]) -> None:
    """Look at an exception, so that asyncio does not complain."""
    if not result.cancelled():
        result.exception()
