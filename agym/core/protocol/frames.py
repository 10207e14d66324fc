"""Frames: gives ``render`` results to the caller, although the environment reuses its arrays.

Within one process, a frame is copied. From a worker process, a picture or a list of pictures is
copied to a region of the worker's *arena*, a block of shared memory. Each array keeps its memory
order: pygame's pictures are often transposed views, and copying them to C order takes longer than
drawing. The caller gets a *lease* of the region, not a copy::

    worker                                 arena                                caller
    keep(frame) --- copy -------------->  [region] [region]  ----- lease ----> array
    take_back(regions) <--- with the next render --- its last array, slice or tensor is gone

Region sizes are powers of two, and the latest free region is reused first, so frames may vary in
size. Memory that was never written takes no space. Frames for which there is no region are sent in
a message, as are frames of other types, such as strings.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from agym.core._system.fork_safety import notify_before_forks
from agym.core.protocol.memory import ALIGNMENT, Field
from agym.core.protocol.typing import Array
from agym.core.protocol.value_copies import copy_value

# The arena has room for 256 pictures of 600 x 400.
ARENA: Field = (np.dtype(np.uint8), (256 * 1024 * 1024,))

# Arrays with fewer bytes in total are faster in the message.
MIN_BYTES = 4096


class RegionArray(NamedTuple):
    """An array in a region."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    def over(self, memory: Array) -> Array:
        """Create the array over the region's memory, which it keeps alive.

        Raises:
            ValueError: The array exceeds the region.
        """
        return np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)


class ShelvedFrame(NamedTuple):
    """A frame in a region.

    Attributes:
        start: The first byte of the region.
        size: Number of used bytes.
        arrays: Its arrays.
        kind: ``list`` or ``tuple``, or ``None`` if the frame is a single array.
    """

    start: int
    size: int
    arrays: Sequence[RegionArray]
    kind: type | None


class FrameShelf:
    """The worker's end of an arena: divides it into regions and fills them."""

    def __init__(self, arena: Array) -> None:
        """Use an arena that no other worker fills."""
        self._arena = arena
        self._used = 0
        # Starts of the free regions by size; and for each region, the free list of its size.
        self._free: dict[int, list[int]] = {}
        self._lists: dict[int, list[int]] = {}

    def keep(self, frame: Any) -> Any:
        """Copy a frame, into the arena if it is an array or a list or tuple of arrays."""
        kind = type(frame) if type(frame) in (list, tuple) else None
        arrays = [frame] if kind is None else frame
        laid, size = [], 0
        for array in arrays:
            if type(array) is not np.ndarray or array.dtype.hasobject:
                return copy_value(frame)
            laid.append(RegionArray(size, array.shape, array.dtype, np.empty_like(array).strides))
            size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        start = self._take(size) if size >= MIN_BYTES else None
        if start is None:
            return copy_value(frame)
        region = self._arena[start : start + size]
        for array, target in zip(arrays, laid, strict=True):
            target.over(region)[...] = array
        return ShelvedFrame(start, size, laid, kind)

    def _take(self, size: int) -> int | None:
        size = max(mmap.PAGESIZE, 1 << (size - 1).bit_length())
        free = self._free.setdefault(size, [])
        if free:
            return free.pop()
        start = self._used
        if start + size > len(self._arena):
            return None
        self._used += size
        self._lists[start] = free
        return start

    def take_back(self, regions: Iterable[int]) -> None:
        """Reuse the regions with these starts, which the caller has released."""
        for start in regions:
            self._lists[start].append(start)


class FrameLeases:
    """The caller's end of one worker's arena."""

    def __init__(self, arena: Array) -> None:
        self._arena = arena
        # Weak references to the leased regions, and starts of released regions, by start. A lease
        # ends in any thread in which the garbage collector runs, perhaps during a fork: whichever
        # removes the region from ``_leased`` decides whether it is reused. ``pop`` is atomic.
        self._leased: dict[int, weakref.ref[Array]] = {}
        self._returned: list[int] = []
        notify_before_forks(self)

    def open(self, value: ShelvedFrame) -> Any:
        """Return the frame in a region to the caller.

        Raises:
            ValueError: The region does not exist or is leased: the worker is broken.
        """
        start, size, laid, kind = value
        if not 0 <= start <= start + size <= len(self._arena) or start in self._leased:
            raise ValueError(f"a region that is leased or does not exist: {start}")
        # From bytes: an array over part of an array refers to the whole array, not to the part.
        region = np.frombuffer(self._arena.data[start : start + size], np.uint8)
        self._leased[start] = weakref.ref(region, lambda _: self._end(start))
        arrays = [array.over(region) for array in laid]
        return arrays[0] if kind is None else kind(arrays)

    def _end(self, start: int) -> None:
        if self._leased.pop(start, None):  # otherwise a forked child may still use it
            self._returned.append(start)

    def give_back(self) -> list[int]:
        """Remove and return the starts of the regions that the worker may reuse."""
        # Other threads may append during this loop, but only this thread removes entries. So there
        # are at least as many entries as ``len`` has returned.
        return [self._returned.pop() for _ in range(len(self._returned))]

    def before_fork(self) -> None:
        """Never reuse leased regions: the forked child keeps arrays over the same memory."""
        self._leased.clear()
