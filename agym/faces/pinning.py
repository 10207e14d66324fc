"""Pinning: the slot table locked in memory, from where CUDA copies by itself.

``tensor.to("cuda", non_blocking=True)`` goes on beside the caller only if the tensor lies in pinned
memory. Torch pins what it allocates, but the table is not torch's: so it is registered with CUDA as
it is, once, and stays so until it is let go.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Any

from agym.core.arena import Arena

# For every GPU, not only the current one (cudaHostRegisterPortable).
PORTABLE = 1


def pin(arena: Arena, cuda: Any) -> bool:
    """Pin the memory of an arena until the arena is gone; arrays over it may live on, unpinned.

    Args:
        arena: The memory.
        cuda: The module ``torch.cuda``.

    Returns:
        Whether it is pinned: not without a GPU, nor where CUDA refuses, which does no harm.
    """
    if not cuda.is_available():
        return False
    try:
        runtime = cuda.cudart()
    except RuntimeError:  # this process was forked from one that uses the GPU, or may not use it
        return False
    memory = arena.memory
    address = memory.ctypes.data
    if int(runtime.cudaHostRegister(address, memory.nbytes, PORTABLE)):
        return False
    # The arena goes before its memory does. With the process all ends by itself.
    weakref.finalize(arena, _unpin, cuda, address, os.getpid()).atexit = False
    return True


def _unpin(cuda: Any, address: int, pid: int) -> None:
    if os.getpid() != pid:
        return  # a forked child has a copy of the arena, and no CUDA
    with suppress(RuntimeError):  # a GPU that failed, which is told where it is used
        cuda.synchronize()  # copies from it that are under way
        cuda.cudart().cudaHostUnregister(address)
