"""Records of a run, with JSON output and input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

# Version of the JSON, increased when readers must know about a change.
FORMAT = 1

# The bounds: one core with one environment; one core with all; the same in all workers at once; and
# the first times the number of workers, which is computed.
BARE, LOOP, AT_ONCE, BOUND = "bare environment", "bare loop", "bare at once", "bare × workers"


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        seconds: Seconds per slice of one system, after its warm-up.
        repeats: Number of slices of each system.
        workers: Also the factor of the bare environment's rate in the bound.
        limit: Seconds per workload, with making and closing. Until then, more slices are taken
            where those so far decide nothing.
    """

    seconds: float = 0.5
    repeats: int = 5
    workers: int = 2
    limit: float = 0.0


@dataclass(frozen=True)
class Row:
    """One system on one workload.

    Attributes:
        system: Its name.
        rates: Environment steps per second, one per slice.
        choice: The choice, if the system makes one.
    """

    system: str
    rates: tuple[float, ...]
    choice: str = ""

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def spread(self) -> float:
        """Difference of the fastest and slowest slice, relative to the median."""
        return spread(self.rates)


@dataclass(frozen=True)
class WorkloadResult:
    """All systems on one workload.

    Attributes:
        work: Name of the workload.
        rows: The measurements, including the bound.
        notes: The systems that were left out, with reasons.
        idle_cores: Cores that all workers kept busy while they waited for their turn.
        other_cores: Cores that other programs kept busy during the measurement.
    """

    work: str
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    idle_cores: float = 0.0
    other_cores: float = 0.0

    @property
    def env_id(self) -> str:
        """The part of the name before the number: the environment."""
        return self.work.rpartition(" ×")[0]

    @property
    def num_envs(self) -> int:
        return int(self.work.rpartition(" ×")[2])

    def row(self, system: str) -> Row | None:
        return next((row for row in self.rows if row.system == system), None)

    def ratio(self, system: str, against: str) -> float | None:
        """Return the speed of one system relative to another.

        It is the median of the ratios within each repetition, because a disturbance of the machine
        slows both systems.
        """
        ratios = self.ratios(system, against)
        return median(ratios) if ratios else None

    def ratios(self, system: str, against: str) -> list[float]:
        """Return the ratio of each repetition; none if one of the systems was not measured."""
        ours, theirs = self.row(system), self.row(against)
        if ours is None or theirs is None:
            return []
        return [a / b for a, b in zip(ours.rates, theirs.rates, strict=True)]


@dataclass(frozen=True)
class StartupResult:
    """Cost of starting environments, each time in a fresh process.

    Attributes:
        work: Name of the workload.
        workers: Number of worker processes.
        seconds: From before they are made until after their first reset, for each start.
        memory: Memory of all processes together in bytes, including the caller, for each start.
    """

    work: str
    workers: int
    seconds: tuple[float, ...]
    memory: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """A target, and whether it was met.

    Attributes:
        target: Description of the target.
        wanted: Factor to reach, or limit to keep.
        measured: The measured value, ``None`` if not measured.
        met: Whether the value is good enough, ``None`` if not measured.
        unit: ``"×"`` for factors, else the limit's unit.
        at_most: Whether a factor is an upper bound instead of a lower one.
    """

    target: str
    wanted: float
    measured: float | None
    met: bool | None
    unit: str = "×"
    at_most: bool = False

    @classmethod
    def on_ratio(
        cls, target: str, wanted: float, measured: float | None, *, at_most: bool = False
    ) -> Verdict:
        """Compare a ratio with a factor to reach, or not to exceed."""
        met = None
        if measured is not None:
            met = measured <= wanted if at_most else measured >= wanted
        return cls(target, wanted, measured, met, at_most=at_most)

    @classmethod
    def on_limit(cls, target: str, limit: float, measured: float | None, unit: str) -> Verdict:
        """Compare a value with a limit that it must stay below."""
        return cls(target, limit, measured, None if measured is None else measured < limit, unit)


@dataclass(frozen=True)
class Report:
    """A run of ``python -m benchmarks throughput``.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        settings: How it was measured.
        workloads: Results per workload.
        startup: Result of the start-up, if measured.
        targets: Verdicts on the targets.
    """

    machine: Mapping[str, str]
    settings: Settings
    workloads: tuple[WorkloadResult, ...] = ()
    startup: StartupResult | None = None
    targets: tuple[Verdict, ...] = ()

    def to_json(self) -> str:
        return to_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Report:
        data = json.loads(text)
        startup = data["startup"]
        return cls(
            machine=data["machine"],
            settings=Settings(**data["settings"]),
            workloads=tuple(_work(work) for work in data["workloads"]),
            startup=None if startup is None else StartupResult(**_tuples(startup)),
            targets=tuple(Verdict(**target) for target in data["targets"]),
        )


def to_json(fields: Mapping[str, Any]) -> str:
    """Return the fields of a run as JSON."""
    return json.dumps({"format": FORMAT, **fields}, indent=2, ensure_ascii=False) + "\n"


def spread(values: Sequence[float]) -> float:
    """Return the difference of the largest and smallest value, relative to the median."""
    return (max(values) - min(values)) / median(values)


def _work(data: dict[str, Any]) -> WorkloadResult:
    rows = [Row(**_tuples(row)) for row in data["rows"]]
    return WorkloadResult(**_tuples({**data, "rows": rows}))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
