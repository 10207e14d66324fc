"""Memory, CPU time and waits for a core of processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True)
class CoreUse:
    """The use of cores by the main threads of processes, in total.

    Attributes:
        running: Microseconds on a core.
        waiting: Microseconds in which they were ready to run, but had no core.
        switches: Number of times that they got a core.
    """

    running: float
    waiting: float
    switches: float


def core_use(pids: Iterable[int], proc: Path = Path("/proc")) -> CoreUse | None:
    """Return the use of the cores so far; ``None`` if the system does not report it (not Linux)."""
    try:
        files = [(proc / str(pid) / "schedstat").read_text() for pid in pids]
    except OSError:
        return None
    rows = [[int(word) for word in file.split()] for file in files]
    running, waiting, switches = (sum(column) for column in zip(*rows, strict=True))
    # Linux without scheduling statistics writes zeros.
    return CoreUse(running / 1e3, waiting / 1e3, switches) if switches else None


def _busy(times: Any) -> float:
    return float(times.user + times.system)


def _tree() -> list[Any]:
    """Return this process and all its descendants, including the resource tracker."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]
