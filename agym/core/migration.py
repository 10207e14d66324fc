"""Migration: when steps take much longer than planned, or much less, environments move elsewhere.

At the end of an episode, once the drift is sure and nobody steps or resets, it is planned again. If
another place promises to be quicker, all environments move there. What is asked of them meanwhile
waits::

    pack     the old hosts: here they are, with all their state
    migrate  the new hosts make theirs from that
    unpack   what their hosts have to know; the old ones end, and what waited goes on

No trajectory changes by that: environments move as they are (``core/luggage.py``), or all stay,
since the old ones are there until all others are.
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

# A place that is not ready by then is given up.
MOVE_SECONDS = 60.0

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
    @property
    def next_is_well(self) -> bool: ...
    def change_place(self) -> None: ...
    def tidy(self) -> None: ...


class Movers(Protocol):
    """What migration needs of the engine."""

    num_envs: int

    @property
    def gauges(self) -> Gauges:
        """What the hosts count."""

    @property
    def sound(self) -> bool:
        """Whether every environment is alive and was reset."""

    @property
    def at_rest(self) -> bool:
        """Whether none steps or resets, or is about to."""

    def any_ended(self, ids: Ids, plane: int) -> bool:
        """Whether a row has a flag."""

    def order(self, kind: str, ids: Ids, each: list[Any] | None = None) -> int:
        """Begin an operation of our own, ahead of all that waits; gives its number."""

    def revoke(self, number: int) -> None:
        """Nobody waits for it any more."""

    def hold_all(self) -> None:
        """Hold back what all environments are asked to do."""

    def let_all_go(self) -> None:
        """Let it be done."""

    def moved(self) -> None:
        """The executor's place is another one."""


class Migration:
    """Moves all environments of an engine, as often as steps drift."""

    def __init__(self, choose: Choose, movers: Movers, executor: Place) -> None:
        """Begin where the plan has put them."""
        self._choose = choose
        self._movers = movers
        self._executor = executor
        self._all = range(movers.num_envs)
        self._next_look = 0.0
        self._watch = Watch()
        self._seen = 0
        # Where they are about to go, by when, and what is under way for that.
        self._place: Any = None
        self._deadline = 0.0
        self._number = 0
        self._luggage: list[Luggage] = []
        self._over = False

    # ---------------------------------------------------------------- a drift

    def settled(self, ids: Ids, plane: int) -> None:
        """Steps have ended."""
        if self._over or self._place is not None or not (self._seen or self._due()):
            return
        with Uninterrupted():
            self._attend(ids, plane)

    def _due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() >= self._next_look

    def _attend(self, ids: Ids, plane: int) -> None:
        if self._due():
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._executor.tidy()
            ratio = self._watch.look(self._movers.gauges)
            if ratio is not None:
                self._seen = self._seen + 1 if has_drifted(ratio) else 0
        movers = self._movers
        ready = self._seen >= SURE and movers.sound and movers.at_rest
        if not ready or not movers.any_ended(ids, plane):
            return
        self._seen = 0
        try:
            self._place = self._choose(*self._watch.accept())
        except Exception:  # a factory that cannot even be looked at
            self._over = True
        if self._place is None:
            return
        self._deadline = time.monotonic() + MOVE_SECONDS
        movers.hold_all()
        try:
            self._number = movers.order("pack", self._all)
        except BaseException:
            self.call_off(for_good=True)
            raise

    # ---------------------------------------------------------------- a move

    def advance(self, ticket: Ticket) -> None:
        """A part of the move has ended."""
        if ticket.number != self._number or self._place is None:
            return  # it was called off meanwhile
        extras = ticket.extras
        values = {} if extras is None else extras.values
        failed = extras is not None and bool(extras.problems)
        try:
            if ticket.kind == "unpack":
                self._end()
            elif any(isinstance(value, str) for value in values.values()):
                self.call_off(for_good=True)  # why it cannot be done
            elif failed or not self._movers.sound:
                self.call_off()
            elif ticket.kind == "pack":
                self._luggage = [values[slot] for slot in self._all]
                self._prepare()
            else:
                self._change()
        except BaseException:
            self.call_off(for_good=True)
            raise

    def _prepare(self) -> None:
        self._number = self._movers.order("migrate", self._all)
        envs = [luggage.env for luggage in self._luggage]
        try:
            self._executor.prepare_place(self._place, envs, self._number)
        except Exception:  # no processes, no memory
            self.call_off(for_good=True)

    def _change(self) -> None:
        """The environments are there, and those that were left are used no more."""
        if not self._executor.next_is_well:
            self.call_off()
            return
        self._movers.gauges.settle(self._executor.ranges)
        self._executor.change_place()
        self._movers.moved()
        each = [luggage._replace(env=b"") for luggage in self._luggage]
        self._number = self._movers.order("unpack", self._all, each)

    def expire(self) -> None:
        """Give a place up that does not come up."""
        if self._place is not None and time.monotonic() > self._deadline:
            self.call_off(for_good=True)

    def call_off(self, *, for_good: bool = False) -> None:
        """Stay, now or from now on."""
        self._over = self._over or for_good
        if self._place is not None:
            self._movers.revoke(self._number)
            self._executor.leave_place()
            self._end()

    def _end(self) -> None:
        self._place = None
        self._luggage = []
        self._watch = Watch()
        self._movers.let_all_go()


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
