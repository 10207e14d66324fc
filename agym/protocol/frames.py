"""Frames: hands what ``render`` returned to the caller, while the environment reuses its arrays.

Within one process, a frame is copied. From a worker process, arrays go through a *shelf*: a file in
shared memory, divided into regions. A region holds what one ``render`` of one environment returned,
one picture or a list. Each array keeps its memory order: pygame's pictures are often transposed
views, whose copy to C order takes longer than the drawing. The caller gets a *lease* of the region,
not a copy::

    worker                                shared memory                        caller
    keep(frame) --- copy -------------->  [region] [region]  ----- lease ----> array
    take_back(regions) <--- with the next render --- its last array, slice or tensor is gone

Region sizes are powers of two, and regions are reused, the latest first, so frames may vary in
size. The unused end of a region has addresses but takes no memory.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from agym._system.fork_safety import abandon_in_forks, notify_before_forks
from agym._system.platform import anonymous_file, forbid_shrinking
from agym.protocol.memory import Leased
from agym.protocol.typing import Array
from agym.protocol.value_copies import copy_value, is_plain

# Below this total, arrays travel faster in the message.
LEAST_BYTES = 4096

# Size of the first mapping. Each further one takes a descriptor and doubles the total.
CHUNK_BYTES = 64 * 1024 * 1024

ALIGNMENT = 64


class Region(NamedTuple):
    """A part of a shelf, identified by its start; the size is a power of two.

    ``chunk`` and ``chunk_size`` describe the mapping that contains it.
    """

    start: int
    size: int
    chunk: int
    chunk_size: int


class FrameRef(NamedTuple):
    """An array in a region: its dtype, shape, strides and offset."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class ShelvedFrame(NamedTuple):
    """A value whose arrays are in a region.

    Attributes:
        region: The region, or its start alone if the caller knows it.
        arrays: The arrays.
        rest: The value without them, pickled; persistent ids are their positions. ``None`` if the
            value is the one array.
    """

    region: Region | int
    arrays: Sequence[FrameRef]
    rest: bytes | None


class Frames(Protocol):
    """Transfers frames from a host to the caller."""

    def keep(self, frame: Any) -> Any:
        """Return a value that no environment changes any more."""

    def take_back(self, regions: Iterable[int]) -> None:
        """Reuse regions, given by their starts, which the caller has released."""


class OwnFrames:
    """Copies frames, for a caller in this process."""

    def keep(self, frame: Any) -> Any:
        """Copy a frame in its memory order."""
        return copy_value(frame)

    def take_back(self, regions: Iterable[int]) -> None:
        """Do nothing: copies are not leased."""


class FrameShelf:
    """The worker's end of a shelf, which divides it into regions and fills them."""

    def __init__(self, descriptor: int) -> None:
        """Use an empty file that the caller created; its descriptor must stay open."""
        self._descriptor = descriptor
        # Size and memory of each region, by start; starts of the free regions, by size.
        self._regions: dict[int, tuple[int, memoryview]] = {}
        self._free: dict[int, list[int]] = {}
        # Size of the file; the chunk that is being divided, and how much of it is used.
        self._file_size = 0
        self._chunk = memoryview(b"")
        self._chunk_start = self._used = 0

    def keep(self, frame: Any) -> Any:
        """Copy the arrays of a value into a region; return it unchanged if they are too small."""
        if type(frame) is np.ndarray and not frame.dtype.hasobject:
            rest, arrays = None, [frame]
        elif is_plain(frame):
            rest, arrays = _take_apart(frame)
        else:
            return frame
        refs, size = _place(*[(array.dtype, array.shape, array.strides) for array in arrays])
        if size < LEAST_BYTES:
            return frame
        region, memory = self._take(size)
        for array, ref in zip(arrays, refs, strict=True):
            array_at(memory, ref)[...] = array
        return ShelvedFrame(region, refs, rest)

    def take_back(self, regions: Iterable[int]) -> None:
        for start in regions:
            self._free.setdefault(self._regions[start][0], []).append(start)

    def _take(self, size: int) -> tuple[Region | int, memoryview]:
        size = max(mmap.ALLOCATIONGRANULARITY, 1 << (size - 1).bit_length())
        free = self._free.get(size)
        if free:
            start = free.pop()
            return start, self._regions[start][1]
        if self._used + size > len(self._chunk):
            self._grow(size)
        start, memory = self._chunk_start + self._used, self._chunk[self._used : self._used + size]
        self._used += size
        self._regions[start] = size, memory
        return Region(start, size, self._chunk_start, len(self._chunk)), memory

    def _grow(self, size: int) -> None:
        size = max(CHUNK_BYTES, self._file_size, size)
        start, self._file_size = self._file_size, self._file_size + size
        os.ftruncate(self._descriptor, self._file_size)
        self._chunk = memoryview(mmap.mmap(self._descriptor, size, offset=start))
        self._chunk_start, self._used = start, 0


def array_at(memory: memoryview, ref: FrameRef) -> Array:
    """Create an array over its part of a region's memory.

    Raises:
        ValueError: The array exceeds the region.
    """
    dtype, shape, strides, offset = ref
    return np.ndarray(shape, dtype, memory, offset, strides)


def put_together(rest: bytes | None, arrays: Sequence[Array]) -> Any:
    """Rebuild a value from its pickled rest and its arrays."""
    return arrays[0] if rest is None else _FrameUnpickler(rest, arrays).load()


def _take_apart(value: Any) -> tuple[bytes, list[Array]]:
    stream = io.BytesIO()
    pickler = _FramePickler(stream)
    pickler.dump(value)
    return stream.getvalue(), pickler.arrays


