"""A curve of bounded size: the older it gets, the more values each of its points is the mean of."""

from __future__ import annotations

from collections.abc import Sequence

# An even number of points; then pairs are merged, which leaves half of them.
MAX_POINTS = 400

# Larger values are drawn as this, so that no mean is infinite, which JSON does not support.
VAST = 1e300


class Series:
    """Rows of numbers over steps.

    Example:
        >>> series = Series(2)
        >>> for step in range(1000):
        ...     series.add(step, [1.0, 2.0])
        >>> len(series.points), series.points[0]
        (250, (1.5, 1.0, 2.0))

    Attributes:
        points: The step of each point, then its values; each is a mean. The latest values may not
            be part of a point yet.
    """

    def __init__(self, width: int) -> None:
        """Start without points, each of which will have ``width`` values."""
        self.points: list[tuple[float, ...]] = []
        self._merged = 1  # values per point
        self._sums = [0.0] * (1 + width)
        self._count = 0

    def add(self, step: float, values: Sequence[float]) -> None:
        """Add one row of values."""
        limited = (max(-VAST, min(VAST, value)) for value in values)
        self._sums = [a + b for a, b in zip(self._sums, (step, *limited), strict=True)]
        self._count += 1
        if self._count < self._merged:
            return
        points = [*self.points, tuple(each / self._count for each in self._sums)]
        self._sums, self._count = [0.0] * len(self._sums), 0
        if len(points) == MAX_POINTS:
            points = [
                tuple((x + y) / 2 for x, y in zip(a, b, strict=True))
                for a, b in zip(points[::2], points[1::2], strict=True)
            ]
            self._merged *= 2
        self.points = points  # at once, because another thread reads them
