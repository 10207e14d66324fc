"""``machine``: what this machine's backends cost, as ``backend="auto"`` measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from agym._system.cpus import available_cores
from agym._system.extras import require
from agym.api.auto.measure_machine import measure_machine
from agym.planning.choice import describe_costs, readable
from agym.planning.model import Curve, Machine
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import progress_bar
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.plot import LIMIT, OTHERS
from benchmarks.reports.results import to_json
from benchmarks.reports.tables import machine_line

EXAMPLES = """Examples:

python -m benchmarks machine

python -m benchmarks machine --json result.json --plot curves.png
"""


def machine(json: JsonFile = None, plot: PlotFile = None) -> None:
    """Measure how long batches take while all worker processes compute at the same time.

    Unlike backend="auto" and agym plan, it measures each time, and keeps nothing.
    """
    check_plot(plot)
    check_writable(json, plot)
    with progress_bar(1) as bar, bar.part("measuring") as announce:
        found = measure_machine(available_cores(), lambda share: announce(f"{share:.0%}"))
    record = {"machine": describe_machine(), "costs": asdict(found)}
    deliver(show_machine(found), to_json(record), json)
    if plot is not None:
        save_curves(found, plot)


def show_machine(found: Machine) -> RenderableType:
    """Return a table of each curve."""
    tables = [_table(workers, curve) for workers, curve in found.curves.items()]
    return Group(*tables, describe_costs(found), machine_line(describe_machine()))


def _table(workers: int, curve: Curve) -> Table:
    title = f"{workers} worker process{'es' if workers > 1 else ''}: time of a batch"
    table = Table(title=title)
    for name in ("work of each", "mean", "with its error", "times as fast as one core"):
        table.add_column(name, justify="right")
    for work, usual, worst in zip(curve.work, curve.usual, curve.worst, strict=True):
        speeds = f"{workers * work / usual:.2f} ({workers * work / worst:.2f})"
        table.add_row(readable(work), readable(usual), readable(worst), speeds)
    return table


def save_curves(found: Machine, path: Path) -> None:
    """Draw the curves of all numbers of workers into a PNG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = require("matplotlib.figure", "bench").Figure(figsize=(7.2, 4.6), layout="constrained")
    panel = figure.subplots()
    curves: Mapping[int, Curve] = {k: curve for k, curve in found.curves.items() if k > 1}
    curves = curves or found.curves
    for workers, curve in curves.items():
        work = 1e3 * np.array(curve.work)
        usual, worst = 1e3 * np.array(curve.usual), 1e3 * np.array(curve.worst)
        (line,) = panel.plot(work, usual, "o-", label=f"process ×{workers}")
        panel.fill_between(work, usual, worst, color=line.get_color(), alpha=0.25, linewidth=0)
        panel.plot(work, workers * work, ":", color=OTHERS, label=f"serial, the work of {workers}")
    panel.plot(work, work, "--", color=LIMIT, linewidth=1, label="no overhead")
    panel.set_title("Batches on worker processes that compute at the same time")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("ms of work of each worker per batch")
    panel.set_ylabel("ms per batch (band: the standard error)")
    panel.legend(fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(machine_line(describe_machine()), fontsize=6, wrap=True)
    figure.savefig(path, format="png", dpi=150)
