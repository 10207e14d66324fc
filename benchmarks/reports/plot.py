"""A chart of a report: a panel per workload, a bar per system, the bound as a line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from agym.core._system.extras import require
from benchmarks.reports.results import AT_ONCE, BARE, BOUND, Report, WorkloadResult
from benchmarks.reports.tables import machine_line

COLUMNS = 2
OURS, OTHERS, LIMIT = "#2563eb", "#9ca3af", "#b91c1c"


def save_plot(report: Report, path: Path) -> None:
    """Draw all measured workloads into a PNG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "plot")
    workloads = [work for work in report.workloads if work.rows]
    columns = max(1, min(COLUMNS, len(workloads)))
    rows = max(1, math.ceil(len(workloads) / columns))
    figure = figure_module.Figure(figsize=(6.4 * columns, 2.9 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for panel, work in zip(panels, workloads, strict=False):
        _draw(panel, work)
    for panel in list(panels)[len(workloads) :]:
        panel.set_axis_off()
    workers = report.settings.workers
    figure.suptitle(f"Steps of environments per second, {workers} workers (dashed: {BOUND})")
    figure.supxlabel(machine_line(report.machine), fontsize=6, wrap=True)
    figure.savefig(path, format="png", dpi=150)


def _draw(panel: Any, work: WorkloadResult) -> None:
    """Draw one workload: medians as bars, slowest and fastest slice as whiskers."""
    rows = [row for row in work.rows if row.system not in (BARE, AT_ONCE, BOUND)]
    rates = [row.rate for row in rows]
    below = [row.rate - min(row.rates) for row in rows]
    above = [max(row.rates) - row.rate for row in rows]
    names = [row.system for row in rows]
    colors = [OURS if name.startswith("agym") else OTHERS for name in names]
    bars = panel.barh(
        names, rates, color=colors, xerr=[below, above], error_kw={"lw": 1, "ecolor": "#374151"}
    )
    bound = work.row(BOUND)
    if bound is not None:
        panel.axvline(bound.rate, color=LIMIT, linestyle="--", linewidth=1)
    panel.bar_label(bars, [f" {rate:,.0f}" for rate in rates], fontsize=8, padding=3)
    panel.set_title(work.work, fontsize=10)
    panel.set_xlabel("steps per second", fontsize=8)
    panel.margins(x=0.2)
    panel.invert_yaxis()
    panel.tick_params(labelsize=8)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.spines[["top", "right"]].set_visible(False)
