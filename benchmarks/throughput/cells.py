"""Cells of the grid: agym's own choice against every fixed choice and every peer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.reports.results import BARE, Verdict, WorkloadResult
from benchmarks.systems.base import System
from benchmarks.systems.baseline import Bare
from benchmarks.systems.peers import PEERS
from benchmarks.systems.runners import (
    AgymAuto,
    AgymOneProcess,
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
OTHERS: tuple[type[System], ...] = (
    GymnasiumSync, GymnasiumAsync, SB3Dummy, SB3Subproc, *PEERS,
)  # fmt: skip
SYSTEMS: tuple[type[System], ...] = (Bare, AgymAuto, *FIXED, *OTHERS)

# Targets against the best fixed choice; against the best peer; and against the best peer where the
# steps of a batch take more than LONG_SECONDS together.
FIXED_FACTOR, PEER_FACTOR, LONG_PEER_FACTOR, LONG_SECONDS = 0.95, 1.0, 1.5, 200e-6


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
        fixed: The best fixed choice.
        peer: The best peer.
        peer_factor: Required ratio against the best peer.
    """

    work: str
    step_seconds: float
    rate: float
    fixed: Best | None
    peer: Best | None
    peer_factor: float

    @classmethod
    def of(cls, work: WorkloadResult) -> Cell | None:
        """Return the cell of a result, ``None`` if it was not measured."""
        auto, bare = work.row(AUTO), work.row(BARE)
        if auto is None or bare is None:
            return None
        step_seconds = 1 / bare.rate
        long = work.num_envs * step_seconds > LONG_SECONDS
        return cls(
            work.work, step_seconds, auto.rate, _best(work, FIXED), _best(work, OTHERS),
            LONG_PEER_FACTOR if long else PEER_FACTOR,
        )  # fmt: skip

    def verdicts(self) -> Iterator[Verdict]:
        for kind, best, factor in (
            ("the best fixed choice", self.fixed, FIXED_FACTOR),
            ("the best peer", self.peer, self.peer_factor),
        ):
            which = "" if best is None else f", {best.system}"
            target = f"{self.work}: {AUTO} against {kind}{which}"
            yield Verdict.on_ratio(target, factor, None if best is None else best.ratio)


def _best(work: WorkloadResult, systems: Sequence[type[System]]) -> Best | None:
    ratios = {kind.name: work.ratio(AUTO, kind.name) for kind in systems}
    found = [Best(name, ratio) for name, ratio in ratios.items() if ratio is not None]
    return min(found, key=lambda best: best.ratio, default=None)


def judge_cells(workloads: Sequence[WorkloadResult]) -> tuple[Verdict, ...]:
    """Return the verdicts on a grid, two for each measured cell."""
    cells = [cell for work in workloads if (cell := Cell.of(work)) is not None]
    return tuple(verdict for cell in cells for verdict in cell.verdicts())