class _FramePickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.arrays: list[Array] = []

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is not np.ndarray:
            return None
        self.arrays.append(value)
        return len(self.arrays) - 1


class _FrameUnpickler(pickle.Unpickler):
    def __init__(self, rest: bytes, arrays: Sequence[Array]) -> None:
        super().__init__(io.BytesIO(rest))
        self._arrays = arrays

    def persistent_load(self, position: int) -> Array:
        return self._arrays[position]


@lru_cache
def _place(
    *arrays: tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]],
) -> tuple[tuple[FrameRef, ...], int]:
    """Assign an offset to each array, given by dtype, shape and strides; return also the total.

    Cached, so that equal frames share one object, which is pickled once per message.
    """
    refs, offset = [], 0
    for dtype, shape, strides in arrays:
        refs.append(FrameRef(dtype, shape, dense(shape, strides, dtype.itemsize), offset))
        offset += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return tuple(refs), offset


def dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a copy without gaps that keeps the array's order of axes."""
    ours, step = [0] * len(shape), itemsize
    for axis in sorted(range(len(shape)), key=lambda axis: (abs(strides[axis]), -axis)):
        ours[axis] = step
        step *= shape[axis]
    return tuple(ours)


# An array over a region's memory, and its ``__array_interface__``.
DecodedFrame = tuple[Array, dict[str, Any]]

# How many unleased regions keep their memory, per environment.
SPARE = 2


class FrameLeases:
    """The caller's end of one worker's shelf; the worker extends the file ``descriptor``."""

    def __init__(self, num_envs: int) -> None:
        """Create an empty shelf for a worker with ``num_envs`` environments."""
        self.descriptor = anonymous_file(0)
        forbid_shrinking(self.descriptor)
        self._spare = SPARE * num_envs
        self._chunks: dict[int, mmap.mmap] = {}
        # All by the region's start: regions with their memory; the arrays last created over each;
        # the leased ones; and those to send back, the ones without memory first, since the last are
        # reused first.
        self._regions: dict[int, tuple[Region, memoryview]] = {}
        self._decoded: dict[int, tuple[Sequence[FrameRef], list[DecodedFrame]]] = {}
        self._leased: set[int] = set()
        self._returned: deque[int] = deque()
        self._end = weakref.finalize(self, os.close, self.descriptor)
        abandon_in_forks(self)
        notify_before_forks(self)

    def open(self, value: ShelvedFrame) -> Any:
        """Return the frame in a region to the caller.

        Raises:
            ValueError: A worker would not have written this.
        """
        reference, refs, rest = value
        start = reference if isinstance(reference, int) else reference.start
        if start in self._leased:
            raise ValueError(f"a region is still leased: {reference}")
        known = self._regions.get(start)
        if known is None:
            if isinstance(reference, int):
                raise ValueError(f"an unknown region: {reference}")
            known = self._map(reference)
        region, memory = known
        # A region usually receives the same kind of frame again.
        last, laid = self._decoded.get(start, ((), []))
        if last != refs:
            blocks = [array_at(memory, ref) for ref in refs]
            laid = [(block, block.__array_interface__) for block in blocks]
            self._decoded[start] = refs, laid
        self._leased.add(start)
        lease = _Lease(self, region)
        arrays = [np.asarray(Leased(lease, block, interface)) for block, interface in laid]
        return put_together(rest, arrays)

    def _map(self, region: Region) -> tuple[Region, memoryview]:
        start, size, chunk, chunk_size = region
        if chunk not in self._chunks:
            if os.fstat(self.descriptor).st_size < chunk + chunk_size:
                raise ValueError(f"a region beyond the end of the file: {region}")
            try:
                self._chunks[chunk] = mmap.mmap(self.descriptor, chunk_size, offset=chunk)
            except (OSError, OverflowError) as error:
                raise ValueError(f"a region cannot be mapped: {error}") from error
        mapped, begin = self._chunks[chunk], start - chunk
        if not 0 <= begin < begin + size <= len(mapped):
            raise ValueError(f"a region outside of its chunk: {region}")
        known = self._regions[start] = region, memoryview(mapped)[begin : begin + size]
        return known

    def end(self, region: Region) -> None:
        """End the lease of a region."""
        start = region.start
        try:
            self._leased.remove(start)  # at once, since another thread may be about to fork
        except KeyError:
            return  # a forked child may have it
        if len(self._regions) - len(self._leased) <= self._spare:
            self._returned.append(start)
            return
        if hasattr(mmap, "MADV_REMOVE"):
            with suppress(OSError, ValueError):  # only saves memory
                chunk = self._chunks[region.chunk]
                chunk.madvise(mmap.MADV_REMOVE, start - region.chunk, region.size)
        self._returned.appendleft(start)

    def give_back(self) -> list[int]:
        """Take out the starts of the regions that the worker may reuse."""
        regions = []
        while self._returned:  # other threads may append
            regions.append(self._returned.popleft())
        return regions

    def before_fork(self) -> None:
        """Never reuse the leased regions: a child process keeps its arrays over the same memory."""
        for start in [*self._leased]:
            with suppress(KeyError):  # its lease has just ended
                self._leased.remove(start)
                self._regions.pop(start, None)
                self._decoded.pop(start, None)

    def abandon(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; the memory lives as long as an array over it."""
        self._end()


class _Lease:
    """Ends the lease of a region when its last array is freed."""

    __slots__ = ("_leases", "_region")

    def __init__(self, leases: FrameLeases, region: Region) -> None:
        self._leases = leases
        self._region = region

    def __del__(self) -> None:
        self._leases.end(self._region)
