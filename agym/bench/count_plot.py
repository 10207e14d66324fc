"""Time per step of all environments against their number: a panel for each environment.

The line is linear: as many times what one bare environment takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from agym.bench.cells import AUTO
from agym.bench.plot import LIMIT, OTHERS, OURS
from agym.bench.results import AT_ONCE, BARE, BOUND, WorkResult
from agym.extras import require

COLUMNS = 3

# From so many numbers on, they are written at an angle.
CROWDED = 5

COLORS = "#ea580c", "#16a34a", "#9333ea", "#0d9488", "#db2777"
MARKERS = "svD^<>xPp*hd"

# Milliseconds by system and number of environments.
Curves = dict[str, dict[int, float]]


def curves(works: Sequence[WorkResult]) -> dict[str, Curves]:
    """Milliseconds that a step of all environments takes.

    Returns:
        By environment, system and number of environments.
    """
    found: dict[str, Curves] = {}
    for work in works:
        for row in work.rows:
            if row.system not in (AT_ONCE, BOUND):
                systems = found.setdefault(work.env_id, {})
                systems.setdefault(row.system, {})[work.num_envs] = 1000 * work.num_envs / row.rate
    return found


def save_count_plot(works: Sequence[WorkResult], path: Path) -> None:
    """Draw all environments into a PNG file, with one legend for all.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "bench")
    found = curves(works)
    columns = max(1, min(COLUMNS, len(found)))
    rows = max(1, math.ceil(len(found) / columns))
    figure = figure_module.Figure(
        figsize=(4.4 * columns + 2, 3.4 * rows + 0.8), layout="constrained"
    )
    panels = [*figure.subplots(rows, columns, squeeze=False).flat]
    names = list(dict.fromkeys(name for systems in found.values() for name in systems))
    styles = dict(zip(names, _styles(names), strict=True))
    lines: dict[str, Any] = {}
    for panel, (env_id, systems) in zip(panels, found.items(), strict=False):
        for name, points in systems.items():
            counts = sorted(points)
            (lines[name],) = panel.plot(counts, [points[n] for n in counts], **styles[name])
        _label(panel, env_id, sorted({count for points in systems.values() for count in points}))
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    figure.suptitle("Milliseconds per step of all environments")
    labels = ["linear" if name == BARE else name for name in lines]
    figure.legend([*lines.values()], labels, loc="outside right upper", fontsize=8)
    figure.savefig(path, format="png", dpi=150)


def _styles(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What agym chooses stands out; its other ways have colours; all others are grey."""
    colors, markers = cycle(COLORS), cycle(MARKERS)
    for name in names:
        if name == BARE:
            yield {"color": LIMIT, "linestyle": "--", "linewidth": 1}
        elif name == AUTO:
            yield {"color": OURS, "marker": "o", "linewidth": 2.5, "zorder": 3}
        elif name.startswith("agym"):
            yield {"color": next(colors), "marker": ".", "linewidth": 1.2}
        else:
            yield {"color": OTHERS, "marker": next(markers), "markersize": 4, "linewidth": 0.8}


def _label(panel: Any, env_id: str, counts: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    ticks = [f"{count:,}" for count in counts]
    panel.set_xticks(counts, ticks, rotation=45 if len(counts) > CROWDED else 0)
    panel.set_yscale("log")
    panel.set_title(env_id, fontsize=10)
    panel.set_xlabel("environments", fontsize=8)
    panel.tick_params(labelsize=8, which="both")
    panel.spines[["top", "right"]].set_visible(False)
