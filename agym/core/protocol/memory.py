"""One block of memory, on the heap or shared between processes, divided into arrays.

Shared memory has no name; its descriptor is passed to the workers. No other user can open it, and
nothing remains in ``/dev/shm`` however the processes end: the kernel frees it with the last of
them.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from agym.core._system.platform import shared_memory

# Dtype and shape of an array.
Field = tuple[np.dtype[Any], tuple[int, ...]]

# Arrays start on cache lines, which avoids false sharing between writers of adjacent arrays.
ALIGNMENT = 64


class Arena:
    """A block of zeroed memory.

    The memory lives as long as any array in it, even after :meth:`close`, which only closes the
    file descriptor.

    Attributes:
        arrays: Its arrays by name.
    """

    def __init__(
        self, fields: Mapping[str, Field], *, shared: bool = False, descriptor: int | None = None
    ) -> None:
        """Allocate arrays: on the heap, as new shared memory, or from a descriptor.

        A descriptor refers to memory that another process shared; the arena owns and closes it.
        """
        self.size = max(sum(map(_room, fields.values())), ALIGNMENT)
        self.descriptor: int | None = descriptor
        if shared and descriptor is None:
            self.descriptor = shared_memory(self.size)
        self._memory: mmap.mmap | np.ndarray[Any, Any]
        if self.descriptor is None:
            self._memory = _pages(self.size)
        else:
            self._memory = mmap.mmap(self.descriptor, self.size)
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        offset = 0
        for name, (dtype, shape) in fields.items():
            self.arrays[name] = np.ndarray(shape, dtype, buffer=self._memory, offset=offset)
            offset += _room((dtype, shape))

    @property
    def memory(self) -> np.ndarray[Any, Any]:
        """The whole memory as ``uint8[size]``, aligned to a page and alone on its pages."""
        return np.ndarray(self.size, np.uint8, buffer=self._memory)

    def close(self) -> None:
        """Close the descriptor. The mapping itself ends with its last array."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _pages(size: int) -> np.ndarray[Any, Any]:
    """Allocate whole pages of the heap, like a mapping; ``uint8`` zeros."""
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    block = np.zeros(whole + mmap.PAGESIZE, np.uint8)
    start = -block.ctypes.data % mmap.PAGESIZE
    return block[start : start + whole]


def _room(field: Field) -> int:
    dtype, shape = field
    size = math.prod(shape) * dtype.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


class Leased:
    """The base that NumPy keeps for an array, its slices, and tensors over it."""

    __slots__ = ("__array_interface__", "_block", "_lease")

    def __init__(self, lease: object, block: np.ndarray[Any, Any]) -> None:
        self.__array_interface__ = block.__array_interface__
        self._block = block  # keeps the memory alive
        self._lease = lease

    @classmethod
    def array(cls, lease: object, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return an array over the same memory; the lease ends with the last such array."""
        return np.asarray(cls(lease, block))
