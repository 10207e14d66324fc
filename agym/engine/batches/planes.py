"""Planes: into which set of rows the next whole batch is written, and whose that is afterwards.

A batch that is copied out goes to one of a *pair*, in turns, as all batches do without leases.
A leased one is the plane itself, and belongs to the caller until the last array, slice or tensor
over it is gone::

    free --take--> reserved --lease--> leased --(its last array is gone)--> free
                      '-----give_back (no result came of it)----------------^

While none is free, batches are copied. So nothing that the caller holds ever changes. But what it
writes into a leased batch stands in the plane, so there are leases only where nobody else reads
the latest batch again to go on from it: neither recovery nor environments that hold still.
"""

from __future__ import annotations

from typing import NamedTuple

from agym._system.fork_safety import notify_before_forks
from agym.protocol.memory import Leased
from agym.protocol.table import LEASE_BYTES, SlotTable
from agym.protocol.typing import Array

FREE, RESERVED, LEASED, LOST = range(4)


class Planes:
    """The planes that whole batches go to."""

    def __init__(self, table: SlotTable) -> None:
        """Use a table's planes."""
        self._table = table
        self._turn = 0
        self._states = dict.fromkeys(table.leasable, FREE)
        # Which of a plane's observation leaves are worth a lease.
        self._large = [block.nbytes >= LEASE_BYTES for block in table.planes[0].observations]
        if table.shared:
            notify_before_forks(self)

    def take(self, in_use: set[int]) -> int:
        """Choose the plane for the next whole batch, none that has somebody's latest row."""
        for plane, state in self._states.items():
            if state == FREE and plane not in in_use:
                self._states[plane] = RESERVED
                return plane
        return self.pair()

    def pair(self) -> int:
        """Take turns with the two planes whose batches are copied, or looked at for a while."""
        self._turn = 1 - self._turn
        return self._turn

    def give_back(self, plane: int) -> None:
        """A batch has ended; if it was not leased, its plane is free."""
        if self._states.get(plane) == RESERVED:
            self._states[plane] = FREE

    def lease(self, plane: int) -> list[Array] | None:
        """Give a plane's observations away, small ones as copies; ``None`` if it is of the pair."""
        if self._states.get(plane) != RESERVED:
            return None
        lease = Lease(self._states, plane)
        self._states[plane] = LEASED
        return [
            Leased.array(lease, block) if large else block.copy()
            for large, block in zip(
                self._large, self._table.planes[plane].observations, strict=True
            )
        ]

    def before_fork(self) -> None:
        """A child process has the same arrays over the same memory: it is theirs for ever."""
        for plane, state in self._states.items():
            if state == LEASED:
                self._states[plane] = LOST


class Lease(NamedTuple):
    """Frees a plane when nobody has it any more, in whichever thread that is.

    It is a tuple, since these are whole once they are there: Ctrl-C cannot leave half of one.
    """

    states: dict[int, int]
    plane: int

    def __del__(self) -> None:
        if self.states[self.plane] == LEASED:
            self.states[self.plane] = FREE
