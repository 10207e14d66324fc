"""Memory and CPU time of this process and its descendants."""

from __future__ import annotations

from typing import Any

import psutil


def tree_memory() -> int:
    """Return the memory of this process and all its descendants, in bytes.

    On Linux this is the proportional set size, which counts a shared page once; elsewhere the
    unique set size.
    """
    total = 0
    for process in _tree():
        memory = process.memory_full_info()
        total += getattr(memory, "pss", memory.uss)
    return total


def descendants_time() -> float:
    """Return the CPU seconds of this process's living descendants so far."""
    return sum(_busy(process.cpu_times()) for process in _tree()[1:])


def others_time() -> float:
    """Return the CPU seconds of all processes but this one and its living descendants so far."""
    ours = sum(_busy(process.cpu_times()) for process in _tree())
    return _busy(psutil.cpu_times()) - ours


def _busy(times: Any) -> float:
    return float(times.user + times.system)


def _tree() -> list[Any]:
    """Return this process and all its descendants, including the resource tracker."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]
