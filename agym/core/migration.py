"""Migration: when steps take much longer than planned, or much less, environments move elsewhere.

At the end of an episode, once the drift is sure, another place is chosen. If it promises to be
quicker, all environments move there, and what is asked of them meanwhile waits::

    each, once it is free  --> pack     (the old host: here it is, with all its state)
    all packed             --> migrate  (the new hosts make theirs from that)
    all made               --> unpack   (what their hosts have to know); the old ones end
    done                   --> what waited goes on

No trajectory changes by that: an environment moves as it is (``core/luggage.py``), or all stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from agym.core.arguments import Ids
from agym.core.gauges import MIDS, Gauges
from agym.core.interrupts import Uninterrupted
from agym.core.luggage import Luggage
from agym.core.ticket import Ticket

# How long steps take is looked at so often, from so many of them, and a drift is sure the second
# time that it is seen.
LOOK_SECONDS, LEAST_STEPS = 0.25, 32
SURE = 2

# A drift is by more than this factor, in either direction; steps that are quicker than this do not
# matter.
DRIFT, LEAST_SECONDS = 3.0, 2e-6

# One that seldom gave its core away did not wait by itself: others had the core.
WAITS_PER_STEP = 0.5

KINDS = frozenset({"pack", "migrate", "unpack"})

# Where to go, as the executor takes it, ``None`` to stay; for steps that take so many times as long
# as when that was asked before, and the share of them spent waiting.
Choose = Callable[[float, float], Any]


class Place(Protocol):
    """What migration needs of an executor: ``executors/migrating.py``."""

    @property
    def ranges(self) -> Sequence[range]: ...
    def prepare_place(self, place: Any, envs: Sequence[bytes], number: int) -> None: ...
    def leave_place(self) -> None: ...
    def change_place(self) -> None: ...


class Movers(Protocol):
    """What migration needs of the engine."""

    num_envs: int

    @property
    def gauges(self) -> Gauges:
        """What the hosts count."""

    @property
    def sound(self) -> bool:
        """Whether every environment is alive and was reset."""

    def order(self, kind: str, ids: Ids, each: list[Any] | None = None) -> int:
        """Begin an operation of our own, ahead of all that waits; gives its number."""

    def any_ended(self, ids: Ids, plane: int) -> bool:
        """Whether a row has a flag."""

    def depart(self, slot: int, kind: str) -> int | None:
        """Begin to move an environment, and hold back what it is to do next; unless it is busy."""

    def let_go(self, slot: int, number: int) -> None:
        """Let it go on."""

    def moved(self) -> None:
        """The executor's place is another one."""


