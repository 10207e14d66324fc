"""Time per step of all environments against their number: a panel for each environment.

The line is linear: as many times what one bare environment takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agym.bench.plot import OTHERS, OURS
from agym.bench.results import AT_ONCE, BARE, BOUND, WorkResult
from agym.extras import require

COLUMNS = 3

# One row per environment and number: milliseconds by system.
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
    """Draw all environments into a PNG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "bench")
    found = curves(works)
    columns = max(1, min(COLUMNS, len(found)))
    rows = max(1, math.ceil(len(found) / columns))
    figure = figure_module.Figure(figsize=(5 * columns, 3.4 * rows + 0.8), layout="constrained")
    panels = [*figure.subplots(rows, columns, squeeze=False).flat]
    for panel, (env_id, systems) in zip(panels, found.items(), strict=False):
        _draw(panel, env_id, systems)
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    figure.suptitle("Milliseconds per step of all environments (dashed: linear)")
    figure.savefig(path, format="png", dpi=150)


def _draw(panel: Any, env_id: str, systems: Curves) -> None:
    for name, points in systems.items():
        counts = sorted(points)
        values = [points[count] for count in counts]
        if name == BARE:
            panel.plot(counts, values, "--", color="#b91c1c", linewidth=1, label="linear")
            continue
        ours = name.startswith("agym")
        panel.plot(
            counts, values, marker="o", markersize=3, label=name,
            color=OURS if name == "agym auto" else None if ours else OTHERS,
            linewidth=1.6 if ours else 0.8, linestyle="-" if ours else _style(name),
        )  # fmt: skip
    counts = sorted({count for points in systems.values() for count in points})
    panel.set_xscale("log", base=2)
    panel.set_xticks(
        counts, [f"{count:,}" for count in counts], rotation=45 if len(counts) > 5 else 0
    )
    panel.set_yscale("log")
    panel.set_title(env_id, fontsize=10)
    panel.set_xlabel("environments", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(fontsize=5)


def _style(name: str) -> Any:
    """Tell peers apart, which are all grey."""
    return (0, (1 + len(name) % 4, 1 + sum(map(ord, name)) % 3))
