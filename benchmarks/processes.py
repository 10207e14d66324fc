"""What this process and its descendants use of the machine: memory, and time on its cores."""

from __future__ import annotations

from typing import Any

import psutil


def tree_memory() -> int:
    """Memory of this process and all its descendants, in bytes.

    On Linux this is the proportional set size: a page that processes share is counted once.
    Elsewhere it is what each has for itself alone.
    """
    total = 0
    for process in _tree():
        memory = process.memory_full_info()
        total += getattr(memory, "pss", memory.uss)
    return total


def descendants_time() -> float:
    """Seconds that the living descendants of this process have spent on cores so far."""
    return sum(_busy(process.cpu_times()) for process in _tree()[1:])


def others_time() -> float:
    """Seconds that all but this process and its living descendants have spent on cores so far."""
    ours = sum(_busy(process.cpu_times()) for process in _tree())
    return _busy(psutil.cpu_times()) - ours


def _busy(times: Any) -> float:
    return float(times.user + times.system)


def _tree() -> list[Any]:
    """This process and all its descendants, the resource tracker among them."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]