class Migration:
    """Moves all environments of an engine, as often as steps drift."""

    def __init__(self, choose: Choose, movers: Movers, executor: Place) -> None:
        """Begin where the plan has put them."""
        self._choose = choose
        self._movers = movers
        self._executor = executor
        self._next_look = 0.0
        self._watch = Watch()
        self._seen = 0
        self._place: Any = None
        # Who holds back what each environment is asked to do.
        self._holders: dict[int, int] = {}
        self._luggage: dict[int, Luggage] = {}
        self._over = False

    def settled(self, ids: Ids, plane: int) -> None:
        """Steps have ended."""
        if self._over or (self._place is None and not self._seen and not self._due()):
            return
        with Uninterrupted():
            self._attend(ids, plane)

    def _due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() >= self._next_look

    def _attend(self, ids: Ids, plane: int) -> None:
        if self._place is None:
            if self._due():
                self._next_look = time.monotonic() + LOOK_SECONDS
                self._look()
            movers = self._movers
            if self._seen < SURE or not (movers.sound and movers.any_ended(ids, plane)):
                return
            self._seen = 0
            self._place = self._choose(*self._watch.accept())
        if self._place is not None and len(self._holders) < self._movers.num_envs:
            self._collect()

    def _look(self) -> None:
        ratio = self._watch.look(self._movers.gauges)
        if ratio is not None:
            self._seen = self._seen + 1 if has_drifted(ratio) else 0

    def _collect(self) -> None:
        """Pack who is free; the others follow when they are."""
        for slot in range(self._movers.num_envs):
            if slot not in self._holders:
                number = self._movers.depart(slot, "pack")
                if number is not None:
                    self._holders[slot] = number

    def advance(self, ticket: Ticket) -> None:
        """A part of the move has ended."""
        if self._place is None:
            return  # it was called off meanwhile
        extras = ticket.extras
        values = {} if extras is None else extras.values
        lost = extras is not None and bool(extras.problems)
        if ticket.kind == "unpack":
            self._end()
        elif lost or not self._movers.sound or any(isinstance(v, str) for v in values.values()):
            self._call_off()
        elif ticket.kind == "pack":
            self._luggage[ticket.ids[0]] = values[ticket.ids[0]]
            if len(self._luggage) == self._movers.num_envs:
                self._prepare()
        else:
            self._change()

    def _prepare(self) -> None:
        slots = range(self._movers.num_envs)
        number = self._movers.order("migrate", slots)
        try:
            envs = [self._luggage[slot].env for slot in slots]
            self._executor.prepare_place(self._place, envs, number)
        except Exception:  # no processes, no memory
            self._call_off()

    def _change(self) -> None:
        """The environments are there, and those that were left are used no more."""
        slots = range(self._movers.num_envs)
        self._movers.gauges.settle(self._executor.ranges)
        self._executor.change_place()
        self._movers.moved()
        each = [self._luggage[slot]._replace(env=b"") for slot in slots]
        self._movers.order("unpack", slots, each)

    def _call_off(self) -> None:
        """All stay where they are, for good: it would fail again."""
        self._over = True
        self._executor.leave_place()
        self._end()

    def _end(self) -> None:
        self._place = None
        self._luggage = {}
        holders, self._holders = self._holders, {}
        for slot, number in holders.items():
            self._movers.let_go(slot, number)
        self._watch = Watch()


def has_drifted(ratio: float) -> bool:
    """Whether steps take so many times as long as they did that it matters."""
    return not 1 / DRIFT <= ratio <= DRIFT


class Watch:
    """Follows how long steps take, by what the hosts have timed.

    What is usual is known once two looks agree: the first steps of some environments take long,
    when something is compiled or loaded in them.
    """

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._counts: Any = None
        self._used = np.zeros(2, np.int64)
        self._usual: float | None = None
        # Seconds of a step, and the share of it spent waiting.
        self._latest = 0.0, 0.0

    def look(self, gauges: Gauges) -> float | None:
        """How many times as long as usual steps took since the last look, if that is known."""
        arrays = gauges.arrays
        counts = arrays["times"].sum(axis=0, dtype=np.int64)
        used = np.array([arrays["computed"].sum(), arrays["yields"].sum()])
        if self._counts is None:
            self._counts, self._used = counts, used
            return None
        new = counts - self._counts
        steps = int(new.sum())
        if steps < LEAST_STEPS:
            return None
        computed, yields = ((used - self._used) / steps).tolist()
        self._counts, self._used = counts, used
        seconds, computed = float(new @ MIDS) / steps, computed / 1e9
        waiting = 0.0
        if yields < WAITS_PER_STEP:
            seconds = min(seconds, computed)
        else:
            waiting = max(0.0, 1.0 - computed / seconds)
        seconds = max(seconds, LEAST_SECONDS)
        (before, _), self._latest = self._latest, (seconds, waiting)
        if self._usual is None:
            if not before or has_drifted(seconds / before):
                return None
            self._usual = seconds
        return seconds / self._usual

    def accept(self) -> tuple[float, float]:
        """Take the latest as usual; gives the ratio to what was so before, and its waiting."""
        assert self._usual is not None
        seconds, waiting = self._latest
        ratio, self._usual = seconds / self._usual, seconds
        return ratio, waiting
