"""Blocks of memory, on the heap and shared."""

from __future__ import annotations

import gc

import numpy as np
import psutil
import pytest

from agym.core.protocol.memory import ALIGNMENT, Arena, Field

FIELDS: dict[str, Field] = {
    "a": (np.dtype(np.uint8), (3,)),
    "b": (np.dtype(np.float64), (2, 5)),
    "empty": (np.dtype(np.int32), (0, 4)),
    "scalar": (np.dtype(np.int16), ()),
}


def descriptors() -> int:
    return psutil.Process().num_fds()


@pytest.mark.parametrize("shared", [False, True])
def test_arrays_are_zeroed_aligned_and_apart(shared: bool) -> None:
    arena = Arena(FIELDS, shared=shared)
    arrays = arena.arrays
    for name, (dtype, shape) in FIELDS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (dtype, shape)
        assert not arrays[name].any()
    starts = [arrays[name].ctypes.data for name in ("a", "b", "scalar")]
    assert all((start - starts[0]) % ALIGNMENT == 0 for start in starts)
    arrays["a"][:] = 255
    arrays["scalar"][...] = -1
    assert not arrays["b"].any()
    arrays["b"][:] = 7
    assert arrays["a"].tolist() == [255] * 3
    assert arrays["scalar"] == -1
    arena.close()


def test_the_memory_lives_as_long_as_its_arrays() -> None:
    gc.collect()
    before = descriptors()
    arena = Arena(FIELDS, shared=True)
    array = arena.arrays["b"]
    arena.close()
    arena.close()
    assert arena.descriptor is None
    del arena
    array[:] = 4
    assert array.sum() == 40
    del array
    assert descriptors() == before
