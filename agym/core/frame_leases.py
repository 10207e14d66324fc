"""The caller's end of a shelf of frames: whose each region is; see ``core/frames.py``.

A region is the caller's from the answer that brings it until the last array over it is gone, in
whichever thread that is; then it goes back to the worker with the next ``render``. What has gone
back beyond what is likely to be needed again gives its memory back at once.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from agym.core.arena import anonymous_file
from agym.core.forks import disown_in_forks, tell_of_forks
from agym.core.frames import Array, Placed, Region, Shelved, array_at, put_together
from agym.core.planes import Leased

# An array over a region's memory, and how NumPy is told of it.
Laid = tuple[Array, dict[str, Any]]

# How many regions without a lease keep their memory, per environment.
SPARE = 2


class FrameLeases:
    """The regions of one worker's shelf.

    Attributes:
        descriptor: The file, which the worker lets grow.
    """

    def __init__(self, num_envs: int) -> None:
        """Make a shelf of no size yet, for a worker with so many environments."""
        self.descriptor = anonymous_file(0)
        if hasattr(fcntl, "F_ADD_SEALS"):
            # To look at a mapping whose file became shorter would end this process.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self._spare = SPARE * num_envs
        self._chunks: dict[int, mmap.mmap] = {}
        # The regions with their memory, by their start; what was laid over each last; those that
        # are lent; and those to be sent back: first those without memory, which are the last to be
        # reused.
        self._regions: dict[int, tuple[Region, memoryview]] = {}
        self._laid: dict[int, tuple[Sequence[Placed], list[Laid]]] = {}
        self._leased: set[int] = set()
        self._returned: deque[int] = deque()
        self._end = weakref.finalize(self, os.close, self.descriptor)
        disown_in_forks(self)
        tell_of_forks(self)

    def open(self, value: Shelved) -> Any:
        """Give what was shelved to the caller.

        Raises:
            ValueError: It is not what a worker would have written.
        """
        told, places, rest = value
        start = told if isinstance(told, int) else told.start
        if start in self._leased:
            raise ValueError(f"a region that was not given back: {told}")
        known = self._regions.get(start)
        if known is None:
            if isinstance(told, int):
                raise ValueError(f"a region that nobody knows: {told}")
            known = self._map(told)
        region, memory = known
        # Mostly a region takes the same kind of frame again.
        last, laid = self._laid.get(start, ((), []))
        if last != places:
            blocks = [array_at(memory, place) for place in places]
            laid = [(block, block.__array_interface__) for block in blocks]
            self._laid[start] = places, laid
        self._leased.add(start)
        lease = _Lease(self, region)
        arrays = [np.asarray(Leased(lease, block, interface)) for block, interface in laid]
        return put_together(rest, arrays)

    def _map(self, region: Region) -> tuple[Region, memoryview]:
        start, size, chunk, chunk_size = region
        if chunk not in self._chunks:
            if os.fstat(self.descriptor).st_size < chunk + chunk_size:
                raise ValueError(f"a region of a file that is shorter: {region}")
            try:
                self._chunks[chunk] = mmap.mmap(self.descriptor, chunk_size, offset=chunk)
            except (OSError, OverflowError) as error:
                raise ValueError(f"a region that cannot be mapped: {error}") from error
        mapped, begin = self._chunks[chunk], start - chunk
        if not 0 <= begin < begin + size <= len(mapped):
            raise ValueError(f"a region that is not within its chunk: {region}")
        known = self._regions[start] = region, memoryview(mapped)[begin : begin + size]
        return known

    def end(self, region: Region) -> None:
        """Nobody has it any more."""
        start = region.start
        if start not in self._leased:
            return  # a forked child may have it
        self._leased.discard(start)
        if len(self._regions) - len(self._leased) <= self._spare:
            self._returned.append(start)
            return
        if hasattr(mmap, "MADV_REMOVE"):
            with suppress(OSError, ValueError):  # it is about memory alone
                chunk = self._chunks[region.chunk]
                chunk.madvise(mmap.MADV_REMOVE, start - region.chunk, region.size)
        self._returned.appendleft(start)

    def give_back(self) -> list[int]:
        """Take out what the worker may use again, by its starts."""
        regions = []
        while self._returned:  # any thread may add to it meanwhile
            regions.append(self._returned.popleft())
        return regions

    def forked(self) -> None:
        """A child process has the same arrays over the same memory: it is theirs for ever."""
        for start in [*self._leased]:
            self._leased.discard(start)
            self._regions.pop(start, None)
            self._laid.pop(start, None)

    def disown(self) -> None:
        """Let go of the file, in a forked child."""
        self.close()

    def close(self) -> None:
        """Give the descriptor back; the memory lives as long as an array over it."""
        self._end()


class _Lease:
    """Says when nobody has a region any more."""

    __slots__ = ("_leases", "_region")

    def __init__(self, leases: FrameLeases, region: Region) -> None:
        self._leases = leases
        self._region = region

    def __del__(self) -> None:
        self._leases.end(self._region)
