"""Chooses the plane for each whole batch, and leases planes to the caller.

A batch that is copied goes to one of a *pair* of planes, in turns. So do all batches if there are
no leases. A leased batch is the plane itself. It belongs to the caller until the last array, slice
or tensor over it is gone::

    free --take--> reserved --lease--> leased --(the last array is gone)--> free
                      '-----give_back (no result was built)--------------------^

While no plane is free, batches are copied. So a batch that the caller holds never changes. But
writes of the caller into a leased batch change the plane. So there are leases only where neither
recovery nor environments on hold read the latest batch again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from agym._system.fork_safety import notify_before_forks
from agym.protocol.memory import Leased
from agym.protocol.table import LEASE_BYTES, SlotTable
from agym.protocol.typing import Array

FREE, RESERVED, LEASED, LOST = range(4)


class Planes:
    """The planes that whole batches go to."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._states = dict.fromkeys(table.leasable, FREE)
        # Whoever removes a plane from the leased ones decides what becomes of it: a lease that
        # ends, in any thread, or a fork. Removing is atomic, with and without a GIL. A lock would
        # stay locked in a forked child.
        self._leased: set[int] = set()
        # Whether each observation leaf is large enough to be leased.
        self._large = [block.nbytes >= LEASE_BYTES for block in table.planes[0].observations]
        if table.shared:
            notify_before_forks(self)

    def take(self, in_use: set[int]) -> int | None:
        """Choose a free plane that holds no environment's latest row, if there is one."""
        for plane, state in self._states.items():
            if state == FREE and plane not in in_use:
                self._states[plane] = RESERVED
                return plane
        return None

    def give_back(self, plane: int) -> None:
        """Free a plane whose batch was not leased."""
        if self._states.get(plane) == RESERVED:
            self._states[plane] = FREE

    def lease(self, plane: int) -> list[Array] | None:
        """Lease a plane's observations, and copy small leaves; ``None`` for one of the pair."""
        if self._states.get(plane) != RESERVED:
            return None
        lease = Lease(self._states, self._leased, plane)
        self._leased.add(plane)
        self._states[plane] = LEASED
        return [
            Leased.array(lease, block) if large else block.copy()
            for large, block in zip(
                self._large, self._table.planes[plane].observations, strict=True
            )
        ]

    def before_fork(self) -> None:
        """Never reuse leased planes, because a child process is about to share their arrays."""
        for plane in [*self._leased]:
            with suppress(KeyError):  # its lease has just ended
                self._leased.remove(plane)
                self._states[plane] = LOST


class Lease(NamedTuple):
    """Frees a plane when its last array is gone, in whichever thread that happens.

    A tuple is complete as soon as it exists: Ctrl-C cannot leave a half-initialized one.
    """

    states: dict[int, int]
    leased: set[int]
    plane: int

    def __del__(self) -> None:
        try:
            self.leased.remove(self.plane)
        except KeyError:  # a forked child may have it
            return
        self.states[self.plane] = FREE
