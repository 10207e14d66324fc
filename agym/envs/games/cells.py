"""Pictures of games that are grids of cells: pixels or text."""

from __future__ import annotations

from typing import Any

from agym.core.protocol.typing import Array

METADATA: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 30}

# Pixels per cell, in both directions.
SCALE = 8


def draw_cells(cells: Array, mode: str, colors: Array, letters: str) -> Any:
    """Render a grid with a colour or a letter for each content of a cell.

    Returns:
        ``uint8[HEIGHT * SCALE, WIDTH * SCALE, 3]``, or, with the mode ``"ansi"``, a line of text
        per row, with walls above and below.
    """
    if mode == "rgb_array":
        return colors[cells].repeat(SCALE, axis=0).repeat(SCALE, axis=1)
    wall = "-" * cells.shape[1]
    return "\n".join([wall, *("".join(letters[cell] for cell in row) for row in cells), wall])
