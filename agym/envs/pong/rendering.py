"""Renders a game as pixels or text."""

from __future__ import annotations

from typing import Any

import numpy as np

from agym.envs.pong.rules import BALL, EMPTY, PADDLE
from agym.errors import UsageError
from agym.protocol.typing import Array

METADATA: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 30}

# Pixels per cell, in both directions.
SCALE = 8

# RGB by the cell's content.
COLORS = np.zeros((3, 3), np.uint8)
COLORS[EMPTY] = 17, 24, 39
COLORS[PADDLE] = 96, 165, 250
COLORS[BALL] = 250, 204, 21

LETTERS = np.array(list(" #o"))


def check_render_mode(render_mode: str | None) -> str | None:
    """Return a render mode after checking it.

    Raises:
        UsageError: There is no such mode.
    """
    if render_mode not in (None, *METADATA["render_modes"]):
        raise UsageError(
            f"render_mode={render_mode!r} is unknown: take 'rgb_array', 'ansi' or None"
        )
    return render_mode


def picture(grid: Array, render_mode: str | None) -> Any:
    """Render a grid.

    Returns:
        ``uint8[HEIGHT * SCALE, WIDTH * SCALE, 3]``, or a line of text per row, with walls above and
        below; ``None`` without a render mode.
    """
    if render_mode == "rgb_array":
        return COLORS[grid].repeat(SCALE, axis=0).repeat(SCALE, axis=1)
    if render_mode == "ansi":
        wall = "-" * grid.shape[1]
        return "\n".join([wall, *("".join(row) for row in LETTERS[grid]), wall])
    return None
