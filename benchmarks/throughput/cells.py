"""Cells of the grid: agym's own choice against every fixed choice and every peer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.reports.results import AT_ONCE, BARE, LOOP, Verdict, WorkloadResult
from benchmarks.systems.base import System
from benchmarks.systems.baseline import Bare, BareAtOnce, BareLoop
from benchmarks.systems.runners import (
    AgymAuto,
    AgymOneProcess,
    AgymOther,
    AgymProcess,
    AgymSerial,
    AgymThread,
    AgymThreads,
    GymnasiumAsync,
    GymnasiumSync,
    SB3Dummy,
    SB3Subproc,
)

AUTO = AgymAuto.name
FIXED: tuple[type[System], ...] = (
    AgymSerial, AgymOneProcess, AgymProcess, AgymThread, AgymThreads,
)  # fmt: skip
OTHERS: tuple[type[System], ...] = (GymnasiumSync, GymnasiumAsync, SB3Dummy, SB3Subproc)
SYSTEMS: tuple[type[System], ...] = (Bare, BareLoop, BareAtOnce, AgymAuto, *FIXED, *OTHERS)

# Targets against the best fixed choice, and against the best peer.
FIXED_FACTOR, PEER_FACTOR = 0.95, 1.0

# The target against the best peer if a batch takes ``LONG_SECONDS`` on one core, and all cores
# together are measured to be more than ``LONG_CORES`` times as fast.
LONG_PEER_FACTOR, LONG_SECONDS, LONG_CORES = 1.3, 1e-3, 1.4

# While another program keeps one core busy, against the best fixed choice.
BUSY_FIXED_FACTOR = 0.9


@dataclass(frozen=True)
class Best:
    """The best of several systems; ``ratio`` is the speed of agym's own choice relative to it."""

    system: str
    ratio: float


@dataclass(frozen=True)
class Cell:
    """Result of one cell; ``fixed`` and ``peer`` are ``None`` if not measured.

    Attributes:
        work: Name of the workload.
        step_seconds: Seconds per step of the bare environment.
        rate: Steps per second of agym's own choice.
        choice: agym's choice.
        cores: How many times faster the loops in all workers together are than one loop.
        fixed: The best fixed choice.
        peer: The best peer.
        other: The choice of another checkout; ``None`` without one.
        fixed_factor: Required ratio against the best fixed choice.
        peer_factor: Required ratio against the best peer.
    """

    work: str
    step_seconds: float
    rate: float
    choice: str
    cores: float
    fixed: Best | None
    peer: Best | None
    other: Best | None
    fixed_factor: float
    peer_factor: float

    @classmethod
    def of(cls, work: WorkloadResult, *, busy: bool = False) -> Cell | None:
        """Return the cell of a result, ``None`` if it was not measured.

        Args:
            work: The result.
            busy: Another program kept a core busy.
        """
        auto, bare, loop = work.row(AUTO), work.row(BARE), work.row(LOOP)
        if auto is None or bare is None:
            return None
        cores = work.ratio(AT_ONCE, LOOP) or 1.0
        long = loop is not None and work.num_envs / loop.rate >= LONG_SECONDS
        return cls(
            work.work, 1 / bare.rate, auto.rate, auto.choice, cores,
            _best(work, FIXED), _best(work, OTHERS), _other(work),
            BUSY_FIXED_FACTOR if busy else FIXED_FACTOR,
            LONG_PEER_FACTOR if long and cores > LONG_CORES and not busy else PEER_FACTOR,
        )  # fmt: skip

    def verdicts(self) -> Iterator[Verdict]:
        found = [
            ("the best fixed choice", self.fixed, self.fixed_factor),
            ("the best peer", self.peer, self.peer_factor),
        ]
        if self.other is not None:
            found.append(("the other auto", self.other, self.fixed_factor))
        for kind, best, factor in found:
            which = "" if best is None else f", {best.system}"
            target = f"{self.work}: {AUTO} against {kind}{which}"
            yield Verdict.on_ratio(target, factor, None if best is None else best.ratio)


def undecided(work: WorkloadResult, *, busy: bool = False) -> bool:
    """Return whether a target lies between the quartiles of a cell's repetitions."""
    cell = Cell.of(work, busy=busy)
    if cell is None:
        return False
    pairs = [(cell.fixed, cell.fixed_factor), (cell.peer, cell.peer_factor)]
    systems = [(best.system, factor) for best, factor in pairs if best is not None]
    if cell.other is not None:
        systems.append((AgymOther.name, cell.fixed_factor))
    for system, factor in systems:
        ratios = sorted(work.ratios(AUTO, system))
        if ratios[len(ratios) // 4] < factor <= ratios[len(ratios) * 3 // 4]:
            return True
    return False


def _best(work: WorkloadResult, systems: Sequence[type[System]]) -> Best | None:
    rows = [row for kind in systems if (row := work.row(kind.name)) is not None]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.rate)
    ratio = work.ratio(AUTO, best.system)
    return None if ratio is None else Best(best.system, ratio)


def _other(work: WorkloadResult) -> Best | None:
    row, ratio = work.row(AgymOther.name), work.ratio(AUTO, AgymOther.name)
    return None if row is None or ratio is None else Best(row.choice, ratio)


def judge_cells(workloads: Sequence[WorkloadResult], *, busy: bool = False) -> tuple[Verdict, ...]:
    """Return the verdicts on a grid, two for each measured cell."""
    cells = [cell for work in workloads if (cell := Cell.of(work, busy=busy)) is not None]
    return tuple(verdict for cell in cells for verdict in cell.verdicts())
