"""Charts: time per step against the number of games, and steps per second of twins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agym.core._system.extras import require
from benchmarks.reports.results import Report
from benchmarks.reports.tables import machine_line

MARKERS = "xv.osD^"
COLOURS = "#b9bdc6", "#8d94a3", "#7cc4bf", "#c9a227", "#0b7a75"  # of save_twins_plot's systems


def save_pong_plot(report: Report, path: Path) -> None:
    """Draw a report into a PNG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = require("matplotlib.figure", "plot").Figure(figsize=(7.2, 5.2), layout="constrained")
    panel = figure.subplots()
    names = list(dict.fromkeys(row.system for work in report.workloads for row in work.rows))
    for i, name in enumerate(names):
        points = [
            (work.num_envs, 1e6 / row.rate)
            for work in report.workloads
            if (row := work.row(name)) is not None
        ]
        style = "--" if name.startswith("ALE") else "-"
        panel.plot(*zip(*points, strict=True), style, marker=MARKERS[i % len(MARKERS)], label=name)
    panel.set_xscale("log", base=2)
    counts = [work.num_envs for work in report.workloads]
    panel.set_xticks(counts, [f"{count:,}" for count in counts])
    panel.set_yscale("log")
    panel.set_xlabel("games")
    panel.set_ylabel("µs per step of a game")
    panel.set_title(report.workloads[0].env_id if report.workloads else "")
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    if names:
        panel.legend(fontsize=8)
    figure.supxlabel(machine_line(report.machine), fontsize=6, wrap=True)
    figure.savefig(path, format="png", dpi=150)


def save_twins_plot(report: Report, path: Path, names: Sequence[str]) -> None:
    """Draw the steps per second of some systems into a PNG file, a group of bars per workload.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = require("matplotlib.figure", "plot").Figure(figsize=(9, 4.2), layout="constrained")
    panel = figure.subplots()
    width = 0.8 / len(names)
    for k, name in enumerate(names):
        rows = [(i, work.row(name)) for i, work in enumerate(report.workloads)]
        bars = [(i, row.rate) for i, row in rows if row is not None]
        places = [i + (k - (len(names) - 1) / 2) * width for i, _ in bars]
        colour = COLOURS[k % len(COLOURS)]
        panel.bar(places, [rate for _, rate in bars], width, color=colour, label=name)
    works = [f"{w.env_id.rpartition('-')[0]} ×{w.num_envs}" for w in report.workloads]
    panel.set_xticks(range(len(works)), works, rotation=25, ha="right", fontsize=8)
    panel.set_yscale("log")
    panel.set_ylabel("environment steps per second")
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.supxlabel(machine_line(report.machine), fontsize=6, wrap=True)
    figure.savefig(path, format="png", dpi=150)
