"""Records of a run, and their way to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

# Grows when the JSON changes in a way that readers must know about.
FORMAT = 1

# The bounds: a core with one environment, a core with all, the same in all workers at once, and
# the first times the workers, which is computed, not measured.
BARE, LOOP, AT_ONCE, BOUND = "bare environment", "bare loop", "bare at once", "bare × workers"


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        seconds: Length of one slice of one system, after running in.
        repeats: Slices of each system.
        workers: Worker processes, and how often the bare environment is counted in the bound.
    """

    seconds: float = 0.5
    repeats: int = 5
    workers: int = 2


@dataclass(frozen=True)
class Row:
    """One system on one work.

    Attributes:
        system: Its name.
        rates: Steps of environments per second, a slice each, in the order of the repetitions.
    """

    system: str
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The median of the slices."""
        return median(self.rates)

    @property
    def spread(self) -> float:
        """Slowest to fastest slice, as a part of the median."""
        return spread(self.rates)


@dataclass(frozen=True)
class WorkResult:
    """All systems on one work.

    Attributes:
        work: Its name.
        rows: What was measured, the bound included.
        notes: What was left out, and why.
        idle_cores: Cores that all workers kept busy while they waited for their turn.
        other_cores: Cores that everything else on the machine kept busy meanwhile.
    """

    work: str
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    idle_cores: float = 0.0
    other_cores: float = 0.0

    @property
    def env_id(self) -> str:
        """The environment, or what else its name says before the number."""
        return self.work.rpartition(" ×")[0]

    @property
    def num_envs(self) -> int:
        """How many environments, by its name."""
        return int(self.work.rpartition(" ×")[2])

    def row(self, system: str) -> Row | None:
        """The row of a system, if it was measured."""
        return next((row for row in self.rows if row.system == system), None)

    def ratio(self, system: str, against: str) -> float | None:
        """How many times as fast one system is as another.

        It is the median over the repetitions of the ratio within each: what slows the machine
        for a while slows both.
        """
        ours, theirs = self.row(system), self.row(against)
        if ours is None or theirs is None:
            return None
        return median(a / b for a, b in zip(ours.rates, theirs.rates, strict=True))


@dataclass(frozen=True)
class StartupResult:
    """What it takes until environments are ready to step, each time in a fresh process.

    Attributes:
        work: Name of the work.
        workers: Worker processes.
        seconds: From before they are made until after their first reset, for each start.
        memory: Bytes that all processes hold together, the caller's too, for each start.
    """

    work: str
    workers: int
    seconds: tuple[float, ...]
    memory: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """An aim, and how it was met.

    Attributes:
        aim: What is compared, or what is limited.
        wanted: The factor to reach, or the limit to keep.
        measured: What it is, ``None`` where it could not be measured.
        met: Whether that is good enough, ``None`` where it could not be measured.
        unit: ``"×"`` for factors, else the limit's unit.
        at_most: Whether a factor is one to keep, not one to reach.
    """

    aim: str
    wanted: float
    measured: float | None
    met: bool | None
    unit: str = "×"
    at_most: bool = False

    @classmethod
    def on_ratio(
        cls, aim: str, wanted: float, measured: float | None, *, at_most: bool = False
    ) -> Verdict:
        """Hold a ratio against the factor to reach, or to keep."""
        met = None
        if measured is not None:
            met = measured <= wanted if at_most else measured >= wanted
        return cls(aim, wanted, measured, met, at_most=at_most)

    @classmethod
    def on_limit(cls, aim: str, limit: float, measured: float | None, unit: str) -> Verdict:
        """Hold what was measured against a limit that it is to stay below."""
        return cls(aim, limit, measured, None if measured is None else measured < limit, unit)

    @property
    def sign(self) -> str:
        """How what is measured has to compare with what is wanted."""
        if self.unit != "×":
            return "<"
        return "≤" if self.at_most else "≥"


@dataclass(frozen=True)
class Report:
    """A run of ``python -m benchmarks throughput``.

    Attributes:
        machine: What it ran on; see :func:`benchmarks.machine.describe_machine`.
        settings: How it was measured.
        works: What was measured.
        startup: The start-up, if it was measured.
        aims: The aims that concern what was measured.
    """

    machine: Mapping[str, str]
    settings: Settings
    works: tuple[WorkResult, ...] = ()
    startup: StartupResult | None = None
    aims: tuple[Verdict, ...] = ()

    def to_json(self) -> str:
        """Everything, with all slices, as JSON."""
        return to_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what :meth:`to_json` wrote."""
        data = json.loads(text)
        startup = data["startup"]
        return cls(
            machine=data["machine"],
            settings=Settings(**data["settings"]),
            works=tuple(_work(work) for work in data["works"]),
            startup=None if startup is None else StartupResult(**_tuples(startup)),
            aims=tuple(Verdict(**aim) for aim in data["aims"]),
        )


def to_json(fields: Mapping[str, Any]) -> str:
    """The fields of a run as JSON."""
    return json.dumps({"format": FORMAT, **fields}, indent=2, ensure_ascii=False) + "\n"


def spread(values: Sequence[float]) -> float:
    """Smallest to largest, as a part of the median."""
    return (max(values) - min(values)) / median(values)


def _work(data: dict[str, Any]) -> WorkResult:
    rows = [Row(**_tuples(row)) for row in data["rows"]]
    return WorkResult(**_tuples({**data, "rows": rows}))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
