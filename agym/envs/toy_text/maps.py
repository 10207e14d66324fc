"""Steps on a map of squares."""

from __future__ import annotations


def walked(
    row: int, column: int, move: tuple[int, int], height: int, width: int
) -> tuple[int, int]:
    """Return the row and the column after a move down and right; the player stays on the map."""
    row = min(max(row + move[0], 0), height - 1)
    return row, min(max(column + move[1], 0), width - 1)
