"""One block of memory, on the heap or shared between processes, cut into arrays.

Shared memory here has no name: it is an anonymous file whose descriptor is handed to the
workers. So no other user can open it, and nothing is left in ``/dev/shm`` however the
processes end: the kernel frees it with the last of them.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

# What an array holds: its dtype and shape.
Field = tuple[np.dtype[Any], tuple[int, ...]]

# Arrays begin on cache lines, so that two writers of neighbouring arrays do not disturb each other.
ALIGNMENT = 64


class Arena:
    """A block of zeroed memory.

    The memory lives as long as any array cut from it, also after :meth:`close`, which only
    gives the file descriptor back.
    """

    def __init__(self, size: int, *, shared: bool = False, descriptor: int | None = None) -> None:
        """Take ``size`` bytes: from the heap, as new shared memory, or from a descriptor.

        Args:
            size: Bytes.
            shared: Make it mappable by other processes.
            descriptor: Map this shared memory, made by another process, and own the descriptor.
        """
        self.size = max(size, ALIGNMENT)
        self.descriptor: int | None = descriptor
        if shared and descriptor is None:
            self.descriptor = anonymous_file(self.size)
        self._memory: mmap.mmap | np.ndarray[Any, Any]
        if self.descriptor is None:
            self._memory = _pages(self.size)
        else:
            self._memory = mmap.mmap(self.descriptor, self.size)

    def carve(self, fields: Mapping[str, Field]) -> dict[str, np.ndarray[Any, Any]]:
        """Lay arrays over the memory, in order."""
        arrays, offset = {}, 0
        for name, (dtype, shape) in fields.items():
            arrays[name] = np.ndarray(shape, dtype, buffer=self._memory, offset=offset)
            offset += _room(dtype, shape)
        return arrays

    @property
    def memory(self) -> np.ndarray[Any, Any]:
        """All of it as ``uint8[size]``, from the beginning of a page that nobody else uses."""
        return np.ndarray(self.size, np.uint8, buffer=self._memory)

    @staticmethod
    def size_of(fields: Mapping[str, Field]) -> int:
        """Bytes that :meth:`carve` needs for these arrays."""
        return sum(_room(dtype, shape) for dtype, shape in fields.values())

    def close(self) -> None:
        """Give the descriptor back. The mapping itself ends with its last array."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _pages(size: int) -> np.ndarray[Any, Any]:
    """Take whole pages of the heap, as a mapping would; ``uint8`` zeros."""
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    block = np.zeros(whole + mmap.PAGESIZE, np.uint8)
    start = -block.ctypes.data % mmap.PAGESIZE
    return block[start : start + whole]


def _room(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def anonymous_file(size: int) -> int:
    """Make shared memory of ``size`` zeroed bytes; gives its descriptor, which the caller owns."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("agym", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:  # macOS: a file that is unlinked before anybody can see it
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class Leased:
    """What NumPy keeps as the base of an array, its slices, and tensors over it."""

    __slots__ = ("__array_interface__", "_block", "_lease")

    def __init__(
        self, lease: object, block: np.ndarray[Any, Any], interface: dict[str, Any]
    ) -> None:
        self.__array_interface__ = interface
        self._block = block  # the memory lives as long
        self._lease = lease

    @classmethod
    def array(cls, lease: object, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An array over the same memory; the lease ends with the last one over it."""
        return np.asarray(cls(lease, block, block.__array_interface__))
