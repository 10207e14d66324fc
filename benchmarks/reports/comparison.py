"""Measurements and their ideals: records, tables and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from benchmarks.reports.results import Verdict, spread, to_json
from benchmarks.reports.tables import machine_line, ratio_cell

TARGETS = "Targets, for two cores"

# Titles must fit over their tables.
MIN_WIDTH = 84


@dataclass(frozen=True)
class Compared:
    """A measurement with its ideals, one value per repetition; a row may have no ideal."""

    name: str
    values: tuple[float, ...]
    ideals: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def ratio(self) -> float | None:
        """Median of the ratio within each repetition."""
        if not self.ideals:
            return None
        return median(a / b for a, b in zip(self.values, self.ideals, strict=True))


@dataclass(frozen=True)
class Comparison:
    """A run of a command that compares with an ideal.

    Attributes:
        title: The measurement, and its conditions.
        unit: Unit of all values and ideals.
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        settings: Options of the command.
        rows: The measurements.
        notes: Sentences for the reader, without a full stop.
        targets: Verdicts on the targets.
    """

    title: str
    unit: str
    machine: Mapping[str, str]
    settings: Mapping[str, Any]
    rows: tuple[Compared, ...]
    notes: tuple[str, ...] = ()
    targets: tuple[Verdict, ...] = ()

    def to_json(self) -> str:
        """Return everything, with all repetitions, as JSON."""
        return to_json(asdict(self))


def show_comparison(comparison: Comparison) -> RenderableType:
    """Return the tables of a run."""
    notes = (f"{note}." for note in comparison.notes)
    table = Table(
        title=comparison.title,
        caption="\n".join([machine_line(comparison.machine), *notes]),
        caption_justify="left",
        min_width=MIN_WIDTH,
    )
    table.add_column("measured", no_wrap=True)
    for name in (comparison.unit, "spread", "ideal", "ratio"):
        table.add_column(name, justify="right")
    for row in comparison.rows:
        table.add_row(
            row.name,
            f"{row.value:,.1f}" if row.value >= 10 else f"{row.value:.2f}",
            f"{spread(row.values):.0%}",
            f"{median(row.ideals):,.1f}" if row.ideals else "–",
            ratio_cell(row.ratio),
        )
    if not comparison.rows:
        table.add_row("nothing")
    return table
