"""Migrating: a place that can change. Environments live on one executor, and move to another.

What the caller has of it stays the same, the slot table too, which is shared with other processes
from the beginning. Who is not moving pays nothing: what is called for each step is the inner
executor's own method.

The *next* place makes environments of its own from luggage, which are nobody's until it takes over.
From then on those that it was packed from are, and neither the ones nor the others are closed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agym.core.arena import Arena
from agym.core.luggage import unpack_env
from agym.core.making import Arriving
from agym.core.operations import FAULT, OPEN, Extras, Failure, Operation, Outcome
from agym.core.slots import Extension, SlotTable
from agym.executors.base import Executor, Placement

# What makes a place, and the number of its workers.
Place = tuple[Callable[[Placement], Executor], int | None]

# What is called so often that it goes straight to where the environments live.
DIRECT = ("submit", "poll", "step", "news")


class MigratingExecutor(Executor):
    """Passes on to the executor of the place where environments live."""

    shared = True

    def __init__(self, placement: Placement, place: Place) -> None:
        """Remember what to make, and where."""
        super().__init__(placement)
        executor_class, workers = place
        self._here = executor_class(replace(placement, workers=workers))
        self._next: Executor | None = None
        self._number = OPEN
        # A worker of the next place has ended.
        self._next_lost = False
        # The places that are left, until they have ended; then until nobody sleeps on them; then
        # until they can be released.
        self._left: list[Executor] = []
        self._ended: list[Executor] = []
        self._unwatched: list[Executor] = []
        self._table: SlotTable
        self._parked = False
        self._arenas: list[Arena] = []
        weakref.finalize(self, _close, self._arenas)
        self._arrive()

    def _arrive(self) -> None:
        """Take on the ways of the place."""
        here = self._here
        self.ranges = here.ranges
        self.watchable = here.watchable
        self.immediate = here.immediate
        self.replaceable = here.replaceable
        self.pinnable = here.pinnable
        self._settle()

    def _settle(self) -> None:
        """Have what is called for each step go its shortest way."""
        for name in DIRECT:
            vars(self).pop(name, None)
            if self._next is None and not self._left:
                setattr(self, name, getattr(self._here, name))

    def _all(self) -> Iterator[Executor]:
        yield self._here
        if self._next is not None:
            yield self._next
        yield from self._left

    @property
    def name(self) -> str:
        """The place's."""
        return self._here.name

    @property
    def pids(self) -> Sequence[int | None]:
        """The place's."""
        return self._here.pids

    # ---------------------------------------------------------------- to another place

    def prepare_place(self, place: Place, envs: Sequence[bytes], number: int) -> None:
        """Begin to make environments that were packed in another place."""
        executor_class, workers = place
        factories = [
            Arriving(partial(unpack_env, env), factory)
            for env, factory in zip(envs, self.factories, strict=True)
        ]
        placement = replace(self.placement, factories=factories, workers=workers)
        self._next, self._number = executor_class(placement), number
        self._next_lost = False
        self._settle()
        # What has to be made again later is made as at first.
        self._next.start()
        self._next.placement = replace(placement, factories=self.factories)
        if self._parked:
            self._next.park()

    def leave_place(self) -> None:
        """End what was begun elsewhere."""
        if self._next is not None:
            self._leave(self._next)
            self._next = None

    @property
    def next_is_well(self) -> bool:
        """Whether no worker of the other place has ended."""
        return not self._next_lost

    def change_place(self) -> None:
        """Live in the other place from now on."""
        assert self._next is not None
        left = self._here
        left.submit(Operation(OPEN, "forget", 0, len(self.factories)))
        self._next.attach(self._table)
        self._here, self._next = self._next, None
        left.detach()
        self._leave(left)
        self._arrive()

    def _leave(self, left: Executor) -> None:
        left.close()
        self._left.append(left)

    # ---------------------------------------------------------------- operations

    def start(self) -> None:
        """Begin to make the environments."""
        self._here.start()

    def attach(self, table: SlotTable) -> None:
        """Give the hosts the table, which they will have wherever they are."""
        self._table = table
        assert table.arena is not None
        self._arenas.append(table.arena)
        self._here.attach(table)

    @property
    def extensible(self) -> bool:
        """As any place is that has the table."""
        return True

    def extend(self, extension: Extension) -> None:
        """Give the hosts planes that were added."""
        self._arenas.append(extension.arena)
        self._here.extend(extension)

    def shrink(self, extension: Extension) -> None:
        """Have planes let go of."""
        self._arenas.remove(extension.arena)
        self._here.shrink(extension)

    def submit(self, operation: Operation) -> None:
        """Pass it on."""
        self._here.submit(operation)

    def step(self, number: int, plane: int, each: list[Any] | None = None) -> bool:
        """Pass it on."""
        return self._here.step(number, plane, each)

    def poll(self) -> Sequence[Outcome]:
        """Take what comes from where environments live, and what is to be known of the others."""
        outcomes = [*self._here.poll()]
        if self._next is not None:
            told = self._next.poll()
            self._next_lost |= any(outcome.number == FAULT for outcome in told)
            outcomes += [self._told(*o) for o in told if o.number != FAULT]
        self.tidy()
        return outcomes

    def tidy(self) -> None:
        """See which places that were left have ended."""
        for left in [*self._left]:
            left.poll()  # nobody waits for it
            if left.ended:
                self._left.remove(left)
                self._ended.append(left)
                self._settle()

    def _told(self, number: int, start: int, stop: int, extras: Extras | None) -> Outcome:
        """What is said where environments do not live yet: no fault of one that does."""
        problems = [] if extras is None else extras.problems
        for problem in problems:
            why = problem.error if isinstance(problem, Failure) else "its worker died"
            extras = Extras(values={start: why})
        return Outcome(self._number, start, stop, extras)

    def end_worker(self, worker: int, reason: str) -> None:
        """Pass it on."""
        self._here.end_worker(worker, reason)

    def replace_worker(self, worker: int, number: int) -> None:
        """Pass it on."""
        self._here.replace_worker(worker, number)

    def running(self, worker: int) -> int | None:
        """The environment of a worker that runs at this moment, if that can be told."""
        return self._here.running(worker)

    # ---------------------------------------------------------------- waiting

    def waitables(self) -> Mapping[int, int]:
        """Those of all."""
        self._unwatched += self._ended
        self._ended = []
        return {key: mask for each in self._all() for key, mask in each.waitables().items()}

    def park(self) -> None:
        """The caller is about to sleep."""
        self._parked = True
        for each in self._all():
            each.park()

    def unpark(self) -> None:
        """The caller is awake."""
        self._parked = False
        for each in self._all():
            each.unpark()
        while self._unwatched:
            self._unwatched.pop().release()

    def look(self) -> None:
        """See which workers are gone."""
        for each in self._all():
            each.look()

    # ---------------------------------------------------------------- leaving

    def close(self) -> None:
        """Ask all hosts to end."""
        self.leave_place()
        self._here.close()

    @property
    def forgotten(self) -> bool:
        """Whether the place was."""
        return self._here.forgotten

    @property
    def ended(self) -> bool:
        """Whether all have."""
        return all(each.ended for each in self._all())

    def terminate(self) -> None:
        """End what did not end when asked."""
        for each in self._all():
            each.terminate()

    def kill(self) -> None:
        """End what did not terminate."""
        for each in self._all():
            each.kill()

    def disown(self) -> bool:
        """The table is the parent's, so that nothing works here."""
        for each in self._all():
            each.disown()
        return True

    def release(self) -> None:
        """Give back what is left."""
        for each in [*self._all(), *self._ended, *self._unwatched]:
            each.release()
        _close(self._arenas)


def _close(arenas: list[Arena]) -> None:
    for arena in arenas:
        arena.close()
