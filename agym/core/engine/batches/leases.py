"""Planes of the slot table that the caller leases: a leased batch is the plane itself.

The caller owns it until the last array, slice or tensor over it is gone::

    free --take--> reserved --lease--> leased --(the last array is gone)--> free
                      '-----give_back (no result was built)--------------------^

While no plane is free, batches are copied. So a batch that the caller keeps never changes. But the
caller may write into a leased batch, which changes the plane. So there are leases only if neither
recovery nor environments on hold read the latest batch again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from agym.core._system.fork_safety import notify_before_forks
from agym.core.protocol.memory import Leased
from agym.core.protocol.table import LEASE_BYTES, SlotTable
from agym.core.protocol.typing import Array

FREE, RESERVED, LEASED, LOST = range(4)


class Planes:
    """The planes that the caller leases."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._states = dict.fromkeys(table.leasable, FREE)
        # A lease can end in any thread, at any bytecode: the garbage collector runs its finalizer.
        # A fork can come at the same time. Whichever removes the plane from this set decides its
        # next state, and ``set.remove`` is atomic with and without a GIL. A lock would not do: the
        # finalizer may run while the same thread holds it, and a forked child gets it locked.
        self._leased: set[int] = set()
        # Whether each observation leaf is large enough to be leased.
        self._large = [block.nbytes >= LEASE_BYTES for block in table.planes[0].observations]
        if table.shared:
            notify_before_forks(self)

    def take(self, in_use: set[int]) -> int | None:
        """Reserve a free plane that holds no environment's latest row, if there is such a plane."""
        for plane, state in self._states.items():
            if state == FREE and plane not in in_use:
                self._states[plane] = RESERVED
                return plane
        return None

    def give_back(self, plane: int) -> None:
        """Free a reserved plane whose batch was not leased."""
        if self._states.get(plane) == RESERVED:
            self._states[plane] = FREE

    def lease(self, plane: int) -> list[Array] | None:
        """Lease a plane's observations, and copy small leaves; ``None`` if it was not reserved."""
        if self._states.get(plane) != RESERVED:
            return None
        # Ctrl-C may interrupt an inline step between any two of these lines, and the lease is then
        # dropped. Before ``add``, the plane is still reserved, and ``give_back`` frees it. After
        # ``add``, the lease itself frees it.
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
        """Never reuse leased planes, because a forked child is about to share their arrays.

        The child keeps views of the same shared memory. Without a message from the child there is
        no way to learn when its last array is gone, so these planes stay out of use.
        """
        for plane in [*self._leased]:
            with suppress(KeyError):  # another thread has just ended this lease
                self._leased.remove(plane)
                self._states[plane] = LOST


class Lease(NamedTuple):
    """Frees a plane when its last array is gone, in any thread.

    A tuple is complete as soon as it exists: Ctrl-C cannot leave a half-initialized lease.
    """

    states: dict[int, int]
    leased: set[int]
    plane: int

    def __del__(self) -> None:
        try:
            self.leased.remove(self.plane)
        except KeyError:  # the plane is lost to a forked child, or was never leased
            return
        self.states[self.plane] = FREE
