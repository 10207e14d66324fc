"""Charts against the number of environments: a panel per environment.

The default chart shows the time per step of all environments; its line is linear in the bare
environment's time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from agym.core._system.extras import require
from benchmarks.reports.plot import LIMIT, OTHERS, OURS
from benchmarks.reports.results import AT_ONCE, BARE, BOUND, Row, WorkloadResult
from benchmarks.throughput.cells import AUTO

COLUMNS = 3

# Number of tick labels from which on they are rotated.
CROWDED = 5

GREYS = OTHERS, "#4b5563"
COLORS = "#ea580c", "#16a34a", "#9333ea", "#0d9488", "#db2777"
MARKERS = "svD^<>xPp*hd"

# Values by system and number of environments.
Curves = dict[str, dict[int, float]]


def milliseconds(work: WorkloadResult, row: Row) -> float:
    """Return the milliseconds per step of all environments."""
    return 1000 * work.num_envs / row.rate


@dataclass(frozen=True)
class Chart:
    """The contents of a chart.

    Attributes:
        title: Title of the values.
        value: Computes the value of a system on a workload.
        bound: Label of the bare environment's line.
        ours: The highlighted system.
        log: Whether the y-axis is logarithmic; else it goes from 0 to 1.
        formula: Computes the dashed line beside a system, as numbers and values, from the
            workloads of an environment and the system.
    """

    title: str = "Milliseconds per step of all environments"
    value: Callable[[WorkloadResult, Row], float] = milliseconds
    bound: str = "linear"
    ours: str = AUTO
    log: bool = True
    formula: Callable[[Sequence[WorkloadResult], str], list[tuple[float, float]]] | None = None


MILLISECONDS = Chart()


def curves(
    workloads: Sequence[WorkloadResult],
    value: Callable[[WorkloadResult, Row], float] = milliseconds,
) -> dict[str, Curves]:
    """Return the values of all systems, by environment, system and number of environments."""
    found: dict[str, Curves] = {}
    for work in workloads:
        for row in work.rows:
            if row.system not in (AT_ONCE, BOUND):
                systems = found.setdefault(work.env_id, {})
                systems.setdefault(row.system, {})[work.num_envs] = value(work, row)
    return found


def save_count_plot(
    workloads: Sequence[WorkloadResult], path: Path, chart: Chart = MILLISECONDS
) -> None:
    """Draw all environments into a PNG file with one legend.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "plot")
    found = curves(workloads, chart.value)
    columns = max(1, min(COLUMNS, len(found)))
    rows = max(1, math.ceil(len(found) / columns))
    figure = figure_module.Figure(
        figsize=(4.4 * columns + 2, 3.4 * rows + 0.8), layout="constrained"
    )
    panels = [*figure.subplots(rows, columns, squeeze=False).flat]
    names = list(dict.fromkeys(name for systems in found.values() for name in systems))
    styles = dict(zip(names, _styles(names, chart.ours), strict=True))
    lines: dict[str, Any] = {}
    for panel, (env_id, systems) in zip(panels, found.items(), strict=False):
        for name, points in systems.items():
            counts = sorted(points)
            (lines[name],) = panel.plot(counts, [points[n] for n in counts], **styles[name])
            mine = [work for work in workloads if work.env_id == env_id]
            if chart.formula is not None and name != BARE and (line := chart.formula(mine, name)):
                panel.plot(*zip(*line, strict=True), "--", color=lines[name].get_color(), lw=0.8)
        _label(panel, env_id, sorted({count for points in systems.values() for count in points}))
        if chart.log:
            panel.set_yscale("log")
        else:
            panel.set_ylim(0, 1.1)
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    figure.suptitle(chart.title)
    figure.supylabel(chart.title.partition(",")[0], fontsize=9)
    labels = [chart.bound if name == BARE else name for name in lines]
    figure.legend([*lines.values()], labels, loc="outside right upper", fontsize=8)
    figure.savefig(path, format="png", dpi=150)


def _styles(names: Sequence[str], ours: str) -> Iterator[dict[str, Any]]:
    """Yield line styles: highlighted for ``ours``, coloured for agym's others, grey for peers."""
    colors, greys, markers = cycle(COLORS), cycle(GREYS), cycle(MARKERS)
    for name in names:
        if name == BARE:
            yield {"color": LIMIT, "linestyle": "--", "linewidth": 1}
        elif name == ours:
            yield {"color": OURS, "marker": "o", "linewidth": 2.5, "zorder": 3}
        elif name.startswith("agym"):
            yield {"color": next(colors), "marker": ".", "linewidth": 1.2}
        else:
            yield {"color": next(greys), "marker": next(markers), "markersize": 4, "linewidth": 0.8}


def _label(panel: Any, env_id: str, counts: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    ticks = [f"{count:,}" for count in counts]
    panel.set_xticks(counts, ticks, rotation=45 if len(counts) > CROWDED else 0)
    panel.set_title(env_id, fontsize=10)
    panel.set_xlabel("environments", fontsize=8)
    panel.tick_params(labelsize=8, which="both")
    panel.spines[["top", "right"]].set_visible(False)
