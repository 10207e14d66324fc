"""Frames: what ``render`` returns, handed over so that the environment may reuse its arrays.

Within one process that is a copy. From a worker process, arrays go through a *shelf*: a file in
shared memory, cut into regions. A region takes what one ``render`` of one environment returned, one
picture or a list of many, each in the order in which it lies in memory: a picture of pygame's is
often a transposed view, whose copy to C order takes longer than the drawing. The caller has a
*lease* of the region, no copy::

    worker                                shared memory                        caller
    keep(frame) --- copy -------------->  [region] [region]  ----- lease ----> array
    take_back(regions) <--- with the next render --- its last array, slice or tensor is gone

Regions have sizes of powers of two and are reused, the latest first, so that frames whose size
changes, and environments with different ones, need nothing more. What a region does not use of its
size has an address but takes no memory.
"""

from __future__ import annotations

import fcntl
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
from agym.protocol.copying import copy_value, is_plain
from agym.protocol.memory import Leased, anonymous_file
from agym.protocol.typing import Array

# Arrays of fewer bytes in all travel quicker in the message.
LEAST_BYTES = 4096

# Addresses that are mapped at first; each further mapping, which takes a descriptor, doubles them.
CHUNK_BYTES = 64 * 1024 * 1024

ALIGNMENT = 64


class Region(NamedTuple):
    """A part of a shelf.

    Attributes:
        start: Where it begins in the file, by which it is known.
        size: Its size, a power of two.
        chunk: Where the mapping begins that it is in.
        chunk_size: Size of that.
    """

    start: int
    size: int
    chunk: int
    chunk_size: int


class FrameRef(NamedTuple):
    """An array in a region: its dtype, shape and strides, and where it begins."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class ShelvedFrame(NamedTuple):
    """A value whose arrays lie in a region.

    Attributes:
        region: Which; its start alone if the caller knows it.
        arrays: The arrays.
        rest: The value without them, pickled; persistent ids are their positions. ``None`` if the
            value is the one array.
    """

    region: Region | int
    arrays: Sequence[FrameRef]
    rest: bytes | None


class Frames(Protocol):
    """Who takes frames from a host."""

    def keep(self, frame: Any) -> Any:
        """Make a value that no environment changes any more."""

    def take_back(self, regions: Iterable[int]) -> None:
        """The caller needs these no more, which are known by their starts."""


class OwnFrames:
    """Copies, for a caller in this process."""

    def keep(self, frame: Any) -> Any:
        """Copy it, in the order in which it lies in memory."""
        return copy_value(frame)

    def take_back(self, regions: Iterable[int]) -> None:
        """Nothing was lent."""


class FrameShelf:
    """A worker's end of a shelf, which cuts it into regions and fills these."""

    def __init__(self, descriptor: int) -> None:
        """Use an empty file that the caller made; its descriptor must stay open."""
        self._descriptor = descriptor
        # By start: the size and the memory of each region; and the starts of those to be reused,
        # by size.
        self._regions: dict[int, tuple[int, memoryview]] = {}
        self._free: dict[int, list[int]] = {}
        # Size of the file; the chunk that is being cut up, and how far.
        self._file_size = 0
        self._chunk = memoryview(b"")
        self._chunk_start = self._cut = 0

    def keep(self, frame: Any) -> Any:
        """Put the arrays of a value into a region; what has none to speak of stays as it is."""
        if type(frame) is np.ndarray and not frame.dtype.hasobject:
            rest, arrays = None, [frame]
        elif is_plain(frame):
            rest, arrays = _take_apart(frame)
        else:
            return frame
        placed, size = _place(*[(array.dtype, array.shape, array.strides) for array in arrays])
        if size < LEAST_BYTES:
            return frame
        region, memory = self._take(size)
        for array, place in zip(arrays, placed, strict=True):
            array_at(memory, place)[...] = array
        return ShelvedFrame(region, placed, rest)

    def take_back(self, regions: Iterable[int]) -> None:
        """Reuse these, the last one first."""
        for start in regions:
            self._free.setdefault(self._regions[start][0], []).append(start)

    def _take(self, size: int) -> tuple[Region | int, memoryview]:
        size = max(mmap.ALLOCATIONGRANULARITY, 1 << (size - 1).bit_length())
        free = self._free.get(size)
        if free:
            start = free.pop()
            return start, self._regions[start][1]
        if self._cut + size > len(self._chunk):
            self._grow(size)
        start, memory = self._chunk_start + self._cut, self._chunk[self._cut : self._cut + size]
        self._cut += size
        self._regions[start] = size, memory
        return Region(start, size, self._chunk_start, len(self._chunk)), memory

    def _grow(self, size: int) -> None:
        size = max(CHUNK_BYTES, self._file_size, size)
        start, self._file_size = self._file_size, self._file_size + size
        os.ftruncate(self._descriptor, self._file_size)
        self._chunk = memoryview(mmap.mmap(self._descriptor, size, offset=start))
        self._chunk_start, self._cut = start, 0


def array_at(memory: memoryview, place: FrameRef) -> Array:
    """Lay an array over its place in a region's memory.

    Raises:
        ValueError: It is not within that.
    """
    dtype, shape, strides, offset = place
    return np.ndarray(shape, dtype, memory, offset, strides)


def put_together(rest: bytes | None, arrays: Sequence[Array]) -> Any:
    """Undo the taking apart of a value."""
    return arrays[0] if rest is None else _FrameUnpickler(rest, arrays).load()


def _take_apart(value: Any) -> tuple[bytes, list[Array]]:
    """Pickle a plain value without its arrays."""
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
    """Find a place for each array, by its dtype, shape and strides; and the size of all.

    Frames of one kind have one and the same places, which are pickled once per message then.
    """
    placed, offset = [], 0
    for dtype, shape, strides in arrays:
        placed.append(FrameRef(dtype, shape, dense(shape, strides, dtype.itemsize), offset))
        offset += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return tuple(placed), offset


def dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of a copy without gaps, whose axes lie in memory in the order of the array's."""
    ours, step = [0] * len(shape), itemsize
    for axis in sorted(range(len(shape)), key=lambda axis: (abs(strides[axis]), -axis)):
        ours[axis] = step
        step *= shape[axis]
    return tuple(ours)


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
        self._laid: dict[int, tuple[Sequence[FrameRef], list[Laid]]] = {}
        self._leased: set[int] = set()
        self._returned: deque[int] = deque()
        self._end = weakref.finalize(self, os.close, self.descriptor)
        abandon_in_forks(self)
        notify_before_forks(self)

    def open(self, value: ShelvedFrame) -> Any:
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

    def before_fork(self) -> None:
        """A child process has the same arrays over the same memory: it is theirs for ever."""
        for start in [*self._leased]:
            self._leased.discard(start)
            self._regions.pop(start, None)
            self._laid.pop(start, None)

    def abandon(self) -> None:
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
