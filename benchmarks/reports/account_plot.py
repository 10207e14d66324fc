"""Chart of an account: for each slice a bar of the parts, next to a bar of the bare loops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agym.core._system.extras import require
from benchmarks.reports.plot import OTHERS
from benchmarks.reports.tables import machine_line
from benchmarks.throughput.account_parts import BARE_PART, Account

# One per part.
COLORS = "#93c5fd", "#2563eb", "#b91c1c", "#ea580c", "#eab308", "#16a34a", "#9333ea"

# Heights of both bars of a slice, and the distance of their middles.
HEIGHT, BARE_HEIGHT, DISTANCE = 0.5, 0.2, 0.37


def save_account_plot(account: Account, path: Path) -> None:
    """Draw all slices into a PNG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    slices, report = account.slices, account.report
    figure = require("matplotlib.figure", "plot").Figure(
        figsize=(9.6, 0.5 * len(slices) + 1.8), layout="constrained"
    )
    panel = figure.subplots()
    places = [*range(1, 1 + len(slices))]
    bare = [each.parts[BARE_PART] for each in slices]
    below = [place + DISTANCE for place in places]
    panel.barh(below, bare, BARE_HEIGHT, color=OTHERS, label="bare loops")
    drawn = [widths(each.parts) for each in slices]
    ends = [0.0] * len(slices)
    for name, color in zip(slices[0].parts, COLORS, strict=True):
        lengths = [each[name] for each in drawn]
        panel.barh(places, lengths, HEIGHT, ends, color=color, label=name)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    for place, end, each in zip(places, ends, slices, strict=True):
        panel.text(end, place, f" {each.ratio:.2f}", va="center", fontsize=8)
    panel.set_yticks(places, [f"slice {place}" for place in places])
    panel.set_ylabel("slices of the run", fontsize=8)
    panel.invert_yaxis()
    panel.margins(x=0.06)
    panel.set_xlabel("µs per batch (at the end of a bar: speed relative to bare loops)", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.spines[["top", "right"]].set_visible(False)
    pinned = ", pinned" if account.pin else ""
    panel.set_title(f"{report.workloads[0].work}, {report.settings.workers} workers{pinned}")
    figure.legend(loc="outside right upper", fontsize=8)
    figure.supxlabel(machine_line(report.machine), fontsize=6, wrap=True)
    figure.savefig(path, format="png", dpi=150)


def widths(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the width of each part; a negative part shortens the bare part instead."""
    drawn = {name: max(0.0, part) for name, part in parts.items()}
    drawn[BARE_PART] += sum(min(0.0, part) for part in parts.values())
    return drawn
