"""Pinning the table where there is a GPU, once, until the table is gone."""

from __future__ import annotations

import gc
import multiprocessing
import sys
from itertools import pairwise
from mmap import PAGESIZE
from typing import Any

import numpy as np
import pytest

import agym
from agym.api.output import PORTABLE, pin
from agym.core.protocol.memory import Arena, Field
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of


class Cuda:
    """Stands for ``torch.cuda`` on a machine with a GPU, and keeps what it is asked for."""

    def __init__(self, error: int = 0, available: bool = True, usable: bool = True) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._error = error
        self._available = available
        self.usable = usable

    def is_available(self) -> bool:
        return self._available

    def cudart(self) -> Cuda:
        if not self.usable:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return self

    def synchronize(self) -> None:
        if not self.usable:
            raise RuntimeError("an illegal memory access was encountered")
        self.calls.append(("synchronize",))

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        self.calls.append(("register", address, size, flags))
        return self._error

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.calls.append(("unregister", address))
        return 0


def fields(size: int) -> dict[str, Field]:
    return {"x": (np.dtype(np.uint8), (size,))}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [1, 4096, 5000, 1 << 20])
def test_memory_is_whole_pages_of_its_own(size: int, shared: bool) -> None:
    """So that no page is registered twice, which CUDA refuses."""
    arenas = [Arena(fields(size), shared=shared) for _ in range(3)]
    spans = sorted((a.memory.ctypes.data, a.memory.nbytes) for a in arenas)
    for address, nbytes in spans:
        assert address % PAGESIZE == 0
        assert nbytes >= size
    for (address, nbytes), (following, _) in pairwise(spans):
        assert address + -(-nbytes // PAGESIZE) * PAGESIZE <= following
    for arena in arenas:
        (array,) = arena.arrays.values()
        array[:] = 7
        assert arena.memory[:size].tolist() == [7] * size
        arena.close()


def test_pinned_once_until_the_arena_is_gone() -> None:
    cuda = Cuda()
    arena = Arena(fields(4992))
    (array,) = arena.arrays.values()
    assert pin(arena, cuda)
    address = array.ctypes.data
    assert cuda.calls == [("register", address, 4992, PORTABLE)]
    del arena
    gc.collect()
    # Copies under way are waited for; the array goes on, in memory like any other.
    assert cuda.calls[1:] == [("synchronize",), ("unregister", address)]
    array[:] = 1


@pytest.mark.parametrize(
    ("cuda", "fails_later"),
    [
        (Cuda(available=False), False),
        (Cuda(error=1), False),
        (Cuda(usable=False), False),
        (Cuda(), True),
    ],
    ids=["no-gpu", "refused", "unusable", "fails-later"],
)
def test_a_gpu_that_cannot_be_used(
    cuda: Cuda, fails_later: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is unpinned, and nothing is printed."""
    arena = Arena(fields(5000))
    assert pin(arena, cuda) == fails_later
    cuda.usable = False
    del arena
    gc.collect()
    assert not [call for call in cuda.calls if call[0] != "register"]
    assert capfd.readouterr() == ("", "")


def test_a_forked_child_unpins_nothing() -> None:
    cuda = Cuda()
    arenas = [Arena(fields(5000))]
    assert pin(arenas[0], cuda)

    def drop() -> None:
        arenas.clear()
        gc.collect()
        sys.exit(len(cuda.calls))

    process = multiprocessing.get_context("fork").Process(target=drop, daemon=True)
    process.start()
    process.join()
    assert process.exitcode == len(cuda.calls) == 1
    process.close()


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_the_table_is_let_go_when_environments_are_closed(backend: str) -> None:
    """What closing lets go is what unpins; a batch that is still held does not keep it."""
    cuda = Cuda()
    with agym.make(Tally, 2, backend=backend, output="array", copy=False) as envs:
        envs.reset()
        assert pin(engine_of(envs).life.table.arena, cuda)
        observations = envs.step([1, 2]).observations
    del envs
    gc.collect()
    assert [call[0] for call in cuda.calls] == ["register", "synchronize", "unregister"]
    assert observations[:, 2].tolist() == [1, 2]


def test_what_torch_says_here_is_what_decides() -> None:
    """With the real torch: pinned exactly where it finds a GPU, and its tensors know it."""
    torch = pytest.importorskip("torch", reason="the extra `torch`")
    with agym.make(Tally, 2, output="torch", copy=False, backend="process") as envs:
        observations, _ = envs.reset()
        here = torch.cuda.is_available()
        assert (here and observations.is_pinned()) == here
        arena = Arena(fields(5000))
        assert pin(arena, torch.cuda) == here
