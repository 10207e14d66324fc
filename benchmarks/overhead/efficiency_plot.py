"""Chart of efficiency against step time: measured points and the formula's curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agym.core._system.extras import require
from benchmarks.overhead.efficiency import efficiency, overhead_of, points, share_of
from benchmarks.reports.results import Report, WorkloadResult
from benchmarks.reports.tables import machine_line


def save_efficiency_plot(report: Report, workloads: Sequence[WorkloadResult], path: Path) -> None:
    """Draw all systems into a PNG file.

    ``workloads`` are the same environments with steps of several lengths, the shortest first.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = require("matplotlib.figure", "plot").Figure(figsize=(7.2, 4.6), layout="constrained")
    panel = figure.subplots()
    workers = report.settings.workers
    systems = dict.fromkeys(row.system for work in workloads for row in work.rows)
    for system in systems:
        measured = points(workloads, system, workers)
        overhead = overhead_of(workloads[0], system, workers)
        if "bare" in system or not measured or overhead is None:
            continue
        x = [1e6 * point.step_seconds for point in measured]
        (line,) = panel.plot(x, [point.efficiency for point in measured], "o", label=system)
        share = share_of(system, workloads[0].num_envs, workers)
        times = np.geomspace(measured[0].step_seconds, measured[-1].step_seconds, 100)
        curve = [efficiency(share, time, max(overhead, 0.0)) for time in times]
        panel.plot(1e6 * times, curve, "--", color=line.get_color(), linewidth=1)
    panel.set_xscale("log")
    panel.set_ylim(0, 1.1)
    panel.set_xlabel("µs per step of an environment")
    panel.set_ylabel("efficiency")
    if workloads:
        panel.set_title(f"{workloads[0].num_envs} environments (dashed: N·t / (N·t + t_os))")
    panel.spines[["top", "right"]].set_visible(False)
    if systems:
        panel.legend(fontsize=8)
    figure.supxlabel(machine_line(report.machine), fontsize=6, wrap=True)
    figure.savefig(path, format="png", dpi=150)
